//! A nightly job, of which one may run at a time. A process of its own: it can be killed with the lock in its hand, and have a clock of its
//! own.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Result;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sqlx::{Connection, PgConnection};

use crate::{
    actor::Host,
    pace::Pace,
    timeline::{Doing, Event},
};

pub(super) const SCHEMA: &str = "CREATE TABLE locks (name text PRIMARY KEY, locked_by text NOT NULL);
    CREATE TABLE shedlock (name text PRIMARY KEY, lock_until timestamptz NOT NULL, locked_at timestamptz NOT NULL, locked_by text NOT NULL);
    INSERT INTO shedlock VALUES ('settlement', 'epoch', 'epoch', 'nobody')";

/// Where it stands before it wants the lock.
pub(super) const READY: &str = "before it wants the lock";
/// Where it stands with the lock.
pub(super) const INSIDE: &str = "inside";
/// How often it tries, in the story.
const TRY_EVERY: Duration = Duration::from_secs(1);

/// The lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Lock {
    /// A row that is there while somebody is inside.
    Row,
    /// A row that says until when, by the clock of the application.
    UntilByApplication,
    /// The same by the clock of the database.
    UntilByDatabase,
    /// The database's own, which ends with the connection.
    Advisory,
}

/// What a job is told.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Task {
    pub database_url: String,
    pub name: String,
    pub lock: Lock,
    pub lease_ms: u64,
    pub speed: f64,
    /// It tries once, and leaves it to the others if it cannot have the lock.
    pub tries_once: bool,
}

/// Is the job. Whether it was inside.
pub(crate) async fn run(host: &Host, task: Task) -> Result<Value> {
    let mut job = Job {
        database: PgConnection::connect(&task.database_url).await?,
        host,
        task,
    };
    host.point(READY).await?;
    if !job.lock().await? {
        host.notes(Event::Refused, "somebody else is at it").await?;
        return Ok(Value::Bool(false));
    }
    let inside = host
        .holds("settles", Duration::from_millis(job.task.lease_ms))
        .await?;
    host.point(INSIDE).await?;
    host.ends(inside).await?;
    job.unlock().await?;
    Ok(Value::Bool(true))
}

struct Job<'a> {
    host: &'a Host,
    database: PgConnection,
    task: Task,
}

impl Job<'_> {
    async fn lock(&mut self) -> Result<bool> {
        if self.try_lock().await? {
            return Ok(true);
        }
        if self.task.tries_once {
            return Ok(false);
        }
        let pace = Pace::new(self.task.speed).unwrap_or_else(|| unreachable!("it was one"));
        let waiting = self.host.begins(Doing::Waiting, "wants the lock").await?;
        while !self.try_lock().await? {
            pace.sleep(TRY_EVERY).await;
        }
        self.host.ends(waiting).await?;
        Ok(true)
    }

    async fn try_lock(&mut self) -> Result<bool> {
        let lease = self.real_lease().as_secs_f64();
        let query = match self.task.lock {
            Lock::Row => sqlx::query("INSERT INTO locks VALUES ('settlement', $1) ON CONFLICT DO NOTHING").bind(&self.task.name),
            Lock::UntilByApplication => sqlx::query(
                "UPDATE shedlock SET lock_until = to_timestamp($1), locked_at = to_timestamp($2), locked_by = $3
                 WHERE name = 'settlement' AND lock_until <= to_timestamp($2)",
            )
            .bind(now()? + lease)
            .bind(now()?)
            .bind(&self.task.name),
            Lock::UntilByDatabase => sqlx::query(
                "UPDATE shedlock SET lock_until = now() + make_interval(secs => $1), locked_at = now(), locked_by = $2
                 WHERE name = 'settlement' AND lock_until <= now()",
            )
            .bind(lease)
            .bind(&self.task.name),
            Lock::Advisory => {
                let locked = sqlx::query_scalar("SELECT pg_try_advisory_lock(hashtext('settlement'))");
                return Ok(locked.fetch_one(&mut self.database).await?);
            }
        };
        Ok(query.execute(&mut self.database).await?.rows_affected() == 1)
    }

    async fn unlock(&mut self) -> Result<()> {
        let query = match self.task.lock {
            Lock::Row => sqlx::query("DELETE FROM locks WHERE name = 'settlement'"),
            Lock::UntilByApplication => {
                sqlx::query("UPDATE shedlock SET lock_until = to_timestamp($1) WHERE name = 'settlement' AND locked_by = $2")
                    .bind(now()?)
                    .bind(&self.task.name)
            }
            Lock::UntilByDatabase => {
                sqlx::query("UPDATE shedlock SET lock_until = now() WHERE name = 'settlement' AND locked_by = $1").bind(&self.task.name)
            }
            Lock::Advisory => sqlx::query("SELECT pg_advisory_unlock(hashtext('settlement'))"),
        };
        query.execute(&mut self.database).await?;
        Ok(())
    }

    fn real_lease(&self) -> Duration {
        Duration::from_millis(self.task.lease_ms).div_f64(self.task.speed)
    }
}

/// By the clock of this process.
fn now() -> Result<f64> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs_f64())
}
