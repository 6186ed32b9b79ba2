//! Reads the ledger's tables directly, so that a defect of the service cannot hide itself.

use std::{
    collections::{BTreeMap, HashMap},
    path::Path,
};

use anyhow::{Context, Result};
use client::{CartState, OrderState};
use sqlx::{
    PgPool, SqlitePool,
    postgres::PgPoolOptions,
    sqlite::{SqliteConnectOptions, SqlitePoolOptions},
};
use uuid::Uuid;

use crate::returns::Returned;

/// A row of the table `orders`.
#[derive(Clone, Debug)]
pub struct OrderRow {
    /// The name of the buyer.
    pub buyer: String,
    /// Number of units.
    pub quantity: u64,
    /// Where the order is in its life.
    pub state: OrderState,
    /// The payment that paid the order.
    pub payment: Option<String>,
}

/// A row of the table `carts`, with its lines.
#[derive(Clone, Debug)]
pub struct CartRow {
    /// The name of the buyer.
    pub buyer: String,
    /// Where the cart is in its life.
    pub state: CartState,
    /// The payment that paid the cart.
    pub payment: Option<String>,
    /// Its orders.
    pub lines: Vec<CartLineRow>,
}

/// A row of the table `cart_lines`.
#[derive(Clone, Debug)]
pub struct CartLineRow {
    /// The name of the order.
    pub order: Uuid,
    /// The name of the item.
    pub item: String,
    /// Number of units.
    pub quantity: u64,
}

impl CartRow {
    /// The units of each item.
    pub fn units(&self) -> BTreeMap<&str, u64> {
        let lines = self.lines.iter();
        lines.map(|line| (&*line.item, line.quantity)).collect()
    }
}

/// The numbers of an item, in one snapshot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ItemTotals {
    /// Units that exist.
    pub stock: i64,
    /// Units of orders that are held or paid.
    pub sold: i64,
    /// Number of held orders.
    pub held_orders: i64,
    /// Number of pending returns.
    pub returns: i64,
    /// Number of transfers that are not done.
    pub transfers: i64,
    /// 1: what has changed since the last full audit was compared, and good.
    pub compared_changes: i64,
}

/// The ledger's tables.
#[derive(Clone)]
pub enum LedgerView {
    /// In PostgreSQL.
    Postgres(PgPool),
    /// In SQLite.
    Sqlite(SqlitePool),
}

const ORDERS: &str = "SELECT id, buyer, quantity, state, payment FROM orders WHERE item = $1";
/// Orders that have ended, of buyers without a pending return, in one snapshot. A buyer's other
/// returns count, because an order that was paid late has its units under another id.
const RETURNED: &str = "SELECT o.id, o.attempt FROM orders o \
    WHERE o.item = $1 AND o.state IN ('expired', 'cancelled', 'refunded') \
        AND NOT EXISTS (SELECT 1 FROM returns r WHERE r.item = o.item AND r.buyer = o.buyer)";
/// The carts that have a line of the item, with all their lines.
const CARTS: &str = "SELECT c.id, c.buyer, c.state, c.payment, l.order_id, l.item, l.quantity \
    FROM carts c JOIN cart_lines l ON l.cart = c.id \
    WHERE c.id IN (SELECT cart FROM cart_lines WHERE item = $1)";
/// Lines of the item whose order does not agree with the cart, in one snapshot. A cart and its
/// orders have the same names of states. Lines of an expired cart are held while it is being paid
/// late.
const DIVIDED: &str = "SELECT count(*) \
    FROM cart_lines l JOIN carts c ON c.id = l.cart LEFT JOIN orders o ON o.id = l.order_id \
    WHERE l.item = $1 AND CASE WHEN c.state IN ('placing', 'failed') \
        THEN o.state IN ('confirmed', 'refund_due', 'refunded') \
        ELSE o.state IS NULL OR (o.state <> c.state AND NOT (c.state = 'expired' AND o.state = 'held')) END";
/// A single statement, so all numbers belong to one snapshot.
const TOTALS: &str = "SELECT stock, \
    (SELECT CAST(coalesce(sum(quantity), 0) AS bigint) FROM orders \
        WHERE item = $1 AND state IN ('held', 'confirmed')), \
    (SELECT count(*) FROM orders WHERE item = $1 AND state = 'held'), \
    (SELECT count(*) FROM returns WHERE item = $1), \
    (SELECT count(*) FROM transfers WHERE item = $1 AND state <> 'done'), \
    (SELECT count(*) FROM order_sums s JOIN good_audits g ON g.item = s.item AND g.at < s.at \
        WHERE s.item = $1) \
    FROM items WHERE id = $1";

