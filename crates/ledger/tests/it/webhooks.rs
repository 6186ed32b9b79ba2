//! Webhooks: one publisher has each, and it goes on where the last one stopped.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use ledger::{EventCursor, Events, FailedAttempt, NewWebhook, Webhook};
use testkit::{eventually, on_both_databases, tested};
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::env::{AnyLedger, TestEnv};

const LEASE: Duration = Duration::from_secs(600);

fn webhook() -> NewWebhook {
    NewWebhook {
        id: Uuid::new_v4(),
        url: "https://shop.example/hooks".into(),
        kinds: vec!["order.held".into()],
        secret: "whsec_c2VjcmV0".into(),
    }
}

async fn only(ledger: &impl AnyLedger) -> Webhook {
    let mut all = ledger.webhooks().await.unwrap();
    assert_eq!(all.len(), 1);
    all.remove(0)
}

#[tested(on_both_databases(crate::env::run))]
async fn a_webhook_starts_with_the_events_to_come(env: &TestEnv) {
    env.create("before", 1, 1).await;
    let new = webhook();
    env.add_webhook(&new, 100).await.unwrap();
    let later = env.create("later", 1, 1).await;
    let stored = only(env).await;
    assert_eq!(
        (
            stored.webhook.id,
            &stored.webhook.url,
            &stored.webhook.kinds
        ),
        (new.id, &new.url, &new.kinds)
    );
    assert_eq!(stored.webhook.secret, new.secret);
    assert!(stored.wants("order.held") && !stored.wants("order.expired"));
    eventually("the event after the creation", async || {
        let Events::Page(page) = env.events(stored.cursor, 9).await.unwrap() else {
            panic!("the webhook has a cursor");
        };
        page.iter().any(|event| event.item == later.id)
    })
    .await;
    assert!(env.remove_webhook(new.id, "eve").await.unwrap());
    assert!(!env.remove_webhook(new.id, "eve").await.unwrap());
}

/// Creations at the same moment, by two processes.
#[tested(on_both_databases(crate::env::run))]
async fn there_are_never_more_webhooks_than_allowed(env: &TestEnv) {
    const AT_MOST: u32 = 3;
    let ledgers = [env.ledger().await, env.ledger().await];
    let mut creations = JoinSet::new();
    for n in 0..12 {
        let ledger = Arc::clone(&ledgers[n % 2]);
        creations.spawn(async move { ledger.add_webhook(&webhook(), AT_MOST).await.unwrap() });
    }
    let created = creations.join_all().await;
    assert_eq!(created.iter().filter(|created| **created).count(), 3);
    let all = ledgers[0].webhooks().await.unwrap();
    assert_eq!(all.len(), 3);
    assert!(
        ledgers[0]
            .remove_webhook(all[0].webhook.id, "eve")
            .await
            .unwrap()
    );
    let add = async || ledgers[1].add_webhook(&webhook(), AT_MOST).await.unwrap();
    assert!(add().await, "one was removed");
    assert!(!add().await);
}

#[tested(on_both_databases(crate::env::run))]
async fn one_publisher_has_a_webhook_until_its_lease_ends(env: &TestEnv) {
    let [one, two] = [Uuid::new_v4(), Uuid::new_v4()];
    let new = webhook();
    env.add_webhook(&new, 100).await.unwrap();
    let leased = async |publisher, lease| {
        let leased = env.lease_webhooks(publisher, lease).await.unwrap();
        leased.len()
    };
    assert_eq!(leased(one, LEASE).await, 1);
    assert_eq!(leased(one, LEASE).await, 1, "it extends its lease");
    assert_eq!(leased(two, LEASE).await, 0);
    let cursor = env.end_of_events().await.unwrap();
    let advance = async |publisher| {
        let advanced = env.advance_webhook(new.id, publisher, cursor).await;
        advanced.unwrap()
    };
    assert!(advance(one).await);
    assert!(!advance(two).await, "only its publisher moves it");
    env.release_webhooks(two).await.unwrap();
    assert_eq!(leased(two, LEASE).await, 0);
    env.release_webhooks(one).await.unwrap();
    assert_eq!(leased(two, Duration::from_millis(1)).await, 1);
    eventually("the end of a lease", async || leased(one, LEASE).await == 1).await;
    assert!(!advance(two).await);
    assert!(advance(one).await);
    let start = EventCursor::START;
    let back = env.advance_webhook(new.id, one, start).await.unwrap();
    assert!(!back || cursor == start, "a webhook never goes back");
}

#[tested(on_both_databases(crate::env::run))]
async fn a_failed_attempt_is_noted_until_one_succeeds(env: &TestEnv) {
    let (publisher, new) = (Uuid::new_v4(), webhook());
    env.add_webhook(&new, 100).await.unwrap();
    env.lease_webhooks(publisher, LEASE).await.unwrap();
    let again = Timestamp::from_millisecond(1_900_000_000_123).unwrap();
    let failed = |next_attempt_at| FailedAttempt {
        error: "503".into(),
        next_attempt_at,
    };
    let fail = async |next| {
        let noted = env.fail_webhook(new.id, publisher, &failed(next)).await;
        noted.unwrap()
    };
    assert!(fail(Some(again)).await);
    let first = only(env).await;
    assert!(fail(Some(again)).await);
    let second = only(env).await;
    assert_eq!((first.failures, second.failures), (1, 2));
    assert_eq!(second.failing_since, first.failing_since);
    assert!(second.failing_since.is_some() && second.disabled_at.is_none());
    assert_eq!(second.next_attempt_at, Some(again));
    assert_eq!(second.last_error.as_deref(), Some("503"));

    let advanced = env.advance_webhook(new.id, publisher, second.cursor);
    assert!(advanced.await.unwrap());
    let works = only(env).await;
    assert_eq!(
        (
            works.failures,
            works.failing_since,
            works.next_attempt_at,
            works.last_error
        ),
        (0, None, None, None)
    );

    assert!(fail(None).await);
    assert!(only(env).await.disabled_at.is_some());
    assert!(!fail(None).await, "a disabled webhook has no publisher");
    assert!(
        env.lease_webhooks(publisher, LEASE)
            .await
            .unwrap()
            .is_empty()
    );
    assert!(env.enable_webhook(new.id, "eve").await.unwrap());
    assert!(!env.enable_webhook(Uuid::new_v4(), "eve").await.unwrap());
    let leased = env.lease_webhooks(publisher, LEASE).await.unwrap();
    assert_eq!(leased.len(), 1);
    assert_eq!((leased[0].failures, leased[0].disabled_at), (0, None));
}

#[tested(on_both_databases(crate::env::run))]
async fn events_stay_until_every_enabled_webhook_has_them(env: &TestEnv) {
    let (publisher, new) = (Uuid::new_v4(), webhook());
    env.add_webhook(&new, 100).await.unwrap();
    env.lease_webhooks(publisher, LEASE).await.unwrap();
    env.create("vase", 1, 1).await;
    let later = Timestamp::now() + Duration::from_secs(60);
    assert_eq!(env.remove_events(later, 9).await.unwrap(), 0);
    let end = env.end_of_events().await.unwrap();
    assert!(env.advance_webhook(new.id, publisher, end).await.unwrap());
    eventually("the removal", async || {
        let end = env.end_of_events().await.unwrap();
        env.advance_webhook(new.id, publisher, end).await.unwrap();
        env.remove_events(later, 9).await.unwrap() == 1
    })
    .await;
}
