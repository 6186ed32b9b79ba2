//! What a pass of the recorder costs: commands of Redis and SQL statements, exactly, however many orders its entries have.

use std::collections::BTreeMap;

use cost::{commands, statements};
use stock::Acknowledge;
use testbed::Redis;

use crate::shop::{Kind, Sale, Shop, database, is_held, rush};

/// What the segments have is recorded, and what the server and the database are asked for it.
async fn record(shop: &Shop, sale: &Sale) -> (BTreeMap<String, u64>, Vec<String>) {
    let pass = async {
        recorder::record_once(&sale.stock, &*sale.ledger, &sale.segments())
            .await
            .unwrap()
    };
    let (((), statements), commands) = commands(&shop.redis_url, statements(pass)).await.unwrap();
    (commands, statements)
}

/// Orders that leave together, so that each segment gets `entries` entries.
async fn order(sale: &Sale, orders: usize, entries: usize, first: &mut usize) {
    for _ in 0..entries {
        let from = *first;
        *first += orders;
        assert!(
            rush(sale, &sale.stock, from..*first, Acknowledge::Accepted)
                .await
                .iter()
                .all(|(_, outcome)| is_held(outcome))
        );
    }
}

async fn a_segment_costs_six_commands(shop: Shop) {
    for segments in [1, 8] {
        let sale = shop.sell(1_000_000, segments).await;
        let mut first = 0;
        // The instance gets to know the item, and the statements are prepared.
        for _ in 0..2 {
            order(&sale, 1000, 1, &mut first).await;
            record(&shop, &sale).await;
        }
        for (orders, entries) in [(64, 1), (1000, 1), (200, 16)] {
            order(&sale, orders, entries, &mut first).await;
            let (commands, statements) = record(&shop, &sale).await;
            let each = u64::from(segments);
            // It reads (XRANGE), tells (PUBLISH) and trims (XTRIM) each segment once, whatever it has; then reads again, finds nothing more, and trims
            // again, for one that an earlier pass could not trim, and looks whether the anchor is alone now (XLEN).
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
                expected_statements(shop.kind, segments.into()),
                "{orders} orders in {entries} entries of {segments} segments"
            );
        }
    }
    shop.audit().await;
}

/// The pass that records, and the claim of the one that finds nothing more.
fn expected_statements(kind: Kind, segments: usize) -> Vec<&'static str> {
    // The only segment is everybody's home.
    let limits: &[_] = if segments == 1 { &[] } else { &["SELECT"] };
    match kind {
        Kind::Sqlite => [
            &["SELECT"],
            limits,
            &["INSERT"],
            &vec!["UPDATE"; segments],
            &["SELECT"],
        ]
        .concat(),
        Kind::Postgres => [
            &["WITH"],
            limits,
            &["INSERT", "UPDATE", "COMMIT", "WITH", "ROLLBACK"],
        ]
        .concat(),
    }
}

// One thread: what is begun together is counted together, and orders have all reached their lanes before these are emptied.
#[tokio::test]
async fn a_segment_costs_six_commands_however_much_it_has_on_sqlite() {
    let server = Redis::start().await.unwrap();
    a_segment_costs_six_commands(Shop::sqlite_at(server.url()).await).await;
}

#[tokio::test]
async fn a_segment_costs_six_commands_however_much_it_has_on_postgres() {
    let server = Redis::start().await.unwrap();
    a_segment_costs_six_commands(Shop::postgres_at(server.url(), database().await).await).await;
}
