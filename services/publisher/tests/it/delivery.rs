//! What receivers get, whatever they and the publishers do.

use std::{sync::Arc, time::Duration};

use events::TargetPolicy;
use jiff::{SignedDuration, Timestamp};
use ledger::{EventCursor, Events};
use publisher::{PublisherSettings, StoreClock};
use testkit::{eventually, eventually_some, on_both_databases, tested};

use crate::{
    env::{SHORT_LEASE, TestEnv, settings},
    receiver::{Behaviour, Receiver},
};

fn ids_of(received: &[crate::receiver::Received]) -> Vec<&str> {
    received.iter().map(|one| &*one.id).collect()
}

#[tested(on_both_databases(crate::env::run))]
async fn events_arrive_in_order_and_once_from_a_receiver_that_works(env: Arc<TestEnv>) {
    let receiver = Receiver::start().await;
    env.webhook(&receiver, &[]).await;
    let publisher = env.publish(settings()).await;
    let item = env.create("vase").await;
    env.change(&item, 12).await;
    let ids = env.ids(&item, 13).await;
    env.has(&receiver, &ids).await;
    publisher.stop().await;
    let received = receiver.received();
    assert_eq!(ids_of(&received), ids, "each once");
    let kinds: Vec<_> = received.iter().take(3).map(|one| one.kind()).collect();
    assert_eq!(
        kinds,
        [
            "stockade.item.created",
            "stockade.item.paused",
            "stockade.item.opened"
        ]
    );
    assert!(received.iter().all(|one| one.item() == "vase"));
}

#[tested(on_both_databases(crate::env::run))]
async fn a_receiver_that_fails_gets_the_same_event_again_before_any_later_one(env: Arc<TestEnv>) {
    let receiver = Receiver::start().await;
    let webhook = env.webhook(&receiver, &[]).await;
    receiver.then([500, 503, 404, 200, 429, 200].map(Behaviour::Answer));
    let publisher = env.publish(settings()).await;
    let item = env.create("vase").await;
    env.change(&item, 2).await;
    let ids = env.ids(&item, 3).await;
    env.has(&receiver, &ids).await;
    let order = [0, 0, 0, 0, 1, 1, 2].map(|at: usize| &*ids[at]);
    assert_eq!(ids_of(&receiver.received()), order);
    eventually("the end of the failures", async || {
        env.state_of(webhook).await.failures == 0
    })
    .await;
    publisher.stop().await;
}

#[tested(on_both_databases(crate::env::run))]
async fn a_receiver_that_hangs_delays_no_other(env: Arc<TestEnv>) {
    let (hanging, working) = (Receiver::start().await, Receiver::start().await);
    hanging.then([Behaviour::Late(Duration::from_secs(3600))]);
    env.webhook(&hanging, &[]).await;
    env.webhook(&working, &[]).await;
    // Longer than the test may wait for the other one.
    let patient = PublisherSettings {
        request_timeout: Duration::from_secs(3600),
        ..settings()
    };
    let publisher = env.publish(patient).await;
    let item = env.create("vase").await;
    eventually("a request that hangs", async || {
        !hanging.received().is_empty()
    })
    .await;
    env.change(&item, 5).await;
    let ids = env.ids(&item, 6).await;
    env.has(&working, &ids).await;
    assert_eq!(hanging.received().len(), 1);
    publisher.crash().await;
}

#[tested(on_both_databases(crate::env::run))]
async fn a_late_answer_counts_as_failed_and_the_repeat_has_the_same_id(env: Arc<TestEnv>) {
    let receiver = Receiver::start().await;
    receiver.then([Behaviour::Late(Duration::from_secs(3))]);
    env.webhook(&receiver, &[]).await;
    let impatient = PublisherSettings {
        request_timeout: Duration::from_secs(1),
        ..settings()
    };
    let publisher = env.publish(impatient).await;
    let item = env.create("vase").await;
    env.change(&item, 1).await;
    let ids = env.ids(&item, 2).await;
    eventually("a repeat and the next event", async || {
        receiver.received().iter().any(|one| one.id == ids[1])
    })
    .await;
    publisher.stop().await;
    let received = receiver.received();
    assert!(received.len() >= 3, "{received:?}");
    assert_eq!(ids_of(&received[..2]), [&*ids[0], &*ids[0]]);
}

#[tested(on_both_databases(crate::env::run))]
async fn a_redirect_is_not_followed(env: Arc<TestEnv>) {
    let (elsewhere, receiver) = (Receiver::start().await, Receiver::start().await);
    receiver.then([Behaviour::Redirect(elsewhere.url.clone())]);
    env.webhook(&receiver, &[]).await;
    let publisher = env.publish(settings()).await;
    let item = env.create("vase").await;
    let ids = env.ids(&item, 1).await;
    env.has(&receiver, &ids).await;
    publisher.stop().await;
    assert_eq!(ids_of(&receiver.received()), [&*ids[0], &*ids[0]]);
    assert!(elsewhere.received().is_empty());
}

