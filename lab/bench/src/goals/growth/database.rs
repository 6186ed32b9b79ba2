//! The ledger's tables, where the API has no call: it pays all orders in one transaction, and lets
//! all holds expire at one moment.

use anyhow::Result;
use sqlx::{PgPool, Postgres, Sqlite, SqlitePool};

/// A connection to the tables of either ledger.
pub enum Database {
    /// To a server.
    Postgres(PgPool),
    /// To a file, which the service has open as well.
    Sqlite(SqlitePool),
}

/// Runs the same on either ledger: the types of sqlx differ, the text does not.
macro_rules! on_both {
    ($database:expr, $connection:ident => $run:expr) => {
        match $database {
            Database::Postgres($connection) => $run,
            Database::Sqlite($connection) => $run,
        }
    };
}

impl Database {
    /// Connects to a ledger that has its schema.
    pub async fn connect(url: &str) -> Result<Self> {
        Ok(if url.starts_with("sqlite:") {
            Self::Sqlite(SqlitePool::connect(url).await?)
        } else {
            Self::Postgres(PgPool::connect(url).await?)
        })
    }

    /// Number of items in this state.
    pub async fn items(&self, state: &str) -> Result<u64> {
        self.count("SELECT count(*) FROM items WHERE state = $1", state)
            .await
    }

    /// Number of orders of an item.
    pub async fn orders(&self, item: &str) -> Result<u64> {
        self.count("SELECT count(*) FROM orders WHERE item = $1", item)
            .await
    }

    /// Number of items without a good audit.
    pub async fn unaudited(&self) -> Result<u64> {
        const UNAUDITED: &str = "SELECT count(*) FROM items WHERE state <> $1 \
                                 AND NOT EXISTS (SELECT 1 FROM good_audits WHERE item = items.id)";
        self.count(UNAUDITED, "archived").await
    }

    /// When the last good audit began, as text; empty if there was none.
    pub async fn last_audit(&self) -> Result<String> {
        const LAST: &str = "SELECT CAST(max(at) AS TEXT) FROM good_audits";
        let last: Option<String> = on_both!(self, pool => {
            sqlx::query_scalar(LAST).fetch_one(pool).await?
        });
        Ok(last.unwrap_or_default())
    }

    /// Number of segments to which so many units belong.
    pub async fn segments_with(&self, units: u64) -> Result<u64> {
        const SEGMENTS: &str = "SELECT count(*) FROM segments WHERE allocated = $1";
        self.count(SEGMENTS, i64::try_from(units)?).await
    }

    async fn count<'v, V>(&self, statement: &'static str, value: V) -> Result<u64>
    where
        V: 'v + Send + sqlx::Type<Postgres> + sqlx::Encode<'v, Postgres>,
        V: sqlx::Type<Sqlite> + sqlx::Encode<'v, Sqlite>,
    {
        let count: i64 = on_both!(self, pool => {
            let count = sqlx::query_scalar(statement).bind(value);
            count.fetch_one(pool).await?
        });
        Ok(count.try_into()?)
    }

    /// Makes every held order a paid one. Redis keeps no state of payments, so the audit stays
    /// good. One transaction: an audit meanwhile sees the orders and their segments change
    /// together.
    pub async fn pay_all(&self) -> Result<()> {
        const ORDERS: &str = "UPDATE orders SET state = 'confirmed', version = version + 1 \
                              WHERE state = 'held'";
        const SEGMENTS: &str = "UPDATE segments SET confirmed = confirmed + held, held = 0, \
                                version = version + 1 WHERE held > 0";
        on_both!(self, pool => {
            let mut transaction = pool.begin().await?;
            sqlx::query(ORDERS).execute(&mut *transaction).await?;
            sqlx::query(SEGMENTS).execute(&mut *transaction).await?;
            transaction.commit().await?;
        });
        Ok(())
    }

    /// Has every hold of an item, and every cart that is held, expire at this time, in milliseconds
    /// since 1970.
    pub async fn expire_at(&self, item: &str, ms: i64) -> Result<()> {
        let [holds, carts] = match self {
            Self::Postgres(_) => [
                "UPDATE orders SET version = version + 1, \
                 expires_at = to_timestamp($1::double precision / 1000) \
                 WHERE item = $2 AND state = 'held'",
                "UPDATE carts SET version = version + 1, \
                 expires_at = to_timestamp($1::double precision / 1000), \
                 due_at = to_timestamp($1::double precision / 1000) WHERE state = 'held'",
            ],
            Self::Sqlite(_) => [
                "UPDATE orders SET version = version + 1, expires_at = $1 \
                 WHERE item = $2 AND state = 'held'",
                "UPDATE carts SET version = version + 1, expires_at = $1, due_at = $1 \
                 WHERE state = 'held'",
            ],
        };
        on_both!(self, pool => {
            let mut transaction = pool.begin().await?;
            let holds = sqlx::query(holds).bind(ms).bind(item);
            holds.execute(&mut *transaction).await?;
            sqlx::query(carts).bind(ms).execute(&mut *transaction).await?;
            transaction.commit().await?;
        });
        Ok(())
    }

    /// Does now what the server would do later by itself, in the middle of a measurement.
    pub async fn tidy(&self) -> Result<()> {
        match self {
            Self::Postgres(pool) => {
                sqlx::query("VACUUM (ANALYZE)").execute(pool).await?;
                sqlx::query("CHECKPOINT").execute(pool).await?;
            }
            Self::Sqlite(pool) => {
                let checkpoint = sqlx::query("PRAGMA wal_checkpoint(PASSIVE)");
                checkpoint.execute(pool).await?;
            }
        }
        Ok(())
    }
}
