//! What the ledger says, read from its tables past the service: a defect of the service must not hide itself.

use std::{collections::HashMap, time::Duration};

use anyhow::{Context, Result};
use sqlx::{
    PgPool, SqlitePool,
    postgres::PgPoolOptions,
    sqlite::{SqliteConnectOptions, SqlitePoolOptions},
};
use uuid::Uuid;

use crate::{shop::State, stage::LedgerServer};

const WITHIN: Duration = Duration::from_secs(2);

/// A row of an order.
#[derive(Clone, Debug)]
pub struct Row {
    /// Whose.
    pub buyer: String,
    /// How many units.
    pub quantity: u64,
    /// Where it stands.
    pub state: State,
    /// What paid it.
    pub payment: Option<String>,
}

/// The numbers of an item, of one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Numbers {
    /// Units that exist.
    pub stock: i64,
    /// Units of orders that are held or paid.
    pub sold: i64,
    /// Orders that are held.
    pub held_orders: i64,
    /// Returns that are pending.
    pub returns: i64,
    /// Transfers that are not done.
    pub transfers: i64,
}

/// The ledger's tables.
#[derive(Clone)]
pub enum View {
    /// Those of PostgreSQL.
    Postgres(PgPool),
    /// Those of SQLite.
    Sqlite(SqlitePool),
}

const ORDERS: &str = "SELECT id, buyer, quantity, state, payment FROM orders WHERE item = $1";
/// One statement, so one moment.
const NUMBERS: &str = "SELECT stock, \
    (SELECT CAST(coalesce(sum(quantity), 0) AS bigint) FROM orders WHERE item = $1 AND state IN ('held', 'confirmed')), \
    (SELECT count(*) FROM orders WHERE item = $1 AND state = 'held'), \
    (SELECT count(*) FROM returns WHERE item = $1), \
    (SELECT count(*) FROM transfers WHERE item = $1 AND state <> 'done') \
    FROM items WHERE id = $1";

/// Whoever has had a transaction open for long, what it does, and the locks that it has or waits for.
const OPEN_TRANSACTIONS: &str = "SELECT format('pid %s, %s, waits for %s %s, open for %s, locks %s, last: %s', a.pid, a.state, a.wait_event_type, \
        a.wait_event, now() - a.xact_start, \
        (SELECT string_agg(format('%s %s %s', l.locktype, l.mode, CASE WHEN l.granted THEN 'held' ELSE 'wanted' END), ', ') \
         FROM pg_locks l WHERE l.pid = a.pid AND l.locktype <> 'virtualxid'), left(a.query, 300)) \
    FROM pg_stat_activity a WHERE a.xact_start < now() - interval '1 second' AND a.pid <> pg_backend_pid()";

type OrderRow = (Uuid, String, i64, String, Option<String>);
type NumbersRow = (i64, i64, i64, i64, i64);

impl View {
    /// Opens nothing yet: the ledger may be made later.
    pub fn open(ledger: &LedgerServer) -> Result<Self> {
        Ok(match ledger {
            LedgerServer::Postgres { url, .. } => Self::Postgres(
                PgPoolOptions::new()
                    .max_connections(2)
                    .acquire_timeout(WITHIN)
                    .connect_lazy(url)?,
            ),
            LedgerServer::Sqlite { dir, .. } => {
                let options = SqliteConnectOptions::new()
                    .filename(dir.join("ledger.db"))
                    .busy_timeout(WITHIN);
                Self::Sqlite(
                    SqlitePoolOptions::new()
                        .max_connections(2)
                        .acquire_timeout(WITHIN)
                        .connect_lazy_with(options),
                )
            }
        })
    }

    /// Every order of an item.
    pub async fn orders(&self, item: &str) -> Result<HashMap<Uuid, Row>> {
        let rows: Vec<OrderRow> = match self {
            Self::Postgres(pool) => sqlx::query_as(ORDERS).bind(item).fetch_all(pool).await?,
            Self::Sqlite(pool) => sqlx::query_as(ORDERS).bind(item).fetch_all(pool).await?,
        };
        rows.into_iter().map(read).collect()
    }

    /// The numbers of an item.
    pub async fn numbers(&self, item: &str) -> Result<Numbers> {
        let row: Option<NumbersRow> = match self {
            Self::Postgres(pool) => {
                sqlx::query_as(NUMBERS)
                    .bind(item)
                    .fetch_optional(pool)
                    .await?
            }
            Self::Sqlite(pool) => {
                sqlx::query_as(NUMBERS)
                    .bind(item)
                    .fetch_optional(pool)
                    .await?
            }
        };
        let (stock, sold, held_orders, returns, transfers) =
            row.with_context(|| format!("the ledger has no item {item}"))?;
        Ok(Numbers {
            stock,
            sold,
            held_orders,
            returns,
            transfers,
        })
    }

    /// What has been open in the ledger for longer than anything should be, for whoever wonders why nothing goes on.
    pub async fn open_transactions(&self) -> Vec<String> {
        match self {
            Self::Postgres(pool) => sqlx::query_scalar(OPEN_TRANSACTIONS)
                .fetch_all(pool)
                .await
                .unwrap_or_else(|error| vec![error.to_string()]),
            Self::Sqlite(_) => Vec::new(),
        }
    }
}

fn read((id, buyer, quantity, state, payment): OrderRow) -> Result<(Uuid, Row)> {
    let state = serde_json::from_value(serde_json::Value::from(state))?;
    Ok((
        id,
        Row {
            buyer,
            quantity: quantity.try_into()?,
            state,
            payment,
        },
    ))
}
