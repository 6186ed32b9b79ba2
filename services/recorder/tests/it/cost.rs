//! The cost of recording: the exact numbers of Redis commands and SQL statements, for any number of
//! orders in the entries.

use std::collections::BTreeMap;

use cost::{commands, statements};
use ledger::Ledger;
use stock::Acknowledge;
use testbed::Redis;
use testkit::{Backend, Database, Sale, TestEnv, is_held};

use crate::env::audit;

/// Records the entries of the segments, and returns the Redis commands and SQL statements of it.
async fn record(
    env: &TestEnv,
    sale: &Sale,
    ledger: &dyn Ledger,
) -> (BTreeMap<String, u64>, Vec<String>) {
    let pass = async {
        recorder::record_once(&sale.stock, ledger, &sale.segments())
            .await
            .unwrap()
    };
    let (((), statements), commands) = commands(&env.redis_url, statements(pass)).await.unwrap();
    (commands, statements)
}

/// Places orders in batches, so that each segment gets `entries` entries: a batch has up to 256
/// orders.
async fn order(sale: &Sale, orders: usize, entries: usize, first: &mut usize) {
    for _ in 0..entries {
        let from = *first;
        *first += orders;
        // A task that has done much is paused, and its batch would be sent in two parts.
        let rush = sale.rush(&sale.stock, from..*first, Acknowledge::Accepted);
        let orders = tokio::task::unconstrained(rush).await;
        assert!(orders.iter().all(|(_, outcome)| is_held(outcome)));
    }
}

async fn recording_costs_the_same(env: TestEnv) {
    // A pool that opens another connection in the middle of a pass sends the statements that a
    // connection begins with.
    let ledger = env.database.ledger_of_one_connection().await;
    for segments in [1, 8] {
        let sale = env.sell(1_000_000, segments).await;
        let mut first = 0;
        // Fills the item cache and prepares the statements.
        for _ in 0..2 {
            order(&sale, 1000, 1, &mut first).await;
            record(&env, &sale, &*ledger).await;
        }
        for (orders, entries) in [(64, 1), (250, 1), (200, 16)] {
            order(&sale, orders, entries, &mut first).await;
            let (commands, statements) = record(&env, &sale, &*ledger).await;
            let each = u64::from(segments);
            // A pass reads (XRANGE), announces (PUBLISH) and trims (XTRIM) each segment once, and
            // sees that only the anchor is left (XLEN). After several entries a second pass comes
            // at once. It finds no more, trims again in case an earlier trim failed, and looks.
            let is_busy = entries > 1;
            let passes = if is_busy { 2 } else { 1 };
            let expected = [
                ("xrange", passes * each),
                ("publish", each),
                ("xtrim", passes * each),
                ("xlen", passes * each),
            ];
            assert_eq!(
                commands,
                expected
                    .map(|(command, calls)| (command.to_owned(), calls))
                    .into(),
                "{orders} orders in {entries} entries of {segments} segments"
            );
            assert_eq!(
                statements,
                expected_statements(env.database.backend, segments.into(), is_busy),
                "{orders} orders in {entries} entries of {segments} segments"
            );
        }
    }
    audit(&env).await;
}

/// Statements of the pass that records, and of the claim of the one after it, which finds no more
/// entries.
fn expected_statements(backend: Backend, segments: usize, is_busy: bool) -> Vec<&'static str> {
    // A single segment is the home of all buyers.
    let limits: &[_] = if segments == 1 { &[] } else { &["SELECT"] };
    let second: &[_] = match (is_busy, backend) {
        (false, _) => &[],
        (true, Backend::Sqlite) => &["BEGIN", "SELECT", "ROLLBACK"],
        (true, Backend::Postgres) => &["WITH", "ROLLBACK"],
    };
    match backend {
        Backend::Sqlite => [
            &["BEGIN", "SELECT"],
            limits,
            // Orders, and the event that tells of them.
            &["INSERT", "INSERT"],
            &vec!["UPDATE"; segments],
            &["COMMIT"],
            second,
        ]
        .concat(),
        Backend::Postgres => [
            &["WITH"],
            limits,
            // The second: the rows and the event.
            &["INSERT", "WITH", "COMMIT"],
            second,
        ]
        .concat(),
    }
}

// One thread, so that all orders reach their batchers before these are drained.
#[tokio::test]
async fn recording_costs_the_same_for_any_number_of_orders_on_sqlite() {
    let server = Redis::start().await.unwrap();
    recording_costs_the_same(TestEnv::at(Database::empty_sqlite(), server.url()).await).await;
}

#[tokio::test]
async fn recording_costs_the_same_for_any_number_of_orders_on_postgres() {
    let server = Redis::start().await.unwrap();
    recording_costs_the_same(
        TestEnv::at(Database::new(Backend::Postgres).await, server.url()).await,
    )
    .await;
}
