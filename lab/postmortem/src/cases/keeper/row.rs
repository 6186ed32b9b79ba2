//! The row under the lock, its checks, and an independent history of its writes: a trigger logs
//! every write.

use anyhow::{Context, Result};
use lock::{
    FencingToken,
    store::{Assignments, Claim, FencedTable, Write},
};
use serde::{Deserialize, Serialize};
use sqlx::{PgPool, postgres::PgPoolOptions};

use crate::{test_env::TestEnv, timeline::Timeline};

const ITEM: i64 = 1;

/// `turns` numbers the holders in the order of their acquisitions. Only the verdict uses it; no
/// lock and no check does.
const SCHEMA: &str = "
    CREATE SEQUENCE turns;
    CREATE TABLE items (
        id BIGINT PRIMARY KEY,
        stock BIGINT NOT NULL,
        fence BIGINT NOT NULL DEFAULT 0,
        version BIGINT NOT NULL DEFAULT 0,
        turn BIGINT NOT NULL DEFAULT 0,
        saw BIGINT NOT NULL DEFAULT 0
    );
    CREATE TABLE shelf (units BIGINT NOT NULL);
    CREATE TABLE writes (
        id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        turn BIGINT NOT NULL,
        latest_turn BIGINT NOT NULL,
        saw BIGINT NOT NULL,
        stood BIGINT NOT NULL
    );
    CREATE FUNCTION note_write() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        INSERT INTO writes (turn, latest_turn, saw, stood) VALUES (NEW.turn, (SELECT last_value FROM turns), NEW.saw, OLD.stock);
        RETURN NULL;
    END $$;
    CREATE TRIGGER note_write AFTER UPDATE OF stock ON items FOR EACH ROW EXECUTE FUNCTION note_write();
";

/// What the row checks before it accepts a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::cases) enum Check {
    Nothing,
    /// No later token has written.
    Fence,
    /// The row has not changed since the read.
    Version,
    /// Both, in the write.
    FenceAndVersion,
    /// The row is claimed with the token before the read, and the write checks token and version.
    Claim,
}

/// The row and its history, for the verdict.
pub(in crate::cases) struct Row {
    pub database: String,
    pool: PgPool,
    timeline: Timeline,
}

impl Row {
    /// Creates a row with this number of units, and a shelf with as many.
    pub(in crate::cases) async fn create(env: &TestEnv, units: u64) -> Result<Self> {
        let units = i64::try_from(units)?;
        let database = env.database().await?;
        let pool = connect(&database).await?;
        sqlx::raw_sql(SCHEMA).execute(&pool).await?;
        sqlx::query("INSERT INTO items (id, stock) VALUES ($1, $2)")
            .bind(ITEM)
            .bind(units)
            .execute(&pool)
            .await?;
        sqlx::query("INSERT INTO shelf (units) VALUES ($1)")
            .bind(units)
            .execute(&pool)
            .await?;
        let row = Self {
            database,
            pool,
            timeline: env.timeline.clone(),
        };
        row.stock().await?;
        Ok(row)
    }

    /// Sets the number of units on the shelf without a change of the row.
    pub(in crate::cases) async fn fill_shelf(&self, units: u64) -> Result<()> {
        sqlx::query("UPDATE shelf SET units = $1")
            .bind(i64::try_from(units)?)
            .execute(&self.pool)
            .await?;
        Ok(())
    }

    /// Returns the number of units in the row.
    pub(in crate::cases) async fn stock(&self) -> Result<u64> {
        let stock: i64 = self.number("SELECT stock FROM items").await?;
        self.timeline.stock(stock);
        Ok(u64::try_from(stock).unwrap_or(0))
    }

    /// Counts the accepted writes.
    pub(in crate::cases) async fn writes(&self) -> Result<u64> {
        self.count("SELECT count(*) FROM writes").await
    }

    /// Counts the writes by a holder whose successor already had the lock.
    pub(in crate::cases) async fn zombie_writes(&self) -> Result<u64> {
        self.count("SELECT count(*) FROM writes WHERE latest_turn > turn")
            .await
    }

    /// Counts the writes that were computed from another state than the one they replaced.
    pub(in crate::cases) async fn lost_updates(&self) -> Result<u64> {
        self.count("SELECT count(*) FROM writes WHERE saw <> stood")
            .await
    }

    async fn count(&self, query: &'static str) -> Result<u64> {
        Ok(u64::try_from(self.number(query).await?)?)
    }

    async fn number(&self, query: &'static str) -> Result<i64> {
        Ok(sqlx::query_scalar(query).fetch_one(&self.pool).await?)
    }
}

async fn connect(database: &str) -> Result<PgPool> {
    PgPoolOptions::new()
        .max_connections(2)
        .connect(database)
        .await
        .context("cannot connect to the database")
}

/// State of the row at the read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seen {
    pub stock: i64,
    version: i64,
}

