//! A nightly job that must not run twice at a time. It is a separate process, so it can be killed
//! while it holds the lock, and can have a different clock.

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
    INSERT INTO shedlock VALUES ('settlement', 'epoch', 'epoch', 'none')";

/// Point before it requests the lock.
pub(super) const READY: &str = "before the lock is requested";
/// Point at which it holds the lock.
pub(super) const INSIDE: &str = "inside";
/// Time between two attempts to lock, in scenario time.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Implementation of the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Lock {
    /// A row that exists while the lock is held.
    Row,
    /// A row with the end of the lease by the clock of the application.
    UntilByApplication,
    /// A row with the end of the lease by the clock of the database.
    UntilByDatabase,
    /// The database's own lock, which ends with the connection.
    Advisory,
}

/// Arguments of a job.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Task {
    pub database_url: String,
    pub name: String,
    pub lock: Lock,
    pub lease_ms: u64,
    pub speed: f64,
    /// Whether it tries once and then leaves the work to the other jobs.
    pub tries_once: bool,
}

/// Runs the job, and returns whether it got the lock.
pub(crate) async fn run(host: &Host, task: Task) -> Result<Value> {
    let mut job = Job {
        database: PgConnection::connect(&task.database_url).await?,
        host,
        task,
    };
    host.point(READY).await?;
    if !job.lock().await? {
        host.notes(Event::Refused, "the lock is taken").await?;
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
        let pace = Pace::new(self.task.speed)
            .unwrap_or_else(|| unreachable!("the runner sends a valid speed"));
        let waiting = self
            .host
            .begins(Doing::Waiting, "waits for the lock")
            .await?;
        while !self.try_lock().await? {
            pace.sleep(RETRY_INTERVAL).await;
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

/// Returns the time of this process's clock, in seconds since the epoch.
fn now() -> Result<f64> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs_f64())
}
