//! The last unit of an item, in a row of PostgreSQL, and two sellers of it. What several cases put their locks around.
//!
//! Each seller reads how many are left under its lock, and later writes one less: it decides by what it has read. With a token it first claims
//! the row, and then writes with token and version; the row refuses whoever has been superseded.

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use async_trait::async_trait;
use lock::{
    FencingToken,
    store::{Assignments, Claim, FencedTable, Write},
};
use sqlx::PgPool;

use crate::{
    evidence::Evidence,
    stage::Stage,
    timeline::{Doing, During, Event, Lane},
};

const ITEM: i64 = 1;

/// The item's row, and the orders.
pub(crate) struct Shelf {
    pool: PgPool,
    table: FencedTable,
}

/// What a seller has read, and decides by.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seen {
    left: i64,
    claimed: Option<(FencingToken, i64)>,
}

/// What became of a sale.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sale {
    Sold {
        left: i64,
    },
    SoldOut,
    /// The row has refused it: somebody else came after.
    Superseded,
}

impl Shelf {
    /// A new one, with one unit.
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

    /// The one that is there.
    pub(crate) async fn open(url: &str) -> Result<Self> {
        Ok(Self {
            pool: PgPool::connect(url).await?,
            table: FencedTable::builder("items").build()?,
        })
    }

    /// Claims the row if there is a token, and reads what is left. None: somebody with a later token was here.
    pub(crate) async fn read(&self, token: Option<FencingToken>) -> Result<Option<Seen>> {
        let claimed = match token {
            None => None,
            Some(token) => match self.table.claim(&self.pool, ITEM, token).await? {
                Claim::Claimed { version } => Some((token, version)),
                Claim::Superseded { .. } => return Ok(None),
                Claim::Missing => bail!("the item is gone"),
            },
        };
        let left = sqlx::query_scalar("SELECT stock FROM items WHERE id = $1")
            .bind(ITEM)
            .fetch_one(&self.pool)
            .await?;
        Ok(Some(Seen { left, claimed }))
    }

    /// Sells one of what was left when it was read.
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

    /// Orders that there are.
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
    /// Tries to get it, for a while. The token, if this lock has one; none at all if somebody else has the lock.
    async fn lock(&mut self) -> Result<Option<Option<FencingToken>>>;

    /// Gives it back.
    async fn unlock(&mut self) -> Result<()>;
}

/// Two sellers of the last unit. The first has the lock and has read that one is left; then the case lets something happen; then the second
/// wants the lock, and both sell, the first one first.
pub(super) struct TwoSellers<'a> {
    counter: Counter<'a>,
    first: Seller,
}

/// Where they sell.
pub(super) struct Counter<'a> {
    stage: &'a Stage,
    shelf: Shelf,
    /// Of every lock, in the story.
    lease: Duration,
}

/// A seller, and what it is at.
struct Seller {
    name: &'static str,
    lane: Lane,
    lock: Box<dyn Locking>,
    inside: Option<(During, Option<Seen>)>,
}

impl<'a> TwoSellers<'a> {
    /// The first one is inside when this returns.
    pub(super) async fn of(
        stage: &'a Stage,
        lease: Duration,
        lock: Box<dyn Locking>,
    ) -> Result<Self> {
        Counter::open(stage, lease).await?.first(lock).await
    }

    /// Now the second one wants the lock, and both sell. Who did not get the lock tries again when the other has given it back.
    pub(super) async fn and(self, lock: Box<dyn Locking>) -> Result<Evidence> {
        let Self { counter, mut first } = self;
        let mut second = Seller::new(counter.stage, "seller B", lock);
        let both = counter.serves(&mut second).await?;
        counter.sells(&mut first).await?;
        if both || counter.serves(&mut second).await? {
            counter.sells(&mut second).await?;
        }
        let timeline = &counter.stage.timeline;
        let evidence = Evidence::new()
            .sold(1, counter.shelf.orders().await?)
            .holders(timeline.holders_at_once());
        Ok(evidence
            .stuck(timeline.longest(Doing::Waiting))
            .judge_oversold())
    }
}

impl Seller {
    fn new(stage: &Stage, name: &'static str, lock: Box<dyn Locking>) -> Self {
        Self {
            name,
            lane: stage.timeline.lane(name),
            lock,
            inside: None,
        }
    }
}

impl<'a> Counter<'a> {
    /// One with a unit on its shelf.
    pub(super) async fn open(stage: &'a Stage, lease: Duration) -> Result<Self> {
        let shelf = Shelf::create(&stage.database().await?).await?;
        stage.timeline.stock(1);
        Ok(Self {
            stage,
            shelf,
            lease,
        })
    }

    /// The first seller is inside when this returns.
    pub(super) async fn first(self, lock: Box<dyn Locking>) -> Result<TwoSellers<'a>> {
        let mut first = Seller::new(self.stage, "seller A", lock);
        ensure!(
            self.serves(&mut first).await?,
            "nobody has the lock, and seller A does not get it"
        );
        Ok(TwoSellers {
            counter: self,
            first,
        })
    }

    /// Whether the seller gets the lock; it then reads what is left.
    async fn serves(&self, seller: &mut Seller) -> Result<bool> {
        let waiting = seller.lane.is(Doing::Waiting, "wants the lock");
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

    async fn sells(&self, seller: &mut Seller) -> Result<()> {
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
                lane.notes(Event::Harm, "sells the last unit once more");
                self.stage.timeline.stock(left);
            }
            Sale::Sold { left } => {
                lane.notes(Event::Sale, "sells the last unit");
                self.stage.timeline.stock(left);
            }
            Sale::SoldOut => lane.notes(Event::Refused, "sold out"),
            Sale::Superseded => lane.notes(Event::Refused, "the row refuses: superseded"),
        }
        Ok(())
    }
}

/// For a way that is to be harmless although its lock is broken: it proves nothing if the lock was not.
pub(super) fn was_broken(evidence: Evidence) -> Result<Evidence> {
    ensure!(
        evidence.holders_at_once == 2,
        "the schedule has not broken the lock"
    );
    Ok(evidence)
}
