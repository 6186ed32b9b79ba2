//! The last unit of an item, in a row of PostgreSQL, and two sellers of it. Several cases put their
//! locks around it.
//!
//! Each seller reads the stock under its lock, and later writes one less than it has read. With a
//! token it first claims the row, and then writes with token and version; the row refuses a
//! superseded seller.

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use async_trait::async_trait;
use lock::{
    FencingToken,
    store::{Assignments, Claim, FencedTable, Write},
};
use sqlx::PgPool;

use crate::{
    measurements::Measurements,
    test_env::TestEnv,
    timeline::{Doing, During, Event, Lane},
};

const ITEM: i64 = 1;

/// The item's row, and the orders.
pub(crate) struct Shelf {
    pool: PgPool,
    table: FencedTable,
}

/// State of the row at the read, on which a seller decides.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seen {
    left: i64,
    claimed: Option<(FencingToken, i64)>,
}

/// Outcome of a sale.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sale {
    Sold {
        left: i64,
    },
    SoldOut,
    /// The row has refused it, because a later holder has claimed the row.
    Superseded,
}

impl Shelf {
    /// Creates a row with one unit.
    pub(crate) async fn create(url: &str) -> Result<Self> {
        let shelf = Self::open(url).await?;
        sqlx::query("CREATE TABLE items (id BIGINT PRIMARY KEY, stock BIGINT NOT NULL)")
            .execute(&shelf.pool)
            .await?;
        for column in shelf.table.schema::<sqlx::Postgres>() {
            sqlx::query(sqlx::AssertSqlSafe(column))
                .execute(&shelf.pool)
                .await?;
        }
        sqlx::query("CREATE TABLE orders (seller TEXT NOT NULL)")
            .execute(&shelf.pool)
            .await?;
        sqlx::query("INSERT INTO items (id, stock) VALUES ($1, 1)")
            .bind(ITEM)
            .execute(&shelf.pool)
            .await?;
        Ok(shelf)
    }

    /// Opens the existing row.
    pub(crate) async fn open(url: &str) -> Result<Self> {
        Ok(Self {
            pool: PgPool::connect(url).await?,
            table: FencedTable::builder("items").build()?,
        })
    }

    /// Claims the row if there is a token, and reads the stock. Returns none if a later token has
    /// claimed it.
    pub(crate) async fn read(&self, token: Option<FencingToken>) -> Result<Option<Seen>> {
        let claimed = match token {
            None => None,
            Some(token) => match self.table.claim(&self.pool, ITEM, token).await? {
                Claim::Claimed { version } => Some((token, version)),
                Claim::Superseded { .. } => return Ok(None),
                Claim::Missing => bail!("the item's row is missing"),
            },
        };
        let left = sqlx::query_scalar("SELECT stock FROM items WHERE id = $1")
            .bind(ITEM)
            .fetch_one(&self.pool)
            .await?;
        Ok(Some(Seen { left, claimed }))
    }

    /// Sells one of the units that the seller has read.
    pub(crate) async fn sell(&self, seller: &str, seen: Seen) -> Result<Sale> {
        if seen.left == 0 {
            return Ok(Sale::SoldOut);
        }
        let left = seen.left - 1;
        let mut sale = self.pool.begin().await?;
        match seen.claimed {
            None => {
                sqlx::query("UPDATE items SET stock = $1, version = version + 1 WHERE id = $2")
                    .bind(left)
                    .bind(ITEM)
                    .execute(&mut *sale)
                    .await?;
            }
            Some((token, version)) => {
                let stock = Assignments::new().set("stock", left);
                match self
                    .table
                    .write(&mut *sale, ITEM, token, version, stock)
                    .await?
                {
                    Write::Applied { .. } => {}
                    _ => return Ok(Sale::Superseded),
                }
            }
        }
        sqlx::query("INSERT INTO orders (seller) VALUES ($1)")
            .bind(seller)
            .execute(&mut *sale)
            .await?;
        sale.commit().await?;
        Ok(Sale::Sold { left })
    }

    /// Counts the orders.
    pub(crate) async fn orders(&self) -> Result<u64> {
        let orders: i64 = sqlx::query_scalar("SELECT count(*) FROM orders")
            .fetch_one(&self.pool)
            .await?;
        Ok(u64::try_from(orders)?)
    }
}

/// A seller's lock.
#[async_trait]
pub(super) trait Locking: Send {
    /// Tries to lock for a while. Returns none if another holder has the lock; otherwise the token,
    /// if this lock has one.
    async fn lock(&mut self) -> Result<Option<Option<FencingToken>>>;

    /// Releases the lock.
    async fn unlock(&mut self) -> Result<()>;
}

/// Two sellers of the last unit. The first holds the lock and has read that one unit is left. Then
/// the case injects its fault. Then the second requests the lock, and both sell, the first one
/// first.
pub(super) struct TwoSellers<'a> {
    sale_env: LastUnit<'a>,
    first: Seller,
}

