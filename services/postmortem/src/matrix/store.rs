//! The store that the locks protect, and the judge's own history of it: every write that gets in is noted by a trigger, whatever its writer
//! says, and so is who is inside.
//!
//! Each trial has two rows. The *open* one takes every write. The *fenced* one is claimed with the token before it is read, and is written with
//! token and version, as `lock::store` does it. Every holder changes both, so both have seen the same faults.

use anyhow::{Context, Result};
use lock::{
    FencingToken,
    store::{Assignments, Claim, FencedTable, Write},
};
use serde::{Deserialize, Serialize};
use sqlx::{PgPool, postgres::PgPoolOptions};

/// `turns` numbers the holders of a trial in the order in which they got the lock. It is the judge's: no lock and no check knows it.
const SCHEMA: &str = "
    CREATE TABLE trials (id BIGINT PRIMARY KEY, turns BIGINT NOT NULL DEFAULT 0);
    CREATE SEQUENCE moments;
    CREATE TABLE visits (
        trial BIGINT NOT NULL,
        turn BIGINT NOT NULL,
        entered BIGINT NOT NULL DEFAULT nextval('moments'),
        gone BIGINT,
        PRIMARY KEY (trial, turn)
    );
    CREATE TABLE items (
        id BIGINT PRIMARY KEY,
        value BIGINT NOT NULL DEFAULT 0,
        fence BIGINT NOT NULL DEFAULT 0,
        version BIGINT NOT NULL DEFAULT 0,
        turn BIGINT NOT NULL DEFAULT 0,
        saw BIGINT NOT NULL DEFAULT 0
    );
    CREATE TABLE writes (
        item BIGINT NOT NULL,
        turn BIGINT NOT NULL,
        latest_turn BIGINT NOT NULL,
        saw BIGINT NOT NULL,
        stood BIGINT NOT NULL
    );
    CREATE FUNCTION note_write() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        INSERT INTO writes VALUES (NEW.id, NEW.turn, (SELECT turns FROM trials WHERE id = NEW.id / 2), NEW.saw, OLD.value);
        RETURN NULL;
    END $$;
    CREATE TRIGGER note_write AFTER UPDATE OF value ON items FOR EACH ROW EXECUTE FUNCTION note_write();
";

/// Trials that run side by side, and their actors, share the server's connections.
const CONNECTIONS: u32 = 2;

/// What was counted at a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// Writes that got in.
    pub writes: u64,
    /// Of these, writes of somebody whose successor was inside already.
    pub stale_writes: u64,
    /// Of these, writes that replaced what their writer had not seen.
    pub lost_updates: u64,
}

impl Row {
    /// Whether something was written over, or by somebody whose turn was over.
    pub fn is_harmed(self) -> bool {
        self.stale_writes + self.lost_updates > 0
    }
}

/// Which of a trial's two rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Which {
    Open,
    Fenced,
}

/// What a holder has read of a row.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seen {
    value: i64,
    version: i64,
}

/// What became of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Claimed {
    Ours {
        version: i64,
    },
    /// Somebody with this token has claimed it before.
    Superseded(FencingToken),
}

/// The store, as judge and holders see it.
#[derive(Clone)]
pub(super) struct Store {
    pool: PgPool,
    items: FencedTable,
}

impl Store {
    pub(super) async fn create(database: &str) -> Result<Self> {
        let store = Self::open(database).await?;
        sqlx::raw_sql(SCHEMA).execute(&store.pool).await?;
        Ok(store)
    }

    pub(super) async fn open(database: &str) -> Result<Self> {
        let pool = PgPoolOptions::new()
            .max_connections(CONNECTIONS)
            .connect(database)
            .await
            .context("the store")?;
        Ok(Self {
            pool,
            items: FencedTable::builder("items").build()?,
        })
    }

    /// The two rows of one more trial.
    pub(super) async fn begin(&self, trial: i64) -> Result<()> {
        sqlx::query("INSERT INTO trials (id) VALUES ($1)")
            .bind(trial)
            .execute(&self.pool)
            .await?;
        let rows = sqlx::query("INSERT INTO items (id) VALUES ($1), ($2)")
            .bind(row(trial, Which::Open))
            .bind(row(trial, Which::Fenced));
        rows.execute(&self.pool).await?;
        Ok(())
    }

