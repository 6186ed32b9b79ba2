//! Everything that gets events: receivers of webhooks, and brokers.
//!
//! They note what arrives, and the judge compares it with `GET /v1/events`.

mod broker;
mod inbox;
mod log;
mod receiver;

use std::{
    collections::{BTreeMap, HashSet},
    time::Duration,
};

use anyhow::{Context, Result};
use futures::future::try_join_all;
use serde_json::Value;
use tokio::time::{Instant, sleep};

pub use self::{
    broker::{Broker, BrokerKind},
    inbox::{Delivery, Inbox},
    log::{EventLog, id_of, kind_of},
    receiver::{Behavior, Receiver},
};
use crate::api::Api;

const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The kinds of events that the receivers want; none stands for all.
const KINDS: [&[&str]; 3] = [
    &[],
    &[],
    &["order.confirmed", "order.expired", "cart.confirmed"],
];

/// What one subscriber is to get, and what it has got.
#[derive(Clone, Debug)]
pub struct Subscription {
    /// For findings.
    pub name: String,
    /// The kinds of events; none stands for all.
    pub kinds: Vec<String>,
    /// The position of the first event that it is to get.
    pub first: usize,
    /// What has arrived.
    pub inbox: Inbox,
}

impl Subscription {
    /// Whether events of this kind are for it.
    pub fn wants(&self, event: &Value) -> bool {
        self.kinds.is_empty() || self.kinds.iter().any(|kind| kind == kind_of(event))
    }
}

/// The receivers and brokers of an environment, and the events that it has had.
#[derive(Default)]
pub struct Subscribers {
    /// Receivers of webhooks.
    pub receivers: Vec<Receiver>,
    /// Brokers that get every event.
    pub brokers: Vec<Broker>,
    /// The events of the service.
    pub log: EventLog,
    /// What the rounds before have judged.
    pub judged: Judged,
}

/// What was judged so far.
#[derive(Default)]
pub struct Judged {
    /// Numbers of events and deliveries.
    pub counts: EventCounts,
    /// What was found to be wrong.
    pub findings: HashSet<String>,
}

/// Numbers of events and deliveries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventCounts {
    /// Number of events.
    pub events: usize,
    /// What each subscriber was to get and has got, by its name.
    pub subscribers: BTreeMap<String, DeliveryCounts>,
}

/// What one subscriber was to get and has got.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeliveryCounts {
    /// Number of events that it was to get.
    pub sent: usize,
    /// Number of deliveries, repeats included.
    pub deliveries: usize,
    /// Number of deliveries of an event that it had got before.
    pub doubled: usize,
}

impl Subscribers {
    /// Starts the receivers, and brokers of these kinds.
    pub(crate) async fn start(brokers: Vec<BrokerKind>) -> Result<Self> {
        let mut subscribers = Self::default();
        for (number, kinds) in (1..).zip(KINDS) {
            let receiver = Receiver::start(format!("receiver-{number}"), kinds);
            subscribers.receivers.push(receiver.await?);
        }
        let brokers = brokers.into_iter().map(async |kind| {
            let broker = Broker::start(kind).await;
            broker.with_context(|| format!("the broker {kind}"))
        });
        subscribers.brokers = try_join_all(brokers).await?;
        Ok(subscribers)
    }

    /// The settings that name the brokers.
    pub fn settings(&self) -> Vec<(&'static str, String)> {
        self.brokers.iter().map(Broker::setting).collect()
    }

    /// Creates the webhooks. Nothing else may happen meanwhile, because a webhook begins with the
    /// events to come.
    pub(crate) async fn subscribe(&mut self, api: &Api) -> Result<()> {
        self.log.read(api).await?;
        for receiver in &mut self.receivers {
            let secret = api.create_webhook(receiver.url(), receiver.kinds()).await;
            let secret = secret.context("creating a webhook")?;
            receiver.begin(&secret, self.log.events.len())?;
        }
        Ok(())
    }

    /// Waits until every subscriber has all events so far, or returns what one lacks.
    pub(crate) async fn catch_up(&mut self, api: &Api, timeout: Duration) -> Result<(), String> {
        let deadline = Instant::now() + timeout;
        let mut read = self.log.read(api).await;
        while read.is_err() && Instant::now() < deadline {
            sleep(POLL_INTERVAL).await;
            read = self.log.read(api).await;
        }
        read.map_err(|error| format!("the events could not be read: {error:#}"))?;
        loop {
            let read = self.read_brokers().await;
            let lacking = match read {
                Err(error) => Some(format!("{error:#}")),
                Ok(()) => self.lacking(),
            };
            let Some(lacking) = lacking else {
                return Ok(());
            };
            if Instant::now() > deadline {
                return Err(format!(
                    "events were not delivered after {timeout:?}: {lacking}"
                ));
            }
            sleep(POLL_INTERVAL).await;
        }
    }

    /// Reads what the brokers have got since the last call.
    pub(crate) async fn read_brokers(&mut self) -> Result<()> {
        for broker in &mut self.brokers {
            let kind = broker.kind;
            let read = broker.read().await;
            read.with_context(|| format!("reading from the broker {kind}"))?;
        }
        Ok(())
    }

    fn lacking(&self) -> Option<String> {
        self.subscriptions().iter().find_map(|subscription| {
            let events = self.log.events.iter().skip(subscription.first);
            let mut lacking = events
                .filter(|event| subscription.wants(event))
                .filter(|event| !subscription.inbox.has(id_of(event)));
            let first = lacking.next()?;
            let count = 1 + lacking.count();
            let name = &subscription.name;
            Some(format!("{name} lacks {count} events, the first is {first}"))
        })
    }

    /// What each subscriber has got so far.
    pub fn subscriptions(&self) -> Vec<Subscription> {
        let receivers = self.receivers.iter().map(Receiver::subscription);
        receivers
            .chain(self.brokers.iter().map(Broker::subscription))
            .collect()
    }
}
