//! Where a test records: a SQLite file of its own, or a database of its own on the Postgres server that all tests of the binary share.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicU32, Ordering},
};

use domain::{
    BuyerId, Change, Durability, Entry, EntryId, IdempotencyKey, Item, ItemId, ItemState, OrderId,
    OrderState, Quantity, SegmentKey, TakenOrder, Window,
};
use jiff::Timestamp;
use ledger::{
    ByOrders, Created, Ledger, LedgerError, Recorded, SegmentReplay, SegmentRow, Transition,
};
use sqlx::{AssertSqlSafe, Connection, PgConnection, SqliteConnection, migrate::Migrator};
use tempfile::TempDir;
use testbed::Postgres;
use tokio::sync::OnceCell;

/// Lives as long as the process, and no longer: `testbed` sees to that.
static POSTGRES: OnceCell<Postgres> = OnceCell::const_new();

/// Makes two tests of every function: on SQLite and on Postgres.
macro_rules! on_both {
    ($($name:ident),+ $(,)?) => {
        mod sqlite {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                $crate::site::run($crate::site::Site::sqlite().await, super::$name).await;
            })+
        }

        mod postgres {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                $crate::site::run($crate::site::Site::postgres().await, super::$name).await;
            })+
        }
    };
}
pub(crate) use on_both;

/// Runs a test and then audits every item that it created.
pub async fn run<T: AsyncFnOnce(&Site)>(site: Site, test: T) {
    test(&site).await;
    site.audit().await;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Sqlite,
    Postgres,
}

/// A database.
pub struct Site {
    pub kind: Kind,
    pub url: String,
    _folder: Option<TempDir>,
    items: Mutex<Vec<ItemId>>,
}

impl Site {
    pub async fn sqlite() -> Self {
        let site = Self::empty_sqlite();
        site.ledger().await.migrate().await.unwrap();
        site
    }

    pub async fn postgres() -> Self {
        let site = Self::empty_postgres().await;
        site.ledger().await.migrate().await.unwrap();
        site
    }

    /// Without a schema.
    pub fn empty_sqlite() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite://{}/deeper/ledger.db", folder.path().display());
        Self {
            kind: Kind::Sqlite,
            url,
            _folder: Some(folder),
            items: Mutex::default(),
        }
    }

    /// Without a schema.
    pub async fn empty_postgres() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let server = POSTGRES.get_or_try_init(Postgres::start).await.unwrap();
        let name = format!("test_{}", COUNT.fetch_add(1, Ordering::Relaxed));
        Self::at(server.create_database(&name).await.unwrap())
    }

    /// A Postgres database that is there already.
    pub fn at(url: String) -> Self {
        Self {
            kind: Kind::Postgres,
            url,
            _folder: None,
            items: Mutex::default(),
        }
    }

    /// One more process, as it were.
    pub async fn ledger(&self) -> Arc<dyn Ledger> {
        ledger::connect(&self.url, 4).await.unwrap()
    }

    pub async fn create(&self, ledger: &dyn Ledger, name: &str, stock: u64, segments: u16) -> Item {
        match self.try_create(ledger, &item(name, stock, segments)).await {
            Created::New(item) => item,
            other => panic!("{other:?}"),
        }
    }

    /// For orders of any size at any segment.
    pub async fn create_unlimited(
        &self,
        ledger: &dyn Ledger,
        name: &str,
        stock: u64,
        segments: u16,
    ) -> Item {
        match self
            .try_create(
                ledger,
                &Item {
                    limit_per_buyer: None,
                    ..item(name, stock, segments)
                },
            )
            .await
        {
            Created::New(item) => item,
            other => panic!("{other:?}"),
        }
    }

    pub async fn try_create(&self, ledger: &dyn Ledger, item: &Item) -> Created {
        let created = ledger.create_item(item).await.unwrap();
        self.items.lock().unwrap().push(item.id.clone());
        created
    }

    /// Runs a statement past the ledger.
    pub async fn sql(&self, sql: &str) -> Result<u64, sqlx::Error> {
        let sql = AssertSqlSafe(sql);
        match self.kind {
            Kind::Sqlite => Ok(sqlx::query(sql)
                .execute(&mut SqliteConnection::connect(&self.url).await?)
                .await?
                .rows_affected()),
            Kind::Postgres => Ok(sqlx::query(sql)
                .execute(&mut PgConnection::connect(&self.url).await?)
                .await?
                .rows_affected()),
        }
    }

    /// The schema as it was after this migration.
    pub async fn migrate_to(&self, version: i64) {
        match self.kind {
            Kind::Sqlite => {
                let mut connection = SqliteConnection::connect(&self.url).await.unwrap();
                up_to(version, sqlx::migrate!("../../migrations/sqlite"))
                    .run_direct(None, &mut connection, false)
                    .await
                    .unwrap();
            }
            Kind::Postgres => {
                let mut connection = PgConnection::connect(&self.url).await.unwrap();
                up_to(version, sqlx::migrate!("../../migrations/postgres"))
                    .run_direct(None, &mut connection, false)
                    .await
                    .unwrap();
            }
        }
    }

    /// Every unit is accounted for, the long way and the short way.
    pub async fn audit(&self) {
        let items = std::mem::take(&mut *self.items.lock().unwrap());
        for item in items {
            self.audit_now(&item).await;
        }
    }

    /// So it is in the middle of a test.
    pub async fn audit_now(&self, item: &ItemId) {
        assert_identity(&self.ledger().await.totals(item).await.unwrap().unwrap());
    }
}

