//! Sinks: one publisher has each, and it goes on where the last one stopped.

use std::time::Duration;

use jiff::Timestamp;
use ledger::{EventCursor, Events};
use testkit::{Backend, eventually, on_both_databases, tested};
use uuid::Uuid;

use crate::env::TestEnv;

const LEASE: Duration = Duration::from_secs(600);

#[tested(on_both_databases(crate::env::run))]
async fn a_new_sink_starts_with_the_oldest_event_that_is_kept(env: &TestEnv) {
    env.create("first", 1, 1).await;
    let later = Timestamp::now() + Duration::from_secs(60);
    eventually("the removal of the first event", async || {
        env.remove_events(later, 9).await.unwrap() == 1
    })
    .await;
    let kept = env.create("kept", 1, 1).await;
    let cursor = env.lease_sink("redis", Uuid::new_v4(), LEASE).await;
    let cursor = cursor.unwrap().unwrap();
    eventually("the event that is kept", async || {
        let Events::Page(page) = env.events(cursor, 9).await.unwrap() else {
            panic!("the cursor is not behind what was removed");
        };
        page.len() == 1 && page[0].item == kept.id
    })
    .await;
}

#[tested(on_both_databases(crate::env::run))]
async fn one_publisher_has_a_sink_until_its_lease_ends(env: &TestEnv) {
    let [one, two] = [Uuid::new_v4(), Uuid::new_v4()];
    let has = async |publisher, lease| {
        let leased = env.lease_sink("nats", publisher, lease).await.unwrap();
        leased.is_some()
    };
    assert!(has(one, LEASE).await);
    assert!(has(one, LEASE).await, "it extends its lease");
    assert!(!has(two, LEASE).await);
    let other = env.lease_sink("amqp", two, LEASE).await.unwrap();
    assert!(other.is_some(), "each sink has a lease of its own");

    let cursor = env.end_of_events().await.unwrap();
    let advance = async |publisher| {
        let advanced = env.advance_sink("nats", publisher, cursor).await;
        advanced.unwrap()
    };
    assert!(advance(one).await);
    assert!(!advance(two).await, "only its publisher moves it");
    env.release_sink("nats", two).await.unwrap();
    assert!(!has(two, LEASE).await);
    env.release_sink("nats", one).await.unwrap();
    assert!(has(two, Duration::from_millis(1)).await);
    eventually("the end of a lease", async || has(one, LEASE).await).await;
    assert!(!advance(two).await);
    let again = env.lease_sink("nats", one, LEASE).await.unwrap();
    assert_eq!(again, Some(cursor), "it goes on where the last one stopped");
    let back = env.advance_sink("nats", one, EventCursor::START).await;
    assert!(
        !back.unwrap() || cursor == EventCursor::START,
        "a sink never goes back"
    );
}

#[tested(on_both_databases(crate::env::run))]
async fn concurrent_leases_of_a_new_sink_have_one_winner(env: &TestEnv) {
    let lease = || env.lease_sink("redis", Uuid::new_v4(), LEASE);
    let (a, b, c) = tokio::join!(lease(), lease(), lease());
    let won = [a, b, c].map(|leased| leased.unwrap().is_some());
    assert_eq!(won.into_iter().filter(|won| *won).count(), 1);
}

#[tested(on_both_databases(crate::env::run))]
async fn events_stay_until_every_sink_in_use_has_them(env: &TestEnv) {
    let publisher = Uuid::new_v4();
    let leased = env.lease_sink("redis", publisher, LEASE).await.unwrap();
    assert!(leased.is_some());
    env.create("vase", 1, 1).await;
    let later = Timestamp::now() + Duration::from_secs(60);
    assert_eq!(env.remove_events(later, 9).await.unwrap(), 0);
    eventually("the removal", async || {
        let end = env.end_of_events().await.unwrap();
        assert!(env.advance_sink("redis", publisher, end).await.unwrap());
        env.remove_events(later, 9).await.unwrap() == 1
    })
    .await;

    env.create("bowl", 1, 1).await;
    assert_eq!(env.remove_events(later, 9).await.unwrap(), 0);
    env.release_sink("redis", publisher).await.unwrap();
    assert_eq!(
        env.remove_events(later, 9).await.unwrap(),
        0,
        "a publisher that restarts finds them"
    );
    // As if the sink had been removed from the settings four days ago.
    let unused = match env.backend {
        Backend::Postgres => "UPDATE sinks SET served_at = served_at - interval '4 days'",
        Backend::Sqlite => "UPDATE sinks SET served_at = served_at - 4 * 86400000",
    };
    env.sql(unused).await;
    eventually("the removal for an unused sink", async || {
        env.remove_events(later, 9).await.unwrap() == 1
    })
    .await;
}
