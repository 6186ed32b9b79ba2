//! PostgreSQL fails in the middle of operations.

use std::time::Duration;

use domain::Entry;
use ledger::{LedgerError, PoolSettings, SegmentReplay};
use testbed::Postgres;
use testkit::{Database, eventually_some, timeout};

use crate::env::{
    AnyLedger, TestEnv, id, item, opened, order, order_id, rest, row, segment, state, taken,
    try_record,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_server_dies_before_the_commit_recording_again_records_once() {
    let mut server = Postgres::start().await.unwrap();
    let env = TestEnv::at(Database::postgres_at(server.url("postgres")));
    let ledger = env.ledger().await;
    ledger.migrate().await.unwrap();
    let item = env.create_by(&ledger, &item("vase", 10, 1)).await;
    let key = segment(&item, 0);
    let entries = vec![opened(&item, 0), taken(id(2, 0), vec![order(&item, 0, 1)])];
    // With the product's own time-out: the other one is more patient with a server that is gone.
    let brief = ledger::connect(&server.url("postgres"), 1).await.unwrap();

    let claim = ledger
        .claim(std::slice::from_ref(&key), 1)
        .await
        .unwrap()
        .unwrap();
    server.kill().await.unwrap();
    let replay = SegmentReplay {
        row: claim.rows()[0].clone(),
        entries: entries.clone(),
    };
    let error = claim.record(vec![replay]).await.unwrap_err();
    assert!(
        matches!(error, LedgerError::Database(_)) && error.is_retryable(),
        "{error:?}"
    );
    assert!(brief.ping().await.is_err());

    server.restart().await.unwrap();
    let recorded = eventually_some("a live connection", async || {
        try_record(&ledger, &key, entries.clone()).await.ok()
    })
    .await;
    assert_eq!((recorded.held, recorded.repeated), (1, 0));
    assert!(state(&ledger, order_id(&item, 0)).await.is_some());
    env.audit().await;
}

/// The commit may have been executed although its response was lost. The checkpoint tells.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_dies_while_recording_loses_and_duplicates_nothing() {
    let mut server = Postgres::start().await.unwrap();
    let env = TestEnv::at(Database::postgres_at(server.url("postgres")));
    let ledger = env.ledger().await;
    ledger.migrate().await.unwrap();
    let item = env.create_by(&ledger, &item("vase", 100_000, 1)).await;
    let key = segment(&item, 0);
    let mut log: Vec<Entry> = vec![opened(&item, 0)];
    log.extend((0..400).map(|entry| {
        taken(
            id(2 + entry, 0),
            (0..20)
                .map(|n| order(&item, entry as usize * 20 + n, 1))
                .collect(),
        )
    }));

    for round in 1..=2 {
        let recording = {
            let (ledger, key, log) = (std::sync::Arc::clone(&ledger), key.clone(), log.clone());
            tokio::spawn(async move { record_until_error(&ledger, &key, &log, 2).await })
        };
        let half_way = id(round * 100, 0);
        eventually_some("some progress", async || {
            (row(&ledger, &key).await.checkpoint > Some(half_way)).then_some(())
        })
        .await;
        server.kill().await.unwrap();
        recording
            .await
            .unwrap()
            .expect_err("the server was killed before recording finished");
        server.restart().await.unwrap();
        eventually_some("a live connection", async || ledger.ping().await.ok()).await;
    }
    eventually_some("the rest", async || {
        record_until_error(&ledger, &key, &log, 50).await.ok()
    })
    .await;
    let row = row(&ledger, &key).await;
    assert_eq!(
        (row.held, row.checkpoint),
        (8000, log.last().map(|entry| entry.id))
    );
    let totals = ledger.totals(&item.id).await.unwrap().unwrap();
    assert_eq!(totals.orders_by_state, [("held".to_owned(), 8000)]);
    env.audit().await;
}

async fn record_until_error(
    ledger: &impl AnyLedger,
    key: &domain::SegmentKey,
    log: &[Entry],
    chunk: usize,
) -> Result<(), LedgerError> {
    loop {
        let Some(claim) = ledger.claim(std::slice::from_ref(key), 1).await? else {
            continue;
        };
        let row = claim.rows()[0].clone();
        let entries = rest(&row, log, chunk);
        if entries.is_empty() {
            return Ok(());
        }
        claim.record(vec![SegmentReplay { row, entries }]).await?;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_idle_connections_are_not_handed_out() {
    let mut server = Postgres::start().await.unwrap();
    let pool = PoolSettings {
        acquire_timeout: Some(timeout()),
        ..PoolSettings::new(4)
    };
    let url = server.url("postgres");
    let ledger = ledger::connect_with(&url, pool).await.unwrap();
    // Several connections in the pool, all of which are about to die.
    let (a, b, c, d) = tokio::join!(ledger.ping(), ledger.ping(), ledger.ping(), ledger.ping());
    [a, b, c, d]
        .into_iter()
        .collect::<Result<Vec<_>, _>>()
        .unwrap();
    server.restart().await.unwrap();
    tokio::time::sleep(Duration::from_millis(1100)).await;
    for _ in 0..8 {
        ledger.ping().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hanging_claim_is_ended() {
    let server = Postgres::start().await.unwrap();
    let env = TestEnv::at(Database::postgres_at(server.url("postgres")));
    let ledger = env.ledger().await;
    ledger.migrate().await.unwrap();
    let item = env.create_by(&ledger, &item("vase", 10, 1)).await;
    let claim = ledger
        .claim(&[segment(&item, 0)], 1)
        .await
        .unwrap()
        .unwrap();
    let key = segment(&item, 0);
    let next = eventually_some("the end of the hanging claim", async || {
        ledger.claim(std::slice::from_ref(&key), 1).await.unwrap()
    })
    .await;
    drop(next);
    let replay = SegmentReplay {
        row: claim.rows()[0].clone(),
        entries: vec![opened(&item, 0)],
    };
    assert!(matches!(
        claim.record(vec![replay]).await,
        Err(LedgerError::Database(_))
    ));
    env.audit().await;
}

/// A role or a database may have a setting that acknowledges commits before they are on disk.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commits_wait_for_the_disk_whatever_the_database_is_set_to() {
    let server = Postgres::start().await.unwrap();
    let database = Database::postgres_at(server.url("postgres"));
    let ledger = database.ledger().await;
    ledger.migrate().await.unwrap();
    database
        .execute(
            "CREATE TABLE seen (setting text);
             CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$
             BEGIN INSERT INTO seen VALUES (current_setting('synchronous_commit')); RETURN NEW; END $$;
             CREATE TRIGGER note BEFORE INSERT ON items FOR EACH ROW EXECUTE FUNCTION note()",
        )
        .await
        .unwrap();
    for (name, set, expected) in [
        ("vase", "off", "on"),
        ("bowl", "local", "on"),
        ("jar", "remote_apply", "remote_apply"),
    ] {
        database
            .execute(&format!(
                "ALTER DATABASE postgres SET synchronous_commit = {set}"
            ))
            .await
            .unwrap();
        let env = TestEnv::at(Database::postgres_at(server.url("postgres")));
        env.create_by(&env.ledger().await, &item(name, 10, 1)).await;
        let seen = database
            .execute(&format!("DELETE FROM seen WHERE setting = '{expected}'"))
            .await
            .unwrap();
        assert_eq!(seen, 1, "{set}");
    }
}
