//! The cost of recording: an exact number of SQL statements, and an upper bound of allocations. A
//! more expensive design fails on any machine.
//!
//! The statements of a transaction must not grow with its orders, nor, on PostgreSQL, with its
//! segments: each statement is a round trip while rows are locked. `docs/performance.md`, "Guards",
//! has the table.

use cost::{Bound, fewest_allocations, statements};
use domain::{BuyerId, Entry, EntryId, Item};
use ledger::SegmentReplay;
use testkit::{Backend, on_both_databases, tested};

use crate::env::{AnyLedger, TestEnv, item, opened, order_of, segment, taken, unlimited};

/// Produces a log to record, batch by batch. All orders are new and at home.
struct Log {
    item: Item,
    /// Number of batches so far; also the timestamp of the next entries.
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

    /// The next entries of every segment, each with the given number of orders.
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

    /// Records like the recorder: one claim and one transaction for all segments. Returns the
    /// number of recorded orders.
    async fn record(&self, ledger: &impl AnyLedger, batch: Batch) -> usize {
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

    /// The statements that record the next batch.
    async fn statements(&mut self, ledger: &impl AnyLedger, entries: &[usize]) -> Vec<String> {
        let batch = self.next(entries);
        let (held, statements) = statements(self.record(ledger, batch)).await;
        assert_eq!(
            held,
            entries.iter().sum::<usize>() * usize::from(self.item.segments)
        );
        statements
    }
}

/// An item with something recorded in every segment, so that statements are prepared and rows
/// opened.
async fn begun(env: &TestEnv, ledger: &impl AnyLedger, limited: bool, segments: u16) -> Log {
    let name = format!("vase-{segments}-{limited}");
    let stock = 1_000_000;
    let item = if limited {
        item(&name, stock, segments)
    } else {
        unlimited(&name, stock, segments)
    };
    let mut log = Log::of(env.create_by(ledger, &item).await);
    for orders in [1, 200] {
        let batch = log.next(&[orders]);
        log.record(ledger, batch).await;
    }
    log
}

/// Claim, limits (unless the only segment is home), insert, and the update of the rows with their
/// events: one statement for all rows and events. On SQLite, where a statement is no round trip,
/// one for the events and one for each row. sqlx does not log how a transaction of PostgreSQL begins.
fn recording(backend: Backend, segments: usize) -> Vec<&'static str> {
    let (claim, rows): (&[_], _) = match backend {
        Backend::Sqlite => (
            &["BEGIN", "SELECT"],
            [vec!["INSERT"], vec!["UPDATE"; segments]].concat(),
        ),
        Backend::Postgres => (&["WITH"], vec!["WITH"]),
    };
    let limits: &[_] = if segments == 1 { &[] } else { &["SELECT"] };
    [claim, limits, &["INSERT"], &rows, &["COMMIT"]].concat()
}