    /// Somebody has the lock: which turn it is.
    pub(super) async fn enter(&self, trial: i64) -> Result<i64> {
        let turn =
            sqlx::query_scalar("UPDATE trials SET turns = turns + 1 WHERE id = $1 RETURNING turns")
                .bind(trial);
        let turn: i64 = turn.fetch_one(&self.pool).await?;
        sqlx::query("INSERT INTO visits (trial, turn) VALUES ($1, $2)")
            .bind(trial)
            .bind(turn)
            .execute(&self.pool)
            .await?;
        Ok(turn)
    }

    /// It is inside no more: it has given the lock back, was told that it is lost, or is dead.
    pub(super) async fn leave(&self, trial: i64, turn: i64) -> Result<()> {
        let left = sqlx::query(
            "UPDATE visits SET gone = nextval('moments') WHERE trial = $1 AND turn = $2 AND gone IS NULL",
        );
        left.bind(trial).bind(turn).execute(&self.pool).await?;
        Ok(())
    }

    pub(super) async fn claim(&self, trial: i64, token: FencingToken) -> Result<Claimed> {
        match self
            .items
            .claim(&self.pool, row(trial, Which::Fenced), token)
            .await?
        {
            Claim::Claimed { version } => Ok(Claimed::Ours { version }),
            Claim::Superseded { current } => Ok(Claimed::Superseded(current)),
            Claim::Missing => anyhow::bail!("the row is not there"),
        }
    }

    /// `version` is that of the claim.
    pub(super) async fn read(&self, trial: i64, which: Which, version: i64) -> Result<Seen> {
        let value = sqlx::query_scalar("SELECT value FROM items WHERE id = $1")
            .bind(row(trial, which))
            .fetch_one(&self.pool)
            .await?;
        Ok(Seen { value, version })
    }

    /// Writes one more than was read, whoever asks.
    pub(super) async fn write(&self, trial: i64, turn: i64, seen: Seen) -> Result<()> {
        let write = sqlx::query("UPDATE items SET value = $2, turn = $3, saw = $4 WHERE id = $1")
            .bind(row(trial, Which::Open));
        write
            .bind(seen.value + 1)
            .bind(turn)
            .bind(seen.value)
            .execute(&self.pool)
            .await?;
        Ok(())
    }

    /// The same, if the row is still claimed by this token and nobody has come in between. Whether it was.
    pub(super) async fn write_fenced(
        &self,
        trial: i64,
        turn: i64,
        seen: Seen,
        token: FencingToken,
    ) -> Result<bool> {
        let assignments = Assignments::new()
            .set("value", seen.value + 1)
            .set("turn", turn)
            .set("saw", seen.value);
        let written = self
            .items
            .write(
                &self.pool,
                row(trial, Which::Fenced),
                token,
                seen.version,
                assignments,
            )
            .await?;
        Ok(matches!(written, Write::Applied { .. }))
    }

    pub(super) async fn count(&self, trial: i64, which: Which) -> Result<Row> {
        let count = "SELECT count(*), count(*) FILTER (WHERE latest_turn > turn), count(*) FILTER (WHERE saw <> stood) \
                     FROM writes WHERE item = $1";
        let (writes, stale, lost): (i64, i64, i64) = sqlx::query_as(count)
            .bind(row(trial, which))
            .fetch_one(&self.pool)
            .await?;
        Ok(Row {
            writes: u64::try_from(writes)?,
            stale_writes: u64::try_from(stale)?,
            lost_updates: u64::try_from(lost)?,
        })
    }

    /// The most that were inside at the same moment. Somebody who enters stays until it leaves, whatever it knows of its lock.
    pub(super) async fn inside_at_once(&self, trial: i64) -> Result<u64> {
        let most = "SELECT COALESCE(max(others), 0) FROM (SELECT count(*) AS others FROM visits a JOIN visits b \
                    ON b.trial = a.trial AND b.entered <= a.entered AND COALESCE(b.gone, 9223372036854775807) > a.entered \
                    WHERE a.trial = $1 GROUP BY a.turn) AS inside";
        let most: i64 = sqlx::query_scalar(most)
            .bind(trial)
            .fetch_one(&self.pool)
            .await?;
        Ok(u64::try_from(most)?)
    }
}

fn row(trial: i64, which: Which) -> i64 {
    2 * trial + i64::from(which == Which::Fenced)
}