/// Outcome of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    Applied,
    /// Refused by token or by version.
    Refused,
}

/// The row, for a keeper.
pub(super) struct Store {
    pool: PgPool,
    check: Check,
    items: FencedTable,
}

impl Store {
    pub(super) async fn open(database: &str, check: Check) -> Result<Self> {
        Ok(Self {
            pool: connect(database).await?,
            check,
            items: FencedTable::builder("items").build()?,
        })
    }

    pub(super) async fn next_turn(&self) -> Result<i64> {
        Ok(sqlx::query_scalar("SELECT nextval('turns')")
            .fetch_one(&self.pool)
            .await?)
    }

    pub(super) async fn count_shelf(&self) -> Result<i64> {
        Ok(sqlx::query_scalar("SELECT units FROM shelf")
            .fetch_one(&self.pool)
            .await?)
    }

    /// Reads the row, and claims it first where rows are claimed.
    pub(super) async fn read(&self, token: Option<i64>) -> Result<Seen> {
        let claimed = match (self.check, token) {
            (Check::Claim, Some(token)) => self.claim(token).await?,
            _ => None,
        };
        let row = sqlx::query_as("SELECT stock, version FROM items WHERE id = $1")
            .bind(ITEM)
            .fetch_one(&self.pool);
        let (stock, version): (i64, i64) = row.await?;
        Ok(Seen {
            stock,
            version: claimed.unwrap_or(version),
        })
    }

    /// Claims the row, and returns the version to write with. A claim that is too late is refused
    /// by the write.
    async fn claim(&self, token: i64) -> Result<Option<i64>> {
        Ok(
            match self.items.claim(&self.pool, ITEM, fencing(token)?).await? {
                Claim::Claimed { version } => Some(version),
                Claim::Superseded { .. } | Claim::Missing => None,
            },
        )
    }

    pub(super) async fn write(
        &self,
        token: i64,
        turn: i64,
        seen: Seen,
        stock: i64,
    ) -> Result<Outcome> {
        let sql = match self.check {
            Check::Claim => return self.write_claimed(token, turn, seen, stock).await,
            Check::Nothing => "UPDATE items SET stock = $2, turn = $3, saw = $4 WHERE id = $1",
            Check::Fence => {
                "UPDATE items SET stock = $2, turn = $3, saw = $4, fence = $5 WHERE id = $1 AND fence <= $5"
            }
            Check::Version => {
                "UPDATE items SET stock = $2, turn = $3, saw = $4, version = version + 1 WHERE id = $1 AND version = $5"
            }
            Check::FenceAndVersion => {
                "UPDATE items SET stock = $2, turn = $3, saw = $4, fence = $5, version = version + 1 \
                 WHERE id = $1 AND fence <= $5 AND version = $6"
            }
        };
        let update = sqlx::query(sql)
            .bind(ITEM)
            .bind(stock)
            .bind(turn)
            .bind(seen.stock);
        let update = match self.check {
            Check::Fence => update.bind(token),
            Check::Version => update.bind(seen.version),
            Check::FenceAndVersion => update.bind(token).bind(seen.version),
            Check::Nothing | Check::Claim => update,
        };
        let hit = update.execute(&self.pool).await?.rows_affected();
        Ok(if hit == 1 {
            Outcome::Applied
        } else {
            Outcome::Refused
        })
    }

    async fn write_claimed(
        &self,
        token: i64,
        turn: i64,
        seen: Seen,
        stock: i64,
    ) -> Result<Outcome> {
        let assignments = Assignments::new()
            .set("stock", stock)
            .set("turn", turn)
            .set("saw", seen.stock);
        let written = self
            .items
            .write(&self.pool, ITEM, fencing(token)?, seen.version, assignments)
            .await?;
        Ok(if matches!(written, Write::Applied { .. }) {
            Outcome::Applied
        } else {
            Outcome::Refused
        })
    }

    /// Returns whether another holder already had the lock at the last write of this turn, for the
    /// timeline.
    pub(super) async fn was_late(&self, turn: i64) -> Result<bool> {
        self.last_write(
            "SELECT latest_turn > turn FROM writes WHERE turn = $1 ORDER BY id DESC LIMIT 1",
            turn,
        )
        .await
    }

    /// Returns whether the last write of this turn replaced a state that it had not read, for the
    /// timeline.
    pub(super) async fn was_blind(&self, turn: i64) -> Result<bool> {
        self.last_write(
            "SELECT saw <> stood FROM writes WHERE turn = $1 ORDER BY id DESC LIMIT 1",
            turn,
        )
        .await
    }

    async fn last_write(&self, query: &'static str, turn: i64) -> Result<bool> {
        Ok(sqlx::query_scalar(query)
            .bind(turn)
            .fetch_one(&self.pool)
            .await?)
    }
}

fn fencing(token: i64) -> Result<FencingToken> {
    FencingToken::new(token).context("expected a token of at least 1")
}
