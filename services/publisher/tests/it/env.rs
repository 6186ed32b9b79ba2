//! A ledger, publishers of it, and changes that write events.

use std::{sync::Arc, time::Duration};

use domain::{ItemId, ItemState};
use events::TargetPolicy;
use ledger::{Created, EventCursor, Events, ItemChange, Ledger, NewWebhook, Webhook};
use publisher::PublisherSettings;
use testkit::{Backend, Database, eventually, eventually_some, in_time, items, show_logs, timeout};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::receiver::Receiver;

pub async fn run<T: AsyncFnOnce(Arc<TestEnv>)>(backend: Backend, test: T) {
    show_logs();
    let database = Database::new(backend).await;
    let ledger = database.ledger().await;
    test(Arc::new(TestEnv { database, ledger })).await;
}

pub struct TestEnv {
    database: Database,
    pub ledger: Arc<dyn Ledger>,
}

/// A running publisher.
pub struct Running {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Running {
    pub async fn stop(self) {
        self.stop.cancel();
        in_time("the end of the publisher", self.task)
            .await
            .unwrap();
    }

    /// Ends it in the middle of whatever it does, as a crash would.
    pub async fn crash(self) {
        self.task.abort();
        assert!(self.task.await.unwrap_err().is_cancelled());
    }
}

/// How long a test waits for the webhooks and sinks of a publisher that has crashed.
pub const SHORT_LEASE: Duration = Duration::from_secs(2);

/// Polls often, and repeats soon.
pub fn settings() -> PublisherSettings {
    PublisherSettings {
        targets: TargetPolicy { private: true },
        poll_interval: Duration::from_millis(20),
        request_timeout: timeout(),
        retry_pause: Duration::from_millis(20),
        retry_pause_max: Duration::from_millis(100),
        ..PublisherSettings::default()
    }
}

impl TestEnv {
    pub async fn publish(&self, settings: PublisherSettings) -> Running {
        // With its own connections, as in another process.
        let (ledger, stop) = (self.database.ledger().await, CancellationToken::new());
        let stopped = stop.clone();
        let task = tokio::spawn(async move {
            publisher::run(ledger, settings, stopped).await.unwrap();
        });
        Running { stop, task }
    }

    pub async fn webhook(&self, receiver: &Receiver, kinds: &[&str]) -> Uuid {
        let webhook = NewWebhook {
            id: Uuid::new_v4(),
            url: receiver.url.clone(),
            kinds: kinds.iter().map(ToString::to_string).collect(),
            secret: receiver.secret.clone(),
        };
        self.ledger.add_webhook(&webhook, 100).await.unwrap();
        webhook.id
    }

    pub async fn create(&self, name: &str) -> ItemId {
        let id = ItemId::new(name).unwrap();
        let item = items::item(id.clone(), 10, 1);
        let created = self.ledger.create_item(&item).await.unwrap();
        assert!(matches!(created, Created::New(_)));
        id
    }

    /// Changes the state `times` times: an event each.
    pub async fn change(&self, item: &ItemId, times: usize) {
        for _ in 0..times {
            let now = self.ledger.item(item).await.unwrap().unwrap();
            let state = match now.state {
                ItemState::Open => ItemState::Paused,
                _ => ItemState::Open,
            };
            let change = ItemChange {
                state: Some(state),
                ..ItemChange::default()
            };
            let changed = self.ledger.change_item(item, &change, None, "admin").await;
            changed.unwrap();
        }
    }

    pub async fn state_of(&self, id: Uuid) -> Webhook {
        let all = self.ledger.webhooks().await.unwrap();
        all.into_iter()
            .find(|webhook| webhook.webhook.id == id)
            .unwrap()
    }

    /// The ids of all events of this item, in order.
    pub async fn ids(&self, item: &ItemId, expected: usize) -> Vec<String> {
        eventually_some("all events", async || {
            let Events::Page(page) = self.ledger.events(EventCursor::START, 1000).await.unwrap()
            else {
                panic!("nothing was removed");
            };
            let of_item = page.into_iter().filter(|event| event.item == *item);
            let ids: Vec<_> = of_item.map(|event| event.cursor.to_string()).collect();
            (ids.len() == expected).then_some(ids)
        })
        .await
    }

    /// Waits until the receiver has accepted exactly these events.
    pub async fn has(&self, receiver: &Receiver, ids: &[String]) {
        eventually("the delivery of all events", async || {
            receiver.accepted().len() >= ids.len()
        })
        .await;
        let accepted = receiver.accepted();
        assert_eq!(
            accepted.iter().map(|one| &one.id).collect::<Vec<_>>(),
            ids.iter().collect::<Vec<_>>()
        );
    }
}
