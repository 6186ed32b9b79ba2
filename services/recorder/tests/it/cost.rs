//! The cost of a recorder pass: the exact numbers of Redis commands and SQL statements, for any
//! number of orders in its entries.

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

/// Places orders in batches, so that each segment gets `entries` entries.
async fn order(sale: &Sale, orders: usize, entries: usize, first: &mut usize) {
    for _ in 0..entries {
        let from = *first;
        *first += orders;
        assert!(
            sale.rush(&sale.stock, from..*first, Acknowledge::Accepted)
                .await
                .iter()
                .all(|(_, outcome)| is_held(outcome))
        );
    }
}

async fn a_segment_costs_six_commands(env: TestEnv) {
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
        for (orders, entries) in [(64, 1), (1000, 1), (200, 16)] {
            order(&sale, orders, entries, &mut first).await;
            let (commands, statements) = record(&env, &sale, &*ledger).await;
            let each = u64::from(segments);
            // The first pass reads (XRANGE), announces (PUBLISH) and trims (XTRIM) each segment
            // once. The second pass reads again, finds no more entries, trims again in case an
            // earlier trim failed, and checks that only the anchor is left (XLEN).
            let expected = [
                ("xrange", 2 * each),
                ("publish", each),
                ("xtrim", 2 * each),
                ("xlen", each),
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
                expected_statements(env.database.backend, segments.into()),
                "{orders} orders in {entries} entries of {segments} segments"
            );
        }
    }
    audit(&env).await;
}

/// Statements of the pass that records, and of the claim of the pass that finds no more entries.
fn expected_statements(backend: Backend, segments: usize) -> Vec<&'static str> {
    // A single segment is the home of all buyers.
    let limits: &[_] = if segments == 1 { &[] } else { &["SELECT"] };
    match backend {
        Backend::Sqlite => [
            &["SELECT"],
            limits,
            // Orders, and the event that tells of them.
            &["INSERT", "INSERT"],
            &vec!["UPDATE"; segments],
            &["SELECT"],
        ]
        .concat(),
        Backend::Postgres => [
            &["WITH"],
            limits,
            // The second: the rows and the event.
            &["INSERT", "WITH", "COMMIT", "WITH", "ROLLBACK"],
        ]
        .concat(),
    }
}

// One thread, so that all orders reach their batchers before these are drained.
#[tokio::test]
async fn a_segment_costs_six_commands_for_any_number_of_orders_on_sqlite() {
    let server = Redis::start().await.unwrap();
    a_segment_costs_six_commands(TestEnv::at(Database::empty_sqlite(), server.url()).await).await;
}

#[tokio::test]
async fn a_segment_costs_six_commands_for_any_number_of_orders_on_postgres() {
    let server = Redis::start().await.unwrap();
    a_segment_costs_six_commands(
        TestEnv::at(Database::new(Backend::Postgres).await, server.url()).await,
    )
    .await;
}
