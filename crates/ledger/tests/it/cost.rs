//! What recording costs: SQL statements exactly, and allocations at most. A slower design fails, on any machine.
//!
//! The statements of a transaction must not become more with its orders, nor, on PostgreSQL, with its segments: each is a round trip while rows are
//! locked. `docs/performance.md`, "Guards", has the table.

use cost::{Bound, fewest_allocations, statements};
use domain::{BuyerId, Entry, EntryId, Item};
use ledger::{Ledger, SegmentReplay};

use crate::site::{Kind, Site, on_both, opened, order_of, segment, taken};

on_both!(
    a_transaction_takes_the_same_statements_whatever_the_number_of_its_orders,
    a_limit_takes_two_statements_more_and_none_where_the_only_segment_is_home,
    after_a_stray_it_takes_one_more,
    orders_that_come_again_take_no_statement_for_each,
);

/// A log to be recorded, batch by batch, whose orders are all new and at home.
struct Log {
    item: Item,
    /// Batches so far: also the time of the next ones.
    batches: u64,
    buyers: usize,
}

type Batch = Vec<Vec<Entry>>;

impl Log {
    fn of(item: Item) -> Self {
        Self { item, batches: 0, buyers: 0 }
    }

    /// What every segment has next: entries with so many orders each.
    fn next(&mut self, entries: &[usize]) -> Batch {
        let batch = (0..self.item.segments).map(|segment| self.next_of(segment, entries)).collect();
        self.batches += entries.len() as u64;
        batch
    }

    fn next_of(&mut self, segment: u16, entries: &[usize]) -> Vec<Entry> {
        let first = (self.batches == 0).then(|| opened(&self.item, segment));
        let times = (10 + self.batches..).map(|ms| EntryId { ms, seq: 0 });
        let taken = entries.iter().zip(times).map(|(orders, id)| taken(id, (0..*orders).map(|_| self.order_at(segment)).collect()));
        first.into_iter().chain(taken).collect()
    }

    fn order_at(&mut self, home: u16) -> domain::TakenOrder {
        loop {
            self.buyers += 1;
            let buyer = BuyerId::new(format!("buyer-{}", self.buyers)).unwrap();
            if buyer.home(self.item.segments) == home {
                return order_of(&self.item, &buyer, 1, 1);
            }
        }
    }

    /// As the recorder does it: one claim and one transaction for all segments. Returns how many orders were recorded.
    async fn record(&self, ledger: &dyn Ledger, batch: Batch) -> usize {
        let keys: Vec<_> = (0..self.item.segments).map(|number| segment(&self.item, number)).collect();
        let claim = ledger.claim(&keys, keys.len()).await.unwrap().unwrap();
        let replays = claim.rows().iter().cloned().zip(batch).map(|(row, entries)| SegmentReplay { row, entries }).collect();
        claim.record(replays).await.unwrap().iter().map(|recorded| recorded.held).sum()
    }

    /// The statements that record what comes next.
    async fn statements(&mut self, ledger: &dyn Ledger, entries: &[usize]) -> Vec<String> {
        let batch = self.next(entries);
        let (held, statements) = statements(self.record(ledger, batch)).await;
        assert_eq!(held, entries.iter().sum::<usize>() * usize::from(self.item.segments));
        statements
    }
}

/// An item whose segments have something recorded, so that statements are prepared and rows opened.
async fn begun(site: &Site, ledger: &dyn Ledger, limited: bool, segments: u16) -> Log {
    let name = format!("vase-{segments}-{limited}");
    let stock = 1_000_000;
    let item = if limited {
        site.create(ledger, &name, stock, segments).await
    } else {
        site.create_unlimited(ledger, &name, stock, segments).await
    };
    let mut log = Log::of(item);
    for orders in [1, 200] {
        let batch = log.next(&[orders]);
        log.record(ledger, batch).await;
    }
    log
}

/// Claim, terms, insert, and the rows: one statement for all of them, or with SQLite, where a statement is no round trip, one for each.
fn without_a_limit(kind: Kind, segments: usize, orders: usize) -> Vec<&'static str> {
    match kind {
        Kind::Sqlite => [vec!["SELECT", "SELECT", "INSERT"], vec!["UPDATE"; segments]].concat(),
        // Some orders go with ON CONFLICT in one statement; many are inserted as if all were new, behind a savepoint.
        Kind::Postgres if orders < 64 => vec!["WITH", "SELECT", "WITH", "UPDATE", "COMMIT"],
        Kind::Postgres => vec!["WITH", "SELECT", "SAVEPOINT", "INSERT", "UPDATE", "COMMIT"],
    }
}

/// Between terms and insert: who else records orders of the item is kept waiting (SQLite has one writer anyway), and whether an order ever strayed.
fn with_a_limit(kind: Kind, segments: usize, orders: usize) -> Vec<&'static str> {
    let mut statements = without_a_limit(kind, segments, orders);
    let more = if kind == Kind::Sqlite { 1 } else { 2 };
    statements.splice(2..2, std::iter::repeat_n("SELECT", more));
    statements
}

