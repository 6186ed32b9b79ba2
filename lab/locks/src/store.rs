//! The store that the locks protect, and the recorded history of each experiment.
//!
//! Each experiment has two rows. The *unchecked* row accepts every write. The *fenced* row is
//! claimed with the token before it is read, and is written with token and version, as
//! `lock::store` does it. Every holder changes both rows, so both see the same faults.
//!
//! The history does not rely on what holders report: a trigger records every accepted write, and
//! the table `visits` records when each holder enters and leaves the critical section.

use anyhow::{Context, Result, bail};
use lock::{
    FencingToken,
    store::{Assignments, Claim, FencedTable, Write},
};
use serde::{Deserialize, Serialize};
use sqlx::{PgPool, postgres::PgPoolOptions};

/// `turns` numbers the holders of an experiment in the order in which they acquire the lock. Only
/// the history uses it; no lock and no check depends on it.
const SCHEMA: &str = "
    CREATE TABLE experiments (id BIGINT PRIMARY KEY, turns BIGINT NOT NULL DEFAULT 0);
    CREATE SEQUENCE moments;
    CREATE TABLE visits (
        experiment BIGINT NOT NULL,
        turn BIGINT NOT NULL,
        entered BIGINT NOT NULL DEFAULT nextval('moments'),
        departed BIGINT,
        PRIMARY KEY (experiment, turn)
    );
    CREATE TABLE items (
        id BIGINT PRIMARY KEY,
        value BIGINT NOT NULL DEFAULT 0,
        fence BIGINT NOT NULL DEFAULT 0,
        version BIGINT NOT NULL DEFAULT 0,
        turn BIGINT NOT NULL DEFAULT 0,
        value_read BIGINT NOT NULL DEFAULT 0
    );
    CREATE TABLE writes (
        item BIGINT NOT NULL,
        turn BIGINT NOT NULL,
        latest_turn BIGINT NOT NULL,
        value_read BIGINT NOT NULL,
        value_replaced BIGINT NOT NULL
    );
    CREATE FUNCTION record_write() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        INSERT INTO writes VALUES (
            NEW.id,
            NEW.turn,
            (SELECT turns FROM experiments WHERE id = NEW.id / 2),
            NEW.value_read,
            OLD.value
        );
        RETURN NULL;
    END $$;
    CREATE TRIGGER record_write AFTER UPDATE OF value ON items
        FOR EACH ROW EXECUTE FUNCTION record_write();
";

const COUNT_WRITES: &str = "
    SELECT count(*),
           count(*) FILTER (WHERE latest_turn > turn),
           count(*) FILTER (WHERE value_read <> value_replaced)
    FROM writes
    WHERE item = $1
";

/// For each holder: how many holders, itself included, are inside when it enters.
const COUNT_HOLDERS: &str = "
    SELECT COALESCE(max(holders), 0) FROM (
        SELECT count(*) AS holders
        FROM visits a
        JOIN visits b ON b.experiment = a.experiment
            AND b.entered <= a.entered
            AND COALESCE(b.departed, 9223372036854775807) > a.entered
        WHERE a.experiment = $1
        GROUP BY a.turn
    ) AS per_entry
";

/// Connections of each process. Concurrent experiments and their contenders share those of the
/// server.
const POOL_CONNECTIONS_MAX: u32 = 2;

/// What the history of one row contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RowHistory {
    /// Accepted writes.
    pub writes: u64,
    /// Accepted writes of a holder whose successor had already entered.
    pub stale_writes: u64,
    /// Accepted writes that replaced a value that the writer had not read.
    pub lost_updates: u64,
}

impl RowHistory {
    /// Whether the row accepted a stale write or lost an update.
    pub fn is_harmed(self) -> bool {
        self.stale_writes + self.lost_updates > 0
    }
}

/// One of the two rows of an experiment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RowKind {
    Unchecked,
    Fenced,
}

/// What a holder has read of a row.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Snapshot {
    value: i64,
    version: i64,
}

/// Result of a claim of the fenced row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClaimResult {
    Claimed {
        version: i64,
    },
    /// A holder with this higher token has already claimed the row.
    Superseded(FencingToken),
}

/// A connection to the store.
#[derive(Clone)]
pub(crate) struct Store {
    pool: PgPool,
    items: FencedTable,
}

impl Store {
    pub(crate) async fn create(url: &str) -> Result<Self> {
        let store = Self::open(url).await?;
        sqlx::raw_sql(SCHEMA).execute(&store.pool).await?;
        Ok(store)
    }

    pub(crate) async fn open(url: &str) -> Result<Self> {
        let pool = PgPoolOptions::new()
            .max_connections(POOL_CONNECTIONS_MAX)
            .connect(url)
            .await
            .with_context(|| format!("cannot connect to the store at {url}"))?;
        Ok(Self {
            pool,
            items: FencedTable::builder("items").build()?,
        })
    }

