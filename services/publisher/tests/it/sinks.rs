//! What brokers get, whatever they and the publishers do.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use domain::ItemId;
use publisher::{PublisherSettings, SinkSettings};
use testkit::{Deadline, eventually, on_both_databases, tested, timeout};

use crate::{
    brokers::{Broker, Received, RedisStream},
    env::{self, TestEnv},
    receiver::Receiver,
};

/// Makes tests of a guarantee that holds at every broker, with both databases.
macro_rules! on_every_broker {
    ($test:ident) => {
        mod $test {
            on_every_broker!(@ $test, RedisStream, redis_with_sqlite, redis_with_postgres);
            #[cfg(feature = "nats")]
            on_every_broker!(@ $test, JetStream, nats_with_sqlite, nats_with_postgres);
            #[cfg(feature = "amqp")]
            on_every_broker!(@ $test, Exchange, amqp_with_sqlite, amqp_with_postgres);
        }
    };
    (@ $test:ident, $broker:ident, $with_sqlite:ident, $with_postgres:ident) => {
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $with_sqlite() {
            let test = super::$test::<crate::brokers::$broker>;
            crate::env::run(testkit::Backend::Sqlite, test).await;
        }

        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $with_postgres() {
            let test = super::$test::<crate::brokers::$broker>;
            crate::env::run(testkit::Backend::Postgres, test).await;
        }
    };
}

/// Waits longer for the brokers than any of them takes, so that no event is repeated.
fn publishing_to(sinks: Vec<SinkSettings>) -> PublisherSettings {
    PublisherSettings {
        sinks,
        lease: timeout() * 3,
        ..env::settings()
    }
}

/// Gives up soon, and tries again soon: for brokers and publishers that fail.
fn repeating_to(sinks: Vec<SinkSettings>) -> PublisherSettings {
    PublisherSettings {
        sinks,
        lease: env::SHORT_LEASE,
        request_timeout: RESPONSE_TIMEOUT,
        ..env::settings()
    }
}

const RESPONSE_TIMEOUT: Duration = Duration::from_millis(1500);

/// An answer that a killed broker owes never comes. One that has just started may take long. No
/// pause before the next attempt is longer, either: both are a third of the lease at most.
const RESTART_TIMEOUT: Duration = Duration::from_secs(10);

fn ids_of<'a>(received: &'a [Received], item: &ItemId) -> Vec<&'a str> {
    let of_item = received.iter().filter(|one| one.item() == item.as_str());
    of_item.map(|one| &*one.id).collect()
}

