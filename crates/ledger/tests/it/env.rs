//! A database for each test: a SQLite file, or a database on the PostgreSQL server that all tests
//! of the binary share.

use std::{
    ops::Deref,
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};

use domain::{
    BuyerId, Cart, CartId, CartLine, CartState, Change, Entry, EntryId, Item, ItemId, OrderId,
    OrderState, Quantity, SegmentKey, TakenOrder,
};
use jiff::Timestamp;
use ledger::{
    ByOrders, CartStep, Changed, Claim, Created, CreatedCart, ItemChange, ItemScope, Ledger,
    LedgerError, PendingReturn, Recorded, Repair, SegmentReplay, SegmentRow, StockChange,
    Transition,
};
use sqlx::{Connection, PgConnection, SqliteConnection, migrate::Migrator};
pub use testkit::items::segment;
use testkit::{Backend, Database, buyer, items};
use uuid::Uuid;

/// Runs a test and then audits every item that it created.
pub async fn run<T: AsyncFnOnce(&TestEnv)>(backend: Backend, test: T) {
    let env = TestEnv::new(backend).await;
    test(&env).await;
    env.audit().await;
}

/// A database, the ledger in it, and the items that a test has created there. It stands for its
/// ledger: a test says `env.order(id)`, and hands `env` to what takes a ledger.
pub struct TestEnv {
    pub backend: Backend,
    ledger: Option<Arc<dyn Ledger>>,
    database: Database,
    items: Mutex<Vec<ItemId>>,
}

impl Deref for TestEnv {
    type Target = dyn Ledger;

    fn deref(&self) -> &Self::Target {
        self.ledger.as_deref().expect("a ledger that was opened")
    }
}

/// Whatever stands for a ledger: an environment, or the ledger of another process.
pub trait AnyLedger: Deref<Target = dyn Ledger> {}

impl<T: Deref<Target = dyn Ledger>> AnyLedger for T {}

impl TestEnv {
    /// An environment with the ledger's schema and a ledger.
    pub async fn new(backend: Backend) -> Self {
        let env = Self::unopened(backend).await;
        Self {
            ledger: Some(env.ledger().await),
            ..env
        }
    }

    /// An environment with the ledger's schema. The test opens the only ledger.
    pub async fn unopened(backend: Backend) -> Self {
        Self::at(Database::new(backend).await)
    }

    /// An environment without a schema.
    pub async fn empty(backend: Backend) -> Self {
        Self::at(Database::empty(backend).await)
    }

    pub fn at(database: Database) -> Self {
        Self {
            backend: database.backend,
            ledger: None,
            database,
            items: Mutex::default(),
        }
    }

    pub fn url(&self) -> &str {
        &self.database.url
    }

    /// A new ledger with its own connections, as another process would have.
    pub async fn ledger(&self) -> Arc<dyn Ledger> {
        self.database.ledger().await
    }

    /// A new ledger whose statements can be counted.
    pub async fn ledger_of_one_connection(&self) -> Arc<dyn Ledger> {
        self.database.ledger_of_one_connection().await
    }

    /// Creates an item with a limit of two units for each buyer.
    pub async fn create(&self, name: &str, stock: u64, segments: u16) -> Item {
        self.create_by(self, &item(name, stock, segments)).await
    }

    /// Creates an item without a limit, so that a test may place any order in any segment.
    pub async fn create_unlimited(&self, name: &str, stock: u64, segments: u16) -> Item {
        self.create_by(self, &unlimited(name, stock, segments))
            .await
    }

    /// Creates the item by this ledger, which may be another one than that of the environment.
    pub async fn create_by(&self, ledger: &impl AnyLedger, item: &Item) -> Item {
        match self.try_create_by(ledger, item).await {
            Created::New(item) => item,
            other => panic!("{other:?}"),
        }
    }

    pub async fn try_create(&self, item: &Item) -> Created {
        self.try_create_by(self, item).await
    }

    pub async fn try_create_by(&self, ledger: &impl AnyLedger, item: &Item) -> Created {
        let created = ledger.create_item(item).await.unwrap();
        self.items.lock().unwrap().push(item.id.clone());
        created
    }

    /// An admin changes the item, whatever its version.
    pub async fn change(&self, item: &ItemId, change: &ItemChange) -> Changed {
        let changed = self.change_item(item, change, None, "admin").await;
        changed.unwrap()
    }

    /// An admin changes the item, if it has this version.
    pub async fn change_at(
        &self,
        item: &ItemId,
        change: &ItemChange,
        version: Option<u64>,
    ) -> Changed {
        let changed = self.change_item(item, change, version, "admin");
        changed.await.unwrap()
    }

