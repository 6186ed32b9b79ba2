//! The row that the lock protects, what it checks, and the judge's own history of it: a trigger notes every write, whatever its writer says.

use anyhow::{Context, Result};
use lock::{
    FencingToken,
    store::{Assignments, Claim, FencedTable, Write},
};
use serde::{Deserialize, Serialize};
use sqlx::{PgPool, postgres::PgPoolOptions};

use crate::{stage::Stage, timeline::Timeline};

const ITEM: i64 = 1;

/// `turns` numbers the holders in the order in which they got the lock. It is the judge's: no lock and no check knows it.
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

/// What the row checks before it lets somebody write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::cases) enum Check {
    Nothing,
    /// That no later token has written.
    Fence,
    /// That nobody has written since it was read.
    Version,
    /// Both, in the write.
    FenceAndVersion,
    /// The row is claimed with the token before it is read, and the write checks token and version.
    Claim,
}

/// The row, and its history. Seen from the play.
pub(in crate::cases) struct Row {
    pub database: String,
    pool: PgPool,
    timeline: Timeline,
}

impl Row {
    /// A row with so many units, and as many on the shelf.
    pub(in crate::cases) async fn create(stage: &Stage, units: u64) -> Result<Self> {
        let units = i64::try_from(units)?;
        let database = stage.database().await?;
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
            timeline: stage.timeline.clone(),
        };
        row.stock().await?;
        Ok(row)
    }

    /// So many units are on the shelf now. The row knows nothing of it.
    pub(in crate::cases) async fn fill_shelf(&self, units: u64) -> Result<()> {
        sqlx::query("UPDATE shelf SET units = $1")
            .bind(i64::try_from(units)?)
            .execute(&self.pool)
            .await?;
        Ok(())
    }

    /// What the row says is there.
    pub(in crate::cases) async fn stock(&self) -> Result<u64> {
        let stock: i64 = self.number("SELECT stock FROM items").await?;
        self.timeline.stock(stock);
        Ok(u64::try_from(stock).unwrap_or(0))
    }

    /// Writes that got in.
    pub(in crate::cases) async fn writes(&self) -> Result<u64> {
        self.count("SELECT count(*) FROM writes").await
    }

    /// Writes by somebody whose successor had the lock already.
    pub(in crate::cases) async fn zombie_writes(&self) -> Result<u64> {
        self.count("SELECT count(*) FROM writes WHERE latest_turn > turn")
            .await
    }

    /// Writes that were decided on another state than the one that they replaced.
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
        .context("the database")
}

/// What was read of the row.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seen {
    pub stock: i64,
    version: i64,
}

/// What became of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    Applied,
    /// By token or by version.
    Refused,
}

/// The row, seen from a keeper.
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

    /// Reads the row; where rows are claimed, claims it first.
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

    /// The version to write with. Whoever is too late for a claim is told so by the write.
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

    /// For the picture: whether somebody else had the lock already when this turn wrote last.
    pub(super) async fn was_late(&self, turn: i64) -> Result<bool> {
        self.last_write(
            "SELECT latest_turn > turn FROM writes WHERE turn = $1 ORDER BY id DESC LIMIT 1",
            turn,
        )
        .await
    }

    /// For the picture: whether the last write of this turn replaced what it had not seen.
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
    FencingToken::new(token).context("tokens begin at one")
}