/// Waits until the broker has all events of the items, in order and with nothing between them.
async fn has(env: &TestEnv, broker: &mut impl Broker, items: &[(&ItemId, usize)]) {
    let expected: usize = items.iter().map(|(_, count)| count).sum();
    let deadline = Instant::now() + timeout();
    let received = loop {
        let received = broker.distinct().await;
        if received.len() >= expected || Instant::now() > deadline {
            break received;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    assert_eq!(received.len(), expected, "broker: {}", broker.log());
    for (item, count) in items {
        let ids = env.ids(item, *count).await;
        assert_eq!(ids_of(&received, item), ids);
    }
}

/// Waits until the broker has so many events, of which some may be repeats.
async fn has_some(broker: &mut impl Broker, count: usize) {
    let deadline = Deadline::start();
    while broker.received().await.len() < count {
        deadline.check("the broker has too few events");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tested(on_every_broker)]
async fn every_event_arrives_once_and_in_order<B: Broker>(env: Arc<TestEnv>) {
    let mut broker = B::start().await;
    let before = env.create("before").await;
    let publisher = env.publish(publishing_to(vec![broker.sink()])).await;
    let (vase, bowl) = (env.create("vase").await, env.create("bowl.of-wood").await);
    for _ in 0..6 {
        env.change(&vase, 2).await;
        env.change(&bowl, 1).await;
    }
    let items = [(&before, 1), (&vase, 13), (&bowl, 7)];
    has(&env, &mut broker, &items).await;
    publisher.stop().await;
    let received = broker.received().await;
    assert_eq!(received.len(), 21, "each once");
    let first = received.iter().find(|one| one.item() == "vase").unwrap();
    assert_eq!(first.event["type"], "stockade.item.created");
    assert_eq!(first.event["specversion"], "1.0");
    assert!(first.event["data"].is_object());
}

#[tested(on_every_broker)]
async fn a_broker_that_is_killed_and_restarted_gets_every_event<B: Broker>(env: Arc<TestEnv>) {
    let mut broker = B::start().await;
    let settings = PublisherSettings {
        lease: RESTART_TIMEOUT * 3,
        request_timeout: RESTART_TIMEOUT,
        ..repeating_to(vec![broker.sink()])
    };
    let publisher = env.publish(settings).await;
    let item = env.create("vase").await;
    env.change(&item, 5).await;
    has_some(&mut broker, 1).await;
    env.change(&item, 5).await;
    broker.kill().await;
    env.change(&item, 5).await;
    broker.restart().await;
    env.change(&item, 5).await;
    has(&env, &mut broker, &[(&item, 21)]).await;
    publisher.stop().await;
}

#[tested(on_every_broker)]
async fn a_broker_that_hangs_gets_every_event_afterwards<B: Broker>(env: Arc<TestEnv>) {
    let mut broker = B::start().await;
    let publisher = env.publish(repeating_to(vec![broker.sink()])).await;
    let item = env.create("vase").await;
    has_some(&mut broker, 1).await;
    broker.pause().await;
    env.change(&item, 5).await;
    // Longer than the publisher waits for an answer.
    tokio::time::sleep(RESPONSE_TIMEOUT * 2).await;
    env.change(&item, 5).await;
    broker.resume().await;
    has(&env, &mut broker, &[(&item, 11)]).await;
    publisher.stop().await;
}

#[tested(on_every_broker)]
async fn a_publisher_that_starts_again_loses_nothing<B: Broker>(env: Arc<TestEnv>) {
    let mut broker = B::start().await;
    let settings = || repeating_to(vec![broker.sink()]);
    let item = env.create("vase").await;
    let mut publisher = env.publish(settings()).await;
    let mut expected = 1;
    for round in 0..4 {
        env.change(&item, 5).await;
        expected += 5;
        // In the middle of them, or before or after them.
        tokio::time::sleep(Duration::from_millis(round * 15)).await;
        if round % 2 == 0 {
            publisher.crash().await;
        } else {
            publisher.stop().await;
        }
        env.change(&item, 1).await;
        expected += 1;
        publisher = env.publish(settings()).await;
    }
    has(&env, &mut broker, &[(&item, expected)]).await;
    publisher.stop().await;
}

#[tested(on_both_databases(crate::env::run))]
async fn one_publisher_at_a_time_publishes_to_a_sink(env: Arc<TestEnv>) {
    let mut broker = RedisStream::start().await;
    let settings = publishing_to(vec![broker.sink()]);
    let publishers = [
        env.publish(settings.clone()).await,
        env.publish(settings.clone()).await,
        env.publish(settings).await,
    ];
    let item = env.create("vase").await;
    env.change(&item, 30).await;
    has(&env, &mut broker, &[(&item, 31)]).await;
    assert_eq!(broker.received().await.len(), 31, "each once");
    for publisher in publishers {
        publisher.crash().await;
    }
}

#[tested(on_both_databases(crate::env::run))]
async fn a_broker_that_is_down_delays_no_webhook(env: Arc<TestEnv>) {
    let receiver = Receiver::start().await;
    env.webhook(&receiver, &[]).await;
    let mut broker = RedisStream::start().await;
    broker.kill().await;
    let publisher = env.publish(repeating_to(vec![broker.sink()])).await;
    let item = env.create("vase").await;
    env.change(&item, 5).await;
    let ids = env.ids(&item, 6).await;
    env.has(&receiver, &ids).await;
    broker.restart().await;
    has(&env, &mut broker, &[(&item, 6)]).await;
    publisher.stop().await;
}

#[cfg(feature = "nats")]
mod with_nats {
    use super::*;
    use crate::brokers::JetStream;

    #[tested(on_both_databases(crate::env::run))]
    async fn a_broker_that_is_down_delays_no_other_sink(env: Arc<TestEnv>) {
        let (mut down, mut working) = (RedisStream::start().await, JetStream::start().await);
        down.kill().await;
        let sinks = vec![down.sink(), working.sink()];
        let publisher = env.publish(repeating_to(sinks)).await;
        let item = env.create("vase").await;
        env.change(&item, 5).await;
        has(&env, &mut working, &[(&item, 6)]).await;
        down.restart().await;
        has(&env, &mut down, &[(&item, 6)]).await;
        publisher.stop().await;
    }
}

#[tested(on_both_databases(crate::env::run))]
async fn a_broker_without_memory_gets_every_event_afterwards(env: Arc<TestEnv>) {
    let mut broker = RedisStream::start().await;
    broker.server.run_out_of_memory().await.unwrap();
    let publisher = env.publish(repeating_to(vec![broker.sink()])).await;
    let item = env.create("vase").await;
    env.change(&item, 5).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    broker.server.get_memory_back().await.unwrap();
    has(&env, &mut broker, &[(&item, 6)]).await;
    publisher.stop().await;
}

#[tested(on_both_databases(crate::env::run))]
async fn a_stream_is_bounded(env: Arc<TestEnv>) {
    let mut broker = RedisStream::start().await;
    broker.entries_max = 50;
    let publisher = env.publish(publishing_to(vec![broker.sink()])).await;
    let item = env.create("vase").await;
    env.change(&item, 399).await;
    let last = env.ids(&item, 400).await.pop().unwrap();
    let mut connection = broker.connection().await;
    eventually("the last event", async || {
        let newest = redis::cmd("XREVRANGE")
            .arg(&["shop:events", "+", "-", "COUNT", "1"])
            .to_owned();
        let newest: redis::streams::StreamRangeReply =
            newest.query_async(&mut connection.clone()).await.unwrap();
        newest
            .ids
            .first()
            .is_some_and(|entry| entry.get("id") == Some(last.clone()))
    })
    .await;
    let length = redis::cmd("XLEN").arg("shop:events").to_owned();
    let length: usize = length.query_async(&mut connection).await.unwrap();
    // Redis removes blocks of 100 entries.
    assert!((50..=150).contains(&length), "{length}");
    publisher.stop().await;
}

#[cfg(feature = "amqp")]
mod with_amqp {
    use super::*;
    use crate::brokers::Exchange;

    #[tested(on_both_databases(crate::env::run))]
    async fn an_event_for_which_there_is_no_queue_waits_for_one(env: Arc<TestEnv>) {
        let mut broker = Exchange::without_queue().await;
        let publisher = env.publish(publishing_to(vec![broker.sink()])).await;
        let item = env.create("vase").await;
        env.change(&item, 3).await;
        tokio::time::sleep(Duration::from_millis(500)).await;
        broker.bind().await;
        has(&env, &mut broker, &[(&item, 4)]).await;
        assert_eq!(broker.received().await.len(), 4, "each once");
        publisher.stop().await;
    }
}

#[test]
fn a_url_that_cannot_be_read_is_refused_without_its_password() {
    let redis = |url: &str| SinkSettings::Redis {
        url: url.into(),
        tls: None,
        stream: "events".into(),
        entries_max: 1000,
    };
    assert!(
        redis("redis://user:hunter2@127.0.0.1:6379/1")
            .check()
            .is_ok()
    );
    let sinks = [
        redis("redis://user:hunter2@127.0.0.1:port"),
        SinkSettings::Nats {
            urls: vec!["nats://user:hunter2@127.0.0.1:port".into()],
            tls: None,
            credentials: None,
            stream: "events".into(),
            subject: "shop".into(),
            keep: Duration::ZERO,
        },
        SinkSettings::Amqp {
            url: "amqp://user:hunter2@127.0.0.1:port".into(),
            tls: None,
            exchange: "events".into(),
        },
    ];
    for sink in sinks {
        let error = sink.check().unwrap_err();
        let text = format!("{error} {error:?} {sink:?}");
        assert!(!text.contains("hunter2"), "{text}");
        let name = sink.name();
        let is_built = match name {
            "nats" => cfg!(feature = "nats"),
            "amqp" => cfg!(feature = "amqp"),
            _ => true,
        };
        let expected = match is_built {
            true => "expected ".to_owned(),
            false => format!("{name} is not compiled in; build stockade with `--features {name}`"),
        };
        assert!(error.to_string().starts_with(&expected), "{error}");
    }
}