/// The same, with these statements before the insert.
fn recording_with(backend: Backend, segments: usize, more: &[&'static str]) -> Vec<&'static str> {
    let mut expected = recording(backend, segments);
    let insert = expected.iter().position(|statement| *statement == "INSERT");
    let insert = insert.unwrap();
    expected.splice(insert..insert, more.iter().copied());
    expected
}

/// Number of orders in each entry: a single one, a batch, and a backlog that builds up during a
/// commit.
const ENTRIES: [&[usize]; 3] = [&[1], &[128], &[128; 16]];

#[tested(on_both_databases(crate::env::run))]
async fn the_number_of_statements_does_not_depend_on_the_number_of_orders(env: &TestEnv) {
    takes_the_same_statements(env, false).await;
}

#[tested(on_both_databases(crate::env::run))]
async fn a_limit_needs_no_additional_statement(env: &TestEnv) {
    takes_the_same_statements(env, true).await;
}

async fn takes_the_same_statements(env: &TestEnv, limited: bool) {
    let ledger = env.ledger_of_one_connection().await;
    for segments in [1, 8] {
        let mut log = begun(env, &ledger, limited, segments).await;
        let expected = recording(env.backend, segments.into());
        for entries in ENTRIES {
            assert_eq!(
                log.statements(&ledger, entries).await,
                expected,
                "{entries:?} orders of {segments} segments each"
            );
        }
    }
}

#[tested(on_both_databases(crate::env::run))]
async fn after_an_off_home_order_one_more_statement_is_needed(env: &TestEnv) {
    let ledger = env.ledger_of_one_connection().await;
    let mut log = begun(env, &ledger, true, 8).await;
    let mut off_home = log.next(&[1]);
    off_home.rotate_left(1);
    let (_, first) = statements(log.record(&ledger, off_home)).await;
    let expected = recording_with(env.backend, 8, &["DELETE", "SELECT"]);
    assert_eq!(first, expected, "the first off-home order");
    for entries in ENTRIES {
        assert_eq!(
            log.statements(&ledger, entries).await,
            recording_with(env.backend, 8, &["SELECT"]),
            "{entries:?} orders of each segment"
        );
    }
}

/// A recorder repeats what another one has recorded: the insert that expects only new orders fails,
/// and a second transaction tolerates existing ones.
#[tested(on_both_databases(crate::env::run))]
async fn repeated_orders_need_no_statement_each(env: &TestEnv) {
    let ledger = env.ledger_of_one_connection().await;
    let mut log = begun(env, &ledger, false, 1).await;
    let mut again = log.next(&[128]);
    assert_eq!(log.record(&ledger, again.clone()).await, 128);
    again[0][0].id.ms += 1;
    let (held, statements) = statements(log.record(&ledger, again)).await;
    assert_eq!(held, 0);
    let expected: &[&str] = match env.backend {
        Backend::Sqlite => &["BEGIN", "SELECT", "INSERT", "UPDATE", "COMMIT"],
        Backend::Postgres => &[
            "WITH", "INSERT", "ROLLBACK", "WITH", "WITH", "WITH", "COMMIT",
        ],
    };
    assert_eq!(statements, expected);
}

/// Checks the allocations of recorded orders against the bound: from claim to commit, on the
/// recorder's thread. The entries belong to the caller and are not counted.
fn check(env: impl Future<Output = TestEnv>, bound: Bound, entries: &[usize]) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let (env, ledger, log) = runtime.block_on(async {
        let env = env.await;
        let ledger = env.ledger_of_one_connection().await;
        let log = begun(&env, &ledger, true, 1).await;
        (env, ledger, std::cell::RefCell::new(log))
    });
    let orders = entries.iter().sum();
    let record = |batch| {
        assert_eq!(
            runtime.block_on(log.borrow().record(&ledger, batch)),
            orders
        )
    };
    let spent = fewest_allocations(|| log.borrow_mut().next(entries), record);
    bound.check(spent, orders);
    runtime.block_on(env.audit());
}

#[test]
fn recording_an_order_on_postgres_stays_within_its_allocations() {
    check(
        TestEnv::unopened(Backend::Postgres),
        Bound {
            what: "a lone order recorded on PostgreSQL",
            most: 138.0,
        },
        &[1],
    );
    check(
        TestEnv::unopened(Backend::Postgres),
        Bound {
            what: "an order recorded on PostgreSQL in a batch of 128",
            most: 1.4,
        },
        &[128],
    );
}

#[test]
fn recording_an_order_on_sqlite_stays_within_its_allocations() {
    // 82 to 97: results arrive from SQLite's own thread, before or after the test starts to wait
    // for them.
    check(
        TestEnv::unopened(Backend::Sqlite),
        Bound {
            what: "a lone order recorded on SQLite",
            most: 110.0,
        },
        &[1],
    );
    check(
        TestEnv::unopened(Backend::Sqlite),
        Bound {
            what: "an order recorded on SQLite in a batch of 128",
            most: 2.3,
        },
        &[128],
    );
}

#[tested(on_both_databases(crate::env::run))]
async fn archived_items_cost_the_lists_of_workers_nothing(env: &TestEnv) {
    let ledger = env.ledger_of_one_connection().await;
    let mut live = Vec::new();
    for name in ["vase", "bowl", "cup"] {
        live.push(env.create_by(&ledger, &item(name, 10, 2)).await.id);
    }
    let numbers = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000)";
    for insert in [
        "INSERT INTO items (id, tag, title, stock, price, currency, segments, hold_seconds, durability, state, epoch, as_created, \
             closed_at, archived_at, keys_removed_at) \
         SELECT 'old-' || i, tag, title, 0, price, currency, segments, hold_seconds, durability, 'closed', epoch, as_created, \
             created_at, created_at, created_at FROM items, n WHERE id = 'vase'",
        "INSERT INTO segments (item, segment, allocated, available, archived) \
         SELECT 'old-' || i, segment, 0, 0, true FROM segments, n WHERE item = 'vase'",
    ] {
        env.sql(&format!("{numbers} {insert}")).await;
    }
    let (items, read) = statements(ledger.changed_items(None)).await;
    let items = items.unwrap();
    assert_eq!((items.len(), read.len()), (live.len(), 1), "{read:#?}");
    // The three were made before, and the thousand are noted as changes, too.
    let latest = items.iter().map(|row| row.version).max();
    let (changed, read) = statements(ledger.changed_items(latest)).await;
    assert_eq!((changed.unwrap().len(), read.len()), (1001, 1), "{read:#?}");
    let (changed, read) = statements(ledger.changed_items(latest.map(|last| last + 1000))).await;
    assert_eq!((changed.unwrap().len(), read.len()), (1, 1), "the last one");
    let (segments, read) = statements(ledger.checkpoints()).await;
    assert_eq!((segments.unwrap().len(), read.len()), (6, 1), "{read:#?}");
}

#[tested(on_both_databases(crate::env::run))]
async fn what_an_idle_item_costs_an_auditor_is_one_statement(env: &TestEnv) {
    let ledger = env.ledger_of_one_connection().await;
    let item = env.create_by(&ledger, &item("vase", 10, 2)).await;
    let audit = ledger::GoodAudit {
        at: jiff::Timestamp::from_second(1_700_000_000).unwrap(),
        revision: u64::MAX - 7,
    };
    ledger.note_good_audit(&item.id, audit).await.unwrap();
    // A read may open a connection, which has statements of its own.
    let mut fewest = usize::MAX;
    for _ in 0..3 {
        let (found, read) = statements(ledger.good_audit(&item.id)).await;
        assert_eq!(found.unwrap(), Some(audit));
        fewest = fewest.min(read.len());
    }
    assert_eq!(fewest, 1);
    let older = ledger::GoodAudit {
        at: jiff::Timestamp::from_second(1_600_000_000).unwrap(),
        revision: 1,
    };
    ledger.note_good_audit(&item.id, older).await.unwrap();
    let found = ledger.good_audit(&item.id).await.unwrap();
    assert_eq!(found, Some(audit), "an audit that was slow overwrites none");
}
