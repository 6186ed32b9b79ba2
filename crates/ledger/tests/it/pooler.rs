//! A ledger behind a connection pooler.

use ledger::{Created, LedgerError};
use testbed::{LocalError, PgBouncer, PgBouncerBuilder, Postgres, TestbedError, skipped};

use crate::env::item;

/// `None`: pgbouncer is not installed.
async fn start(pooler: PgBouncerBuilder) -> Option<PgBouncer> {
    match pooler.start().await {
        Ok(pooler) => Some(pooler),
        Err(TestbedError::Local(LocalError::NotInstalled { .. })) => {
            skipped("pgbouncer is not installed");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

async fn refusal(pooler: &PgBouncer) -> LedgerError {
    match ledger::connect(&pooler.url("postgres"), 2).await {
        Ok(_) => panic!("the pooler's mode was not recognised"),
        Err(error) => error,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pooler_in_transaction_mode_is_refused_with_a_text_that_says_what_to_do() {
    let server = Postgres::start().await.unwrap();
    for (setting, value) in [
        ("server_round_robin", "0"),
        ("server_round_robin", "1"),
        ("min_pool_size", "5"),
    ] {
        let settings = PgBouncer::before(&server, "transaction").config(setting, value);
        let Some(pooler) = start(settings).await else {
            return;
        };
        for _ in 0..3 {
            let error = refusal(&pooler).await;
            assert!(
                matches!(error, LedgerError::PoolerMode),
                "{setting}: {error:?}"
            );
            let text = error.to_string();
            assert!(text.contains("pool_mode = session"), "{text}");
            assert!(
                error.proves_unchanged() && !error.is_retryable(),
                "{error:?}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pooler_in_session_mode_is_as_good_as_the_server() {
    let server = Postgres::start().await.unwrap();
    let Some(pooler) = start(PgBouncer::before(&server, "session")).await else {
        return;
    };
    for round in 0..2 {
        let ledger = ledger::connect(&pooler.url("postgres"), 2).await.unwrap();
        ledger.migrate().await.unwrap();
        ledger.check_writable().await.unwrap();
        let created = ledger
            .create_item(&item(&format!("vase-{round}"), 10, 1))
            .await;
        assert!(matches!(created, Ok(Created::New(_))), "{created:?}");
    }
}