#[tested(on_both_databases(crate::env::run))]
async fn a_webhook_gets_only_its_kinds(env: Arc<TestEnv>) {
    let receiver = Receiver::start().await;
    let webhook = env.webhook(&receiver, &["item.paused"]).await;
    let publisher = env.publish(settings()).await;
    let item = env.create("vase").await;
    env.change(&item, 6).await;
    let ids = env.ids(&item, 7).await;
    let paused: Vec<_> = [1, 3, 5].map(|at: usize| ids[at].clone()).into();
    env.has(&receiver, &paused).await;
    eventually("a position behind the events of other kinds", async || {
        env.state_of(webhook).await.cursor.to_string() == ids[6]
    })
    .await;
    publisher.stop().await;
}

#[tested(on_both_databases(crate::env::run))]
async fn a_publisher_that_starts_again_loses_nothing(env: Arc<TestEnv>) {
    let receiver = Receiver::start().await;
    env.webhook(&receiver, &[]).await;
    let item = env.create("vase").await;
    let settings = || PublisherSettings {
        lease: SHORT_LEASE,
        ..settings()
    };
    let (mut expected, mut publisher) = (1, env.publish(settings()).await);
    for round in 0..4 {
        env.change(&item, 5).await;
        expected += 5;
        eventually("the next delivery", async || {
            receiver.accepted().len() > expected - 5
        })
        .await;
        // In the middle of the others.
        if round % 2 == 0 {
            publisher.crash().await;
        } else {
            publisher.stop().await;
        }
        env.change(&item, 1).await;
        expected += 1;
        publisher = env.publish(settings()).await;
    }
    let ids = env.ids(&item, expected).await;
    env.has(&receiver, &ids).await;
    publisher.stop().await;
}

#[tested(on_both_databases(crate::env::run))]
async fn several_publishers_share_the_webhooks(env: Arc<TestEnv>) {
    let (one, two) = (Receiver::start().await, Receiver::start().await);
    for receiver in [&one, &two] {
        env.webhook(receiver, &[]).await;
    }
    let patient = PublisherSettings {
        lease: Duration::from_secs(600),
        ..settings()
    };
    let publishers = [
        env.publish(patient.clone()).await,
        env.publish(patient.clone()).await,
        env.publish(patient).await,
    ];
    let item = env.create("vase").await;
    env.change(&item, 8).await;
    let ids = env.ids(&item, 9).await;
    for receiver in [&one, &two] {
        env.has(receiver, &ids).await;
    }
    for publisher in publishers {
        publisher.stop().await;
    }
    for receiver in [one, two] {
        assert_eq!(ids_of(&receiver.received()), ids, "each once");
    }
}

#[tested(on_both_databases(crate::env::run))]
async fn a_receiver_that_fails_for_too_long_is_disabled_and_goes_on_after_it_was_enabled(
    env: Arc<TestEnv>,
) {
    let receiver = Receiver::start().await;
    receiver.then(vec![Behaviour::Answer(500); 100_000]);
    let webhook = env.webhook(&receiver, &[]).await;
    let strict = PublisherSettings {
        give_up_after: Duration::from_millis(200),
        ..settings()
    };
    let publisher = env.publish(strict).await;
    let item = env.create("vase").await;
    let disabled = eventually_some("the end of the attempts", async || {
        let state = env.state_of(webhook).await;
        state.disabled_at.is_some().then_some(state)
    })
    .await;
    assert_eq!(
        disabled.last_error.as_deref(),
        Some("the receiver answered 500 Internal Server Error")
    );
    let entry = eventually_some("the journal's entry", async || {
        let journal = env.ledger.journal(&item, 9).await.unwrap();
        journal.into_iter().next()
    })
    .await;
    assert_eq!(entry.entry.action, "webhook_disabled");
    assert_eq!(entry.entry.before["webhook"], webhook.to_string());

    env.change(&item, 1).await;
    publisher.stop().await;
    receiver.forget_behaviour();
    let publisher = env.publish(settings()).await;
    assert!(env.ledger.enable_webhook(webhook, "eve").await.unwrap());
    let ids = env.ids(&item, 2).await;
    env.has(&receiver, &ids).await;
    publisher.stop().await;
}

#[tested(on_both_databases(crate::env::run))]
async fn a_receiver_that_is_gone_is_disabled(env: Arc<TestEnv>) {
    let receiver = Receiver::start().await;
    receiver.then([Behaviour::Answer(410)]);
    let webhook = env.webhook(&receiver, &[]).await;
    let publisher = env.publish(settings()).await;
    env.create("vase").await;
    eventually("the end of the webhook", async || {
        env.state_of(webhook).await.disabled_at.is_some()
    })
    .await;
    publisher.stop().await;
    assert_eq!(receiver.received().len(), 1);
}