    /// An admin adds or withdraws units, whatever the version of the item.
    pub async fn change_units(&self, item: &ItemId, change: &StockChange) -> Changed {
        let changed = self.change_stock(item, change, None, "admin").await;
        changed.unwrap()
    }

    /// An admin adds or withdraws units, if the item has this version.
    pub async fn change_units_at(
        &self,
        item: &ItemId,
        change: &StockChange,
        version: Option<u64>,
    ) -> Changed {
        let changed = self.change_stock(item, change, version, "admin");
        changed.await.unwrap()
    }

    /// A claim of this segment, if nobody else has one.
    pub async fn claim_one(&self, key: &SegmentKey) -> Option<Box<dyn Claim>> {
        let claim = self.claim(std::slice::from_ref(key), 1).await;
        claim.unwrap()
    }

    /// A repair of this segment.
    pub async fn repair(&self, key: &SegmentKey, token: u64) -> Box<dyn Repair> {
        let repair = self
            .claim_for_repair(std::slice::from_ref(key), token)
            .await;
        repair.unwrap()
    }

    /// Executes a statement without the ledger.
    pub async fn sql(&self, sql: &str) -> u64 {
        let done = self.try_sql(sql).await;
        done.unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    /// As `sql`, of a statement that the database may refuse.
    pub async fn try_sql(&self, sql: &str) -> Result<u64, sqlx::Error> {
        self.database.execute(sql).await
    }

    /// Creates the schema as it was after this migration.
    pub async fn migrate_to(&self, version: i64) {
        match self.backend {
            Backend::Sqlite => {
                let mut connection = SqliteConnection::connect(self.url()).await.unwrap();
                up_to(version, migrations("sqlite").await)
                    .run_direct(None, &mut connection, false)
                    .await
                    .unwrap();
            }
            Backend::Postgres => {
                let mut connection = PgConnection::connect(self.url()).await.unwrap();
                up_to(version, migrations("postgres").await)
                    .run_direct(None, &mut connection, false)
                    .await
                    .unwrap();
            }
        }
    }

    /// Asserts the conservation invariant of every item, by counters and by orders.
    pub async fn audit(&self) {
        let items = std::mem::take(&mut *self.items.lock().unwrap());
        for item in items {
            self.audit_now(&item).await;
        }
    }

    /// The audit of one item, in the middle of a test.
    pub async fn audit_now(&self, item: &ItemId) {
        assert_identity(&self.ledger().await.totals(item).await.unwrap().unwrap());
    }
}

async fn migrations(database: &str) -> Migrator {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../migrations");
    Migrator::new(folder.join(database)).await.unwrap()
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

/// An item with a limit of two units for each buyer.
pub fn item(name: &str, stock: u64, segments: u16) -> Item {
    Item {
        limit_per_buyer: Some(Quantity::new(2).unwrap()),
        ..items::item(ItemId::new(name).unwrap(), stock, segments)
    }
}

/// An item without a limit.
pub fn unlimited(name: &str, stock: u64, segments: u16) -> Item {
    items::item(ItemId::new(name).unwrap(), stock, segments)
}

pub fn id(ms: u64, seq: u64) -> EntryId {
    EntryId { ms, seq }
}

/// Id of the order of the n-th buyer under the n-th key.
pub fn order_id(item: &Item, n: usize) -> OrderId {
    order(item, n, 1).id
}

/// The order of the n-th buyer under the n-th key.
pub fn order(item: &Item, n: usize, units: u32) -> TakenOrder {
    order_of(item, &buyer(n), n, units)
}

/// The order of a buyer under a key.
pub fn order_of(item: &Item, buyer: &BuyerId, key: usize, units: u32) -> TakenOrder {
    TakenOrder {
        id: items::order_id(item, buyer, &format!("key-{key}")),
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
        change: Change::Taken {
            expires_at,
            price: None,
            orders,
        },
    }
}

/// Records the changes as the next entries of the segment. If it has no entry yet, the entry that
/// opens it comes first.
pub async fn happen(
    ledger: &impl AnyLedger,
    key: &SegmentKey,
    changes: impl IntoIterator<Item = Change>,
) -> Recorded {
    try_happen(ledger, key, changes).await.unwrap()
}

/// As `happen`, of changes that the ledger may refuse.
pub async fn try_happen(
    ledger: &impl AnyLedger,
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
    try_record(
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

/// A batch that takes units for holds that have already expired.
pub fn take(orders: impl IntoIterator<Item = TakenOrder>) -> Change {
    Change::Taken {
        price: None,
        expires_at: Timestamp::from_millisecond(1_700_000_000_000).unwrap(),
        orders: orders.into_iter().collect(),
    }
}

/// A batch that releases units.
pub fn release(orders: impl IntoIterator<Item = TakenOrder>) -> Change {
    Change::Released {
        orders: orders.into_iter().collect(),
    }
}

/// The order under the id of a reacquire.
pub fn again(order: TakenOrder, attempt: u8) -> TakenOrder {
    TakenOrder {
        id: order.id.reacquire(attempt),
        ..order
    }
}

/// A new cart of the n-th buyer, of that buyer's order of each item.
pub async fn new_cart(ledger: &impl AnyLedger, items: &[&Item], n: usize) -> Cart {
    let lines = items.iter().map(|item| {
        let order = order(item, n, 1);
        CartLine {
            order: order.id,
            item: item.id.clone(),
            quantity: order.quantity,
        }
    });
    let deadline = Timestamp::from_second(4_000_000_000).unwrap();
    let cart = Cart {
        id: CartId::from(Uuid::from_u128(7 + n as u128)),
        buyer: buyer(n),
        state: CartState::Placing,
        lines: lines.collect(),
        amount: 10,
        is_checked: true,
        price: None,
        currency: "EUR".into(),
        deadline,
        expires_at: deadline,
        payment: None,
        refusal: None,
        version: 1,
    };
    let CreatedCart::New(cart) = ledger.create_cart(&cart).await.unwrap() else {
        panic!("it is new");
    };
    cart
}

/// The same cart, after all of its lines have taken their units in the first segments.
pub async fn held_cart(ledger: &impl AnyLedger, items: &[&Item], n: usize) -> Cart {
    let cart = new_cart(ledger, items, n).await;
    for item in items {
        happen(ledger, &segment(item, 0), [take([order(item, n, 1)])]).await;
    }
    let held = CartStep::to(&cart, CartState::Held);
    ledger.step_cart(&held).await.unwrap().unwrap().cart
}

/// Makes a transition from the present state of the order.
pub async fn step(ledger: &impl AnyLedger, id: OrderId, to: OrderState) -> Option<domain::Order> {
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

/// The order after such a transition, which has to be made.
pub async fn becomes(ledger: &impl AnyLedger, id: OrderId, to: OrderState) -> domain::Order {
    step(ledger, id, to).await.expect("a transition")
}

/// What of the item returns, the oldest first.
pub async fn returning(ledger: &impl AnyLedger, item: &Item) -> Vec<PendingReturn> {
    let soon = Timestamp::now() + Duration::from_secs(1);
    let pending = ledger
        .pending_returns(ItemScope::Only(&item.id), soon, 10_000)
        .await;
    pending.unwrap()
}

/// The available, held, confirmed and returning units of a row.
pub async fn counters(ledger: &impl AnyLedger, key: &SegmentKey) -> [u64; 4] {
    let row = row(ledger, key).await;
    [row.available, row.held, row.confirmed, row.returning]
}

/// The entries of `log` that the row has not recorded, at most `at_most`.
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
pub async fn record(ledger: &impl AnyLedger, key: &SegmentKey, entries: Vec<Entry>) -> Recorded {
    try_record(ledger, key, entries).await.unwrap()
}

/// As `record`, of entries that the ledger may refuse.
pub async fn try_record(
    ledger: &impl AnyLedger,
    key: &SegmentKey,
    entries: Vec<Entry>,
) -> Result<Recorded, LedgerError> {
    let claim = ledger
        .claim(std::slice::from_ref(key), 1)
        .await?
        .expect("no other claim holds it");
    let row = claim.rows()[0].clone();
    let mut recorded = claim.record(vec![SegmentReplay { row, entries }]).await?;
    assert_eq!(recorded.len(), 1);
    Ok(recorded.remove(0))
}

pub async fn row(ledger: &impl AnyLedger, key: &SegmentKey) -> SegmentRow {
    ledger
        .segments(&key.item)
        .await
        .unwrap()
        .swap_remove(key.segment.into())
}

pub async fn state(ledger: &impl AnyLedger, order: OrderId) -> Option<OrderState> {
    ledger.order(order).await.unwrap().map(|order| order.state)
}

/// The events of a kind, once there are so many. PostgreSQL shows events only when no earlier
/// transaction of any database is open, and the tests share a server.
pub async fn events_of_kind(
    ledger: &impl AnyLedger,
    kind: &str,
    count: usize,
) -> Vec<ledger::Event> {
    testkit::eventually_some(&format!("{count} events {kind}"), async || {
        let page = ledger.events(ledger::EventCursor::START, 99).await.unwrap();
        let ledger::Events::Page(mut events) = page else {
            panic!("no event was removed");
        };
        events.retain(|event| event.kind == kind);
        (events.len() >= count).then_some(events)
    })
    .await
}