/// Transactions that have been open for more than a second, with their last statement and the locks
/// that they hold or wait for.
const OPEN_TRANSACTIONS: &str = "SELECT format('pid %s, %s, waits for %s %s, open for %s, \
        locks %s, last: %s', a.pid, a.state, a.wait_event_type, \
        a.wait_event, now() - a.xact_start, \
        (SELECT string_agg(format('%s %s %s', l.locktype, l.mode, \
            CASE WHEN l.granted THEN 'held' ELSE 'wanted' END), ', ') \
         FROM pg_locks l WHERE l.pid = a.pid AND l.locktype <> 'virtualxid'), left(a.query, 300)) \
    FROM pg_stat_activity a \
    WHERE a.xact_start < now() - interval '1 second' AND a.pid <> pg_backend_pid()";

type OrderColumns = (Uuid, String, i64, String, Option<String>);
type CartColumns = (Uuid, String, String, Option<String>, Uuid, String, i64);
type TotalsColumns = (i64, i64, i64, i64, i64, i64);

/// Runs a statement about an item. The pools of the two databases have types of their own.
macro_rules! of_item {
    ($ledger:ident.$fetch:ident($query:ident, $statement:ident, $item:ident)) => {
        match $ledger {
            Self::Postgres(pool) => sqlx::$query($statement).bind($item).$fetch(pool).await?,
            Self::Sqlite(pool) => sqlx::$query($statement).bind($item).$fetch(pool).await?,
        }
    };
}

impl LedgerView {
    /// Connects to PostgreSQL with the first query.
    pub fn postgres(url: &str) -> Result<Self> {
        let pool = PgPoolOptions::new()
            .max_connections(2)
            .acquire_timeout(testbed::timeout())
            .connect_lazy(url)?;
        Ok(Self::Postgres(pool))
    }

    /// Opens the SQLite file with the first query. It need not exist yet.
    pub fn sqlite(file: &Path) -> Self {
        let options = SqliteConnectOptions::new()
            .filename(file)
            .busy_timeout(testbed::timeout());
        Self::Sqlite(
            SqlitePoolOptions::new()
                .max_connections(2)
                .acquire_timeout(testbed::timeout())
                .connect_lazy_with(options),
        )
    }

    /// Every order of an item.
    pub async fn orders(&self, item: &str) -> Result<HashMap<Uuid, OrderRow>> {
        let rows: Vec<OrderColumns> = of_item!(self.fetch_all(query_as, ORDERS, item));
        rows.into_iter().map(read_order).collect()
    }

    /// The orders of an item that have ended, and whose units are back at their segments.
    pub async fn returned(&self, item: &str) -> Result<Returned> {
        let orders: Vec<(Uuid, i16)> = of_item!(self.fetch_all(query_as, RETURNED, item));
        Ok(orders.into_iter().collect())
    }

    /// Every cart that has a line of an item.
    pub async fn carts(&self, item: &str) -> Result<HashMap<Uuid, CartRow>> {
        let rows: Vec<CartColumns> = of_item!(self.fetch_all(query_as, CARTS, item));
        let mut carts = HashMap::new();
        for (id, buyer, state, payment, order, item, quantity) in rows {
            let cart = CartRow {
                buyer,
                state: serde_json::from_value(state.into())?,
                payment,
                lines: Vec::new(),
            };
            let cart = carts.entry(id).or_insert(cart);
            cart.lines.push(CartLineRow {
                order,
                item,
                quantity: quantity.try_into()?,
            });
        }
        Ok(carts)
    }

    /// Number of lines of an item whose order is in another state than the cart.
    pub async fn divided_lines(&self, item: &str) -> Result<i64> {
        Ok(of_item!(self.fetch_one(query_scalar, DIVIDED, item)))
    }

    /// The numbers of an item.
    pub async fn totals(&self, item: &str) -> Result<ItemTotals> {
        let row: Option<TotalsColumns> = of_item!(self.fetch_optional(query_as, TOTALS, item));
        let (stock, sold, held_orders, returns, transfers, compared_changes) =
            row.with_context(|| format!("the ledger has no item {item}"))?;
        Ok(ItemTotals {
            stock,
            sold,
            held_orders,
            returns,
            transfers,
            compared_changes,
        })
    }

    /// Transactions that have been open for more than a second, to explain why nothing progresses.
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

fn read_order((id, buyer, quantity, state, payment): OrderColumns) -> Result<(Uuid, OrderRow)> {
    let state = serde_json::from_value(serde_json::Value::from(state))?;
    let row = OrderRow {
        buyer,
        quantity: quantity.try_into()?,
        state,
        payment,
    };
    Ok((id, row))
}