fn up_to(version: i64, all: Migrator) -> Migrator {
    let migrations = all
        .iter()
        .filter(|migration| migration.version <= version)
        .cloned()
        .collect();
    Migrator { migrations, ..all }
}

pub fn assert_identity(totals: &ledger::ItemTotals) {
    for (row, by_orders) in totals.segments.iter().zip(&totals.by_orders) {
        assert_eq!(
            row.available + row.held + row.confirmed + row.returning,
            row.allocated,
            "{}",
            row.key
        );
        let counted = ByOrders {
            held: row.held,
            confirmed: row.confirmed,
            returning: row.returning,
        };
        assert_eq!(
            counted, *by_orders,
            "{}: the counters and the sums",
            row.key
        );
    }
    let allocated: u64 = totals.segments.iter().map(|row| row.allocated).sum();
    assert_eq!(allocated + totals.in_transit, totals.item.stock);
    assert_eq!(totals.segments.len(), usize::from(totals.item.segments));
}

pub fn item(name: &str, stock: u64, segments: u16) -> Item {
    Item {
        id: ItemId::new(name).unwrap(),
        title: "Vase, 花瓶".into(),
        stock,
        price_cents: 1999,
        currency: "EUR".into(),
        limit_per_buyer: Some(Quantity::new(2).unwrap()),
        segments,
        window: Window::default(),
        hold_seconds: 600,
        durability: Durability::Recorded,
        state: ItemState::Open,
        epoch: 1,
        version: 1,
    }
}

pub fn segment(item: &Item, segment: u16) -> SegmentKey {
    SegmentKey {
        item: item.id.clone(),
        segment,
    }
}

pub fn id(ms: u64, seq: u64) -> EntryId {
    EntryId { ms, seq }
}

/// The order that the n-th buyer of an item means by the n-th key.
pub fn order_id(item: &Item, n: usize) -> OrderId {
    order(item, n, 1).id
}

/// The only order of the n-th buyer.
pub fn order(item: &Item, n: usize, units: u32) -> TakenOrder {
    order_of(item, &BuyerId::new(format!("buyer-{n}")).unwrap(), n, units)
}

/// One of a buyer's orders, by its key.
pub fn order_of(item: &Item, buyer: &BuyerId, key: usize, units: u32) -> TakenOrder {
    let key = IdempotencyKey::new(format!("key-{key}")).unwrap();
    TakenOrder {
        id: OrderId::derive(&item.id, item.id.tag(), buyer, &key),
        buyer: buyer.clone(),
        quantity: Quantity::new(units).unwrap(),
    }
}

pub fn opened(item: &Item, segment: u16) -> Entry {
    Entry {
        id: id(1, 0),
        fingerprint: 1,
        change: Change::Opened {
            units: item.share(segment),
            epoch: 1,
        },
    }
}