    /// Creates the two rows of an experiment.
    pub(crate) async fn begin(&self, experiment: i64) -> Result<()> {
        sqlx::query("INSERT INTO experiments (id) VALUES ($1)")
            .bind(experiment)
            .execute(&self.pool)
            .await?;
        let rows = sqlx::query("INSERT INTO items (id) VALUES ($1), ($2)")
            .bind(row_id(experiment, RowKind::Unchecked))
            .bind(row_id(experiment, RowKind::Fenced));
        rows.execute(&self.pool).await?;
        Ok(())
    }

    /// Records that a holder enters the critical section, and returns its turn.
    pub(crate) async fn enter(&self, experiment: i64) -> Result<i64> {
        let next_turn = "UPDATE experiments SET turns = turns + 1 WHERE id = $1 RETURNING turns";
        let turn: i64 = sqlx::query_scalar(next_turn)
            .bind(experiment)
            .fetch_one(&self.pool)
            .await?;
        sqlx::query("INSERT INTO visits (experiment, turn) VALUES ($1, $2)")
            .bind(experiment)
            .bind(turn)
            .execute(&self.pool)
            .await?;
        Ok(turn)
    }

    /// Records that a holder is no longer inside: it released the lock, stopped because the lock
    /// was lost, or is dead.
    pub(crate) async fn leave(&self, experiment: i64, turn: i64) -> Result<()> {
        let leave = "UPDATE visits SET departed = nextval('moments')
            WHERE experiment = $1 AND turn = $2 AND departed IS NULL";
        sqlx::query(leave)
            .bind(experiment)
            .bind(turn)
            .execute(&self.pool)
            .await?;
        Ok(())
    }

    /// Claims the fenced row for a token.
    pub(crate) async fn claim(&self, experiment: i64, token: FencingToken) -> Result<ClaimResult> {
        let row = row_id(experiment, RowKind::Fenced);
        match self.items.claim(&self.pool, row, token).await? {
            Claim::Claimed { version } => Ok(ClaimResult::Claimed { version }),
            Claim::Superseded { current } => Ok(ClaimResult::Superseded(current)),
            Claim::Missing => bail!("the store has no row {row} to claim"),
        }
    }

    /// Reads a row. `version` is the version that the claim returned.
    pub(crate) async fn read(
        &self,
        experiment: i64,
        kind: RowKind,
        version: i64,
    ) -> Result<Snapshot> {
        let value = sqlx::query_scalar("SELECT value FROM items WHERE id = $1")
            .bind(row_id(experiment, kind))
            .fetch_one(&self.pool)
            .await?;
        Ok(Snapshot { value, version })
    }

    /// Increments the unchecked row, whatever has happened to it since `snapshot`.
    pub(crate) async fn write(&self, experiment: i64, turn: i64, snapshot: Snapshot) -> Result<()> {
        sqlx::query("UPDATE items SET value = $2, turn = $3, value_read = $4 WHERE id = $1")
            .bind(row_id(experiment, RowKind::Unchecked))
            .bind(snapshot.value + 1)
            .bind(turn)
            .bind(snapshot.value)
            .execute(&self.pool)
            .await?;
        Ok(())
    }

    /// Increments the fenced row if the claim of `token` still stands and the row is unchanged
    /// since `snapshot`. Returns whether the row accepted the write.
    pub(crate) async fn write_fenced(
        &self,
        experiment: i64,
        turn: i64,
        snapshot: Snapshot,
        token: FencingToken,
    ) -> Result<bool> {
        let row = row_id(experiment, RowKind::Fenced);
        let assignments = Assignments::new()
            .set("value", snapshot.value + 1)
            .set("turn", turn)
            .set("value_read", snapshot.value);
        let written = self
            .items
            .write(&self.pool, row, token, snapshot.version, assignments)
            .await?;
        Ok(matches!(written, Write::Applied { .. }))
    }

    pub(crate) async fn history(&self, experiment: i64, kind: RowKind) -> Result<RowHistory> {
        let (writes, stale, lost): (i64, i64, i64) = sqlx::query_as(COUNT_WRITES)
            .bind(row_id(experiment, kind))
            .fetch_one(&self.pool)
            .await?;
        Ok(RowHistory {
            writes: u64::try_from(writes)?,
            stale_writes: u64::try_from(stale)?,
            lost_updates: u64::try_from(lost)?,
        })
    }

    /// The largest number of holders that were inside at the same time. A holder counts from entry
    /// to departure, whether or not it still holds the lock.
    pub(crate) async fn concurrent_holders_max(&self, experiment: i64) -> Result<u64> {
        let holders: i64 = sqlx::query_scalar(COUNT_HOLDERS)
            .bind(experiment)
            .fetch_one(&self.pool)
            .await?;
        Ok(u64::try_from(holders)?)
    }
}

fn row_id(experiment: i64, kind: RowKind) -> i64 {
    2 * experiment + i64::from(kind == RowKind::Fenced)
}