/// Orders of each entry: a lone one, a batch, and what gathers while a commit takes its time.
const ENTRIES: [&[usize]; 3] = [&[1], &[128], &[128; 16]];

async fn a_transaction_takes_the_same_statements_whatever_the_number_of_its_orders(site: &Site) {
    let ledger = site.ledger().await;
    for segments in [1, 8] {
        let mut log = begun(site, &*ledger, false, segments).await;
        for entries in ENTRIES {
            let segments = usize::from(segments);
            let orders = segments * entries.iter().sum::<usize>();
            let expected = without_a_limit(site.kind, segments, orders);
            assert_eq!(log.statements(&*ledger, entries).await, expected, "{orders} orders of {segments} segments");
        }
    }
}

async fn a_limit_takes_two_statements_more_and_none_where_the_only_segment_is_home(site: &Site) {
    let ledger = site.ledger().await;
    for segments in [1, 8] {
        let mut log = begun(site, &*ledger, true, segments).await;
        for entries in ENTRIES {
            let segments = usize::from(segments);
            let orders = segments * entries.iter().sum::<usize>();
            let expected = if segments == 1 { without_a_limit } else { with_a_limit }(site.kind, segments, orders);
            assert_eq!(log.statements(&*ledger, entries).await, expected, "{orders} orders of {segments} segments");
        }
    }
}

async fn after_a_stray_it_takes_one_more(site: &Site) {
    let ledger = site.ledger().await;
    let mut log = begun(site, &*ledger, true, 8).await;
    let mut strayed = log.next(&[1]);
    strayed.rotate_left(1);
    let (_, first) = statements(log.record(&*ledger, strayed)).await;
    let mut expected = with_a_limit(site.kind, 8, 8);
    let insert = if site.kind == Kind::Postgres { 4 } else { 3 };
    expected.splice(insert..insert, ["DELETE", "SELECT"]);
    assert_eq!(first, expected, "the first stray");
    for entries in ENTRIES {
        let orders = 8 * entries.iter().sum::<usize>();
        let mut expected = with_a_limit(site.kind, 8, orders);
        expected.insert(2, "SELECT");
        assert_eq!(log.statements(&*ledger, entries).await, expected, "{orders} orders");
    }
}

/// As after a recorder that repeats what another one has recorded: the insert that expects none of them fails, and the one that asks follows.
async fn orders_that_come_again_take_no_statement_for_each(site: &Site) {
    let ledger = site.ledger().await;
    let mut log = begun(site, &*ledger, false, 1).await;
    let mut again = log.next(&[128]);
    assert_eq!(log.record(&*ledger, again.clone()).await, 128);
    again[0][0].id.ms += 1;
    let (held, statements) = statements(log.record(&*ledger, again)).await;
    assert_eq!(held, 0);
    let expected: &[&str] = match site.kind {
        Kind::Sqlite => &["SELECT", "SELECT", "INSERT", "UPDATE"],
        Kind::Postgres => &["WITH", "SELECT", "SAVEPOINT", "INSERT", "ROLLBACK", "WITH", "UPDATE", "COMMIT"],
    };
    assert_eq!(statements, expected);
}

/// Holds recorded orders against the bound: from the claim to the commit, on the thread of whoever records. The entries are the caller's.
fn check(site: impl Future<Output = Site>, bound: Bound, entries: &[usize]) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (site, ledger, log) = runtime.block_on(async {
        let site = site.await;
        let ledger = site.ledger().await;
        let log = begun(&site, &*ledger, true, 1).await;
        (site, ledger, std::cell::RefCell::new(log))
    });
    let orders = entries.iter().sum();
    let record = |batch| assert_eq!(runtime.block_on(log.borrow().record(&*ledger, batch)), orders);
    let spent = fewest_allocations(|| log.borrow_mut().next(entries), record);
    bound.check(spent, orders);
    runtime.block_on(site.audit());
}

#[test]
fn an_order_recorded_on_postgres_allocates_no_more_than_it_may() {
    check(Site::postgres(), Bound { what: "a lone order recorded on PostgreSQL", most: 145.0 }, &[1]);
    check(Site::postgres(), Bound { what: "an order recorded on PostgreSQL in a batch of 128", most: 4.0 }, &[128]);
}

#[test]
fn an_order_recorded_on_sqlite_allocates_no_more_than_it_may() {
    // 82 to 97: its answers come from a thread of SQLite's own, sooner or later than somebody waits for them.
    check(Site::sqlite(), Bound { what: "a lone order recorded on SQLite", most: 110.0 }, &[1]);
    check(Site::sqlite(), Bound { what: "an order recorded on SQLite in a batch of 128", most: 4.8 }, &[128]);
}