#[tested(on_both_databases(crate::env::run))]
async fn a_private_address_is_refused_at_the_delivery_too(env: Arc<TestEnv>) {
    let receiver = Receiver::start().await;
    let by_address = env.webhook(&receiver, &[]).await;
    let mut named = receiver.clone();
    named.url = named.url.replace("http://127.0.0.1", "https://localhost");
    let by_name = env.webhook(&named, &[]).await;
    let public = PublisherSettings {
        targets: TargetPolicy { private: false },
        ..settings()
    };
    let publisher = env.publish(public).await;
    env.create("vase").await;
    for (webhook, expected) in [(by_address, "the URL is refused"), (by_name, "is loopback")] {
        eventually("a refused attempt", async || {
            let error = env.state_of(webhook).await.last_error;
            error.is_some_and(|error| error.contains(expected))
        })
        .await;
    }
    publisher.stop().await;
    assert!(receiver.received().is_empty());
}

#[tested(on_both_databases(crate::env::run))]
async fn a_receiver_without_tls_gets_nothing_at_an_https_url(env: Arc<TestEnv>) {
    let receiver = Receiver::start().await;
    let mut secure = receiver.clone();
    secure.url = secure.url.replace("http:", "https:");
    let webhook = env.webhook(&secure, &[]).await;
    let publisher = env.publish(settings()).await;
    env.create("vase").await;
    eventually("two failed handshakes", async || {
        env.state_of(webhook).await.failures >= 2
    })
    .await;
    publisher.stop().await;
    let error = env.state_of(webhook).await.last_error.unwrap();
    assert!(
        error.contains("tls") || error.contains("InvalidContentType"),
        "{error}"
    );
    assert!(receiver.received().is_empty());
}

/// Publishers whose clocks are wrong: by the first one all is ten minutes too old, and by the
/// second one nothing is. By the third one all is too old, and Redis's clock says that it is not.
fn wrong_clocks() -> [PublisherSettings; 3] {
    let ahead = PublisherSettings {
        keep: Duration::from_secs(600),
        give_up_after: Duration::from_secs(600),
        removal_interval: Duration::from_millis(1),
        clock: || Timestamp::now() + SignedDuration::from_mins(15),
        ..settings()
    };
    let behind = PublisherSettings {
        keep: Duration::ZERO,
        clock: || Timestamp::now() - SignedDuration::from_secs(10),
        ..ahead.clone()
    };
    let another = PublisherSettings {
        keep: Duration::ZERO,
        clock: Timestamp::now,
        store_clock: Some(StoreClock::new(|| {
            let late = Timestamp::now() - SignedDuration::from_mins(15);
            std::future::ready(Ok::<_, std::io::Error>(late))
        })),
        ..ahead.clone()
    };
    [ahead, behind, another]
}

#[tested(on_both_databases(crate::env::run))]
async fn a_publisher_with_a_wrong_clock_removes_no_event(env: Arc<TestEnv>) {
    let receiver = Receiver::start().await;
    env.webhook(&receiver, &[]).await;
    let item = env.create("vase").await;
    let mut events = 1;
    for wrong in wrong_clocks() {
        let publisher = env.publish(wrong).await;
        env.change(&item, 20).await;
        events += 20;
        // The receiver has all of them, so only their age keeps them.
        let ids = env.ids(&item, events).await;
        env.has(&receiver, &ids).await;
        // A publisher that removed events would do so every millisecond.
        tokio::time::sleep(Duration::from_millis(300)).await;
        publisher.stop().await;
        assert_eq!(env.ids(&item, events).await, ids);
    }
}

#[tested(on_both_databases(crate::env::run))]
async fn a_publisher_with_a_wrong_clock_ends_no_webhook(env: Arc<TestEnv>) {
    let receiver = Receiver::start().await;
    receiver.then(vec![Behaviour::Answer(500); 100_000]);
    let webhook = env.webhook(&receiver, &[]).await;
    env.create("vase").await;
    for wrong in wrong_clocks() {
        let before = env.state_of(webhook).await.failures;
        let publisher = env.publish(wrong).await;
        eventually("ten failed attempts", async || {
            env.state_of(webhook).await.failures >= before + 10
        })
        .await;
        publisher.stop().await;
        assert_eq!(env.state_of(webhook).await.disabled_at, None);
    }
}

#[tested(on_both_databases(crate::env::run))]
async fn old_events_are_removed(env: Arc<TestEnv>) {
    let item = env.create("vase").await;
    env.change(&item, 3).await;
    env.ids(&item, 4).await;
    let forgetful = PublisherSettings {
        keep: Duration::ZERO,
        removal_interval: Duration::from_millis(50),
        ..settings()
    };
    let publisher = env.publish(forgetful).await;
    eventually("the removal", async || {
        let read = env.ledger.events(EventCursor::START, 9).await.unwrap();
        let Events::Removed(oldest) = read else {
            return false;
        };
        env.ledger.events(oldest, 9).await.unwrap() == Events::Page(Vec::new())
    })
    .await;
    publisher.stop().await;
}
