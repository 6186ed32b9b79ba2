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
    a_limit_takes_no_statement_more,
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
        Self {
            item,
            batches: 0,
            buyers: 0,
        }
    }

    /// What every segment has next: entries with so many orders each.
    fn next(&mut self, entries: &[usize]) -> Batch {
        let batch = (0..self.item.segments)
            .map(|segment| self.next_of(segment, entries))
            .collect();
        self.batches += entries.len() as u64;
        batch
    }

    fn next_of(&mut self, segment: u16, entries: &[usize]) -> Vec<Entry> {
        let first = (self.batches == 0).then(|| opened(&self.item, segment));
        let times = (10 + self.batches..).map(|ms| EntryId { ms, seq: 0 });
        let taken = entries
            .iter()
            .zip(times)
            .map(|(orders, id)| taken(id, (0..*orders).map(|_| self.order_at(segment)).collect()));
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
        let keys: Vec<_> = (0..self.item.segments)
            .map(|number| segment(&self.item, number))
            .collect();
        let claim = ledger.claim(&keys, keys.len()).await.unwrap().unwrap();
        let replays = claim
            .rows()
            .iter()
            .cloned()
            .zip(batch)
            .map(|(row, entries)| SegmentReplay { row, entries })
            .collect();
        claim
            .record(replays)
            .await
            .unwrap()
            .iter()
            .map(|recorded| recorded.held)
            .sum()
    }

    /// The statements that record what comes next.
    async fn statements(&mut self, ledger: &dyn Ledger, entries: &[usize]) -> Vec<String> {
        let batch = self.next(entries);
        let (held, statements) = statements(self.record(ledger, batch)).await;
        assert_eq!(
            held,
            entries.iter().sum::<usize>() * usize::from(self.item.segments)
        );
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

/// Claim, limits (unless the only segment is home), insert, and the rows: one statement for all of them, or with SQLite, where a statement is no round trip,
/// one for each.
fn recording(kind: Kind, segments: usize) -> Vec<&'static str> {
    let (claim, rows) = match kind {
        Kind::Sqlite => ("SELECT", vec!["UPDATE"; segments]),
        Kind::Postgres => ("WITH", vec!["UPDATE", "COMMIT"]),
    };
    let limits: &[_] = if segments == 1 { &[] } else { &["SELECT"] };
    [&[claim], limits, &["INSERT"], &rows].concat()
}

/// Orders of each entry: a lone one, a batch, and what gathers while a commit takes its time.
const ENTRIES: [&[usize]; 3] = [&[1], &[128], &[128; 16]];

async fn a_transaction_takes_the_same_statements_whatever_the_number_of_its_orders(site: &Site) {
    takes_the_same_statements(site, false).await;
}

async fn a_limit_takes_no_statement_more(site: &Site) {
    takes_the_same_statements(site, true).await;
}

async fn takes_the_same_statements(site: &Site, limited: bool) {
    let ledger = site.ledger().await;
    for segments in [1, 8] {
        let mut log = begun(site, &*ledger, limited, segments).await;
        let expected = recording(site.kind, segments.into());
        for entries in ENTRIES {
            assert_eq!(
                log.statements(&*ledger, entries).await,
                expected,
                "{entries:?} orders of {segments} segments each"
            );
        }
    }
}

async fn after_a_stray_it_takes_one_more(site: &Site) {
    let ledger = site.ledger().await;
    let mut log = begun(site, &*ledger, true, 8).await;
    let mut strayed = log.next(&[1]);
    strayed.rotate_left(1);
    let (_, first) = statements(log.record(&*ledger, strayed)).await;
    let mut expected = recording(site.kind, 8);
    expected.splice(2..2, ["DELETE", "SELECT"]);
    assert_eq!(first, expected, "the first stray");
    for entries in ENTRIES {
        let mut expected = recording(site.kind, 8);
        expected.insert(2, "SELECT");
        assert_eq!(
            log.statements(&*ledger, entries).await,
            expected,
            "{entries:?} orders of each segment"
        );
    }
}

/// As after a recorder that repeats what another one has recorded: the insert that expects none of them fails, and a transaction follows whose insert asks.
async fn orders_that_come_again_take_no_statement_for_each(site: &Site) {
    let ledger = site.ledger().await;
    let mut log = begun(site, &*ledger, false, 1).await;
    let mut again = log.next(&[128]);
    assert_eq!(log.record(&*ledger, again.clone()).await, 128);
    again[0][0].id.ms += 1;
    let (held, statements) = statements(log.record(&*ledger, again)).await;
    assert_eq!(held, 0);
    let expected: &[&str] = match site.kind {
        Kind::Sqlite => &["SELECT", "INSERT", "UPDATE"],
        Kind::Postgres => &[
            "WITH", "INSERT", "ROLLBACK", "WITH", "WITH", "UPDATE", "COMMIT",
        ],
    };
    assert_eq!(statements, expected);
}

/// Holds recorded orders against the bound: from the claim to the commit, on the thread of whoever records. The entries are the caller's.
fn check(site: impl Future<Output = Site>, bound: Bound, entries: &[usize]) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let (site, ledger, log) = runtime.block_on(async {
        let site = site.await;
        let ledger = site.ledger().await;
        let log = begun(&site, &*ledger, true, 1).await;
        (site, ledger, std::cell::RefCell::new(log))
    });
    let orders = entries.iter().sum();
    let record = |batch| {
        assert_eq!(
            runtime.block_on(log.borrow().record(&*ledger, batch)),
            orders
        )
    };
    let spent = fewest_allocations(|| log.borrow_mut().next(entries), record);
    bound.check(spent, orders);
    runtime.block_on(site.audit());
}

#[test]
fn an_order_recorded_on_postgres_allocates_no_more_than_it_may() {
    check(
        Site::postgres(),
        Bound {
            what: "a lone order recorded on PostgreSQL",
            most: 145.0,
        },
        &[1],
    );
    check(
        Site::postgres(),
        Bound {
            what: "an order recorded on PostgreSQL in a batch of 128",
            most: 4.0,
        },
        &[128],
    );
}

#[test]
fn an_order_recorded_on_sqlite_allocates_no_more_than_it_may() {
    // 82 to 97: its answers come from a thread of SQLite's own, sooner or later than somebody waits for them.
    check(
        Site::sqlite(),
        Bound {
            what: "a lone order recorded on SQLite",
            most: 110.0,
        },
        &[1],
    );
    check(
        Site::sqlite(),
        Bound {
            what: "an order recorded on SQLite in a batch of 128",
            most: 4.8,
        },
        &[128],
    );
}