pub fn taken(id: EntryId, orders: Vec<TakenOrder>) -> Entry {
    let expires_at = Timestamp::from_millisecond(1_800_000_000_123).unwrap();
    Entry {
        id,
        fingerprint: -(id.ms as i64),
        change: Change::Taken { expires_at, orders },
    }
}

/// Records the changes as the next entries of the segment, behind the one that opens it if there is none yet.
pub async fn happen(
    ledger: &dyn Ledger,
    key: &SegmentKey,
    changes: impl IntoIterator<Item = Change>,
) -> Result<Recorded, LedgerError> {
    let row = row(ledger, key).await;
    let opened = row.checkpoint.is_none().then_some(Change::Opened {
        units: row.allocated,
        epoch: 1,
    });
    let first = row.checkpoint.map_or(1, |checkpoint| checkpoint.ms + 1);
    let changes = opened.into_iter().chain(changes).zip(first..);
    record(
        ledger,
        key,
        changes
            .map(|(change, ms)| Entry {
                id: id(ms, 0),
                fingerprint: ms as i64,
                change,
            })
            .collect(),
    )
    .await
}

/// A batch that took, with holds that are over at once.
pub fn take(orders: impl IntoIterator<Item = TakenOrder>) -> Change {
    Change::Taken {
        expires_at: Timestamp::from_millisecond(1_700_000_000_000).unwrap(),
        orders: orders.into_iter().collect(),
    }
}

/// A batch that gave back.
pub fn release(orders: impl IntoIterator<Item = TakenOrder>) -> Change {
    Change::Released {
        orders: orders.into_iter().collect(),
    }
}

/// The order under the id of a retake.
pub fn again(order: TakenOrder, attempt: u8) -> TakenOrder {
    TakenOrder {
        id: order.id.retake(attempt),
        ..order
    }
}

/// Makes one transition of the order as it is.
pub async fn step(ledger: &dyn Ledger, id: OrderId, to: OrderState) -> Option<domain::Order> {
    let order = ledger.order(id).await.unwrap().unwrap();
    ledger
        .transition(&[Transition {
            order,
            to,
            payment: None,
        }])
        .await
        .unwrap()
        .remove(0)
}

/// A row's available, held, confirmed and returning units.
pub async fn counters(ledger: &dyn Ledger, key: &SegmentKey) -> [u64; 4] {
    let row = row(ledger, key).await;
    [row.available, row.held, row.confirmed, row.returning]
}

/// What of `log` the row has not recorded, `at_most` entries.
pub fn rest(row: &SegmentRow, log: &[Entry], at_most: usize) -> Vec<Entry> {
    log.iter()
        .filter(|entry| {
            row.checkpoint
                .is_none_or(|checkpoint| entry.id > checkpoint)
        })
        .take(at_most)
        .cloned()
        .collect()
}

/// Claims the segment and records the entries.
pub async fn record(
    ledger: &dyn Ledger,
    key: &SegmentKey,
    entries: Vec<Entry>,
) -> Result<Recorded, LedgerError> {
    let claim = ledger
        .claim(std::slice::from_ref(key), 1)
        .await?
        .expect("nobody else holds it");
    let row = claim.rows()[0].clone();
    let mut recorded = claim.record(vec![SegmentReplay { row, entries }]).await?;
    assert_eq!(recorded.len(), 1);
    Ok(recorded.remove(0))
}

pub async fn row(ledger: &dyn Ledger, key: &SegmentKey) -> SegmentRow {
    ledger
        .segments(&key.item)
        .await
        .unwrap()
        .swap_remove(key.segment.into())
}

pub async fn state(ledger: &dyn Ledger, order: OrderId) -> Option<OrderState> {
    ledger.order(order).await.unwrap().map(|order| order.state)
}

/// Waits for something that comes soon, but not at once.
pub async fn eventually<T>(what: &str, mut happened: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
    loop {
        if let Some(found) = happened().await {
            return found;
        }
        assert!(
            std::time::Instant::now() < deadline,
            "{what} did not happen"
        );
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}