/// The unit, and the settings of its sellers.
pub(super) struct LastUnit<'a> {
    env: &'a TestEnv,
    shelf: Shelf,
    /// Lease of every lock, in scenario time.
    lease: Duration,
}

/// A seller and its activity.
struct Seller {
    name: &'static str,
    lane: Lane,
    lock: Box<dyn Locking>,
    inside: Option<(During, Option<Seen>)>,
}

impl<'a> TwoSellers<'a> {
    /// Starts with the first seller, which is inside when this returns.
    pub(super) async fn of(
        env: &'a TestEnv,
        lease: Duration,
        lock: Box<dyn Locking>,
    ) -> Result<Self> {
        LastUnit::open(env, lease).await?.first(lock).await
    }

    /// Lets the second seller request the lock, and both sell. A seller that did not get the lock
    /// retries after the other has released it.
    pub(super) async fn and(self, lock: Box<dyn Locking>) -> Result<Measurements> {
        let Self {
            sale_env,
            mut first,
        } = self;
        let mut second = Seller::new(sale_env.env, "seller B", lock);
        let both = sale_env.enter(&mut second).await?;
        sale_env.sell(&mut first).await?;
        if both || sale_env.enter(&mut second).await? {
            sale_env.sell(&mut second).await?;
        }
        let sold = sale_env.shelf.orders().await?;
        Ok(Measurements::of(&sale_env.env.timeline)
            .sold(1, sold)
            .judge_oversold())
    }
}

impl Seller {
    fn new(env: &TestEnv, name: &'static str, lock: Box<dyn Locking>) -> Self {
        Self {
            name,
            lane: env.timeline.lane(name),
            lock,
            inside: None,
        }
    }
}

impl<'a> LastUnit<'a> {
    /// Creates the unit.
    pub(super) async fn open(env: &'a TestEnv, lease: Duration) -> Result<Self> {
        let shelf = Shelf::create(&env.database().await?).await?;
        env.timeline.stock(1);
        Ok(Self { env, shelf, lease })
    }

    /// Starts the first seller, which is inside when this returns.
    pub(super) async fn first(self, lock: Box<dyn Locking>) -> Result<TwoSellers<'a>> {
        let mut first = Seller::new(self.env, "seller A", lock);
        ensure!(
            self.enter(&mut first).await?,
            "seller A did not get a free lock"
        );
        Ok(TwoSellers {
            sale_env: self,
            first,
        })
    }

    /// Lets the seller lock and read the stock, and returns whether it got the lock.
    async fn enter(&self, seller: &mut Seller) -> Result<bool> {
        let waiting = seller.lane.is(Doing::Waiting, "waits for the lock");
        let locked = seller.lock.lock().await?;
        drop(waiting);
        let Some(token) = locked else {
            seller.lane.notes(Event::Refused, "the lock is held");
            return Ok(false);
        };
        let label = token.map_or_else(
            || "has the lock".to_owned(),
            |token| format!("token {token}"),
        );
        let inside = seller.lane.holds(label, self.lease);
        let seen = self.shelf.read(token).await?;
        seller.lane.notes(
            Event::Note,
            seen.map_or_else(
                || "superseded".to_owned(),
                |seen| format!("reads: {} left", seen.left),
            ),
        );
        seller.inside = Some((inside, seen));
        Ok(true)
    }

    async fn sell(&self, seller: &mut Seller) -> Result<()> {
        let Some((inside, seen)) = seller.inside.take() else {
            return Ok(());
        };
        let sale = match seen {
            Some(seen) => self.shelf.sell(seller.name, seen).await?,
            None => Sale::Superseded,
        };
        self.note(&seller.lane, sale).await?;
        drop(inside);
        seller.lock.unlock().await
    }

    async fn note(&self, lane: &Lane, sale: Sale) -> Result<()> {
        match sale {
            Sale::Sold { left } if self.shelf.orders().await? > 1 => {
                lane.notes(Event::Harm, "sell the last unit again");
                self.env.timeline.stock(left);
            }
            Sale::Sold { left } => {
                lane.notes(Event::Sale, "sell the last unit");
                self.env.timeline.stock(left);
            }
            Sale::SoldOut => lane.notes(Event::Refused, "sold out"),
            Sale::Superseded => lane.notes(Event::Refused, "the row refuses: superseded"),
        }
        Ok(())
    }
}

/// Requires that the lock was broken. A variant that is to be harmless with a broken lock proves
/// nothing if the lock held.
pub(super) fn require_broken_lock(measurements: Measurements) -> Result<Measurements> {
    ensure!(
        measurements.holders_at_once == 2,
        "expected two concurrent holders: the schedule has not broken the lock"
    );
    Ok(measurements)
}
