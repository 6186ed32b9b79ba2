//! The publisher: sends events to webhooks and to sinks, in order, until each receiver has accepted
//! them.
//!
//! A publisher leases webhooks in the ledger, and each has a task of its own, so that a receiver
//! that fails or hangs delays no other. A webhook's position moves only after its receiver has
//! accepted an event. A crash in between sends the event again, under the same id. Any number of
//! publishers may run.
//!
//! A sink is a broker that the settings name: a Redis stream, NATS JetStream or AMQP. It has a
//! lease, a position and a task of its own as well, and needs no rows of users.
//!
//! The publisher also removes events that are too old. It contains no table name and no route of
//! the API.

mod delivery;
mod removal;
mod retry;
mod sinks;

use std::{
    collections::{HashMap, HashSet},
    fmt, io,
    sync::Arc,
    time::Duration,
};

use events::{Sender, TargetPolicy};
use futures::{
    FutureExt as _,
    future::{BoxFuture, join_all},
};
use jiff::Timestamp;
use ledger::{ClocksDiffer, Ledger, LedgerError, Webhook, earlier_time};
use supervision::{ErrorLatch, supervise};
use tokio::{
    sync::Notify,
    task::JoinHandle,
    time::{Instant, timeout},
};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

pub use crate::sinks::{SinkError, SinkSettings};

/// Settings of the publisher.
#[derive(Debug, Clone)]
pub struct PublisherSettings {
    /// Which addresses webhooks may have.
    pub targets: TargetPolicy,
    /// PEM file of authorities that sign the certificates of webhooks, besides those that browsers
    /// trust.
    pub authority: Option<Vec<u8>>,
    /// How often it looks for events and for webhooks.
    pub poll_interval: Duration,
    /// How long a webhook stays with a publisher that has crashed.
    pub lease: Duration,
    /// How long a receiver may take to answer.
    pub request_timeout: Duration,
    /// Pause after the first failed attempt; it doubles with each further one.
    pub retry_pause: Duration,
    /// Upper bound of that pause.
    pub retry_pause_max: Duration,
    /// A webhook whose attempts have failed for so long is disabled.
    pub give_up_after: Duration,
    /// How long events are kept.
    pub keep: Duration,
    /// How often it looks for events that are too old.
    pub removal_interval: Duration,
    /// Brokers that get every event, one of a kind at most.
    pub sinks: Vec<SinkSettings>,
    /// This process's clock. The ledger's is compared with it before events are removed, and before
    /// a webhook is given up.
    pub clock: fn() -> Timestamp,
    /// The clock of another store, which is compared before events are removed. A ledger in a file
    /// has no clock but this process's.
    pub store_clock: Option<StoreClock>,
}

type BoxError = Box<dyn std::error::Error + Send + Sync>;

type Reading = BoxFuture<'static, Result<Timestamp, BoxError>>;

/// Reads the time of a store.
#[derive(Clone)]
pub struct StoreClock(Arc<dyn Fn() -> Reading + Send + Sync>);

impl StoreClock {
    /// A clock that is read like this.
    pub fn new<F, E>(read: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<Timestamp, E>> + Send + 'static,
        E: Into<BoxError>,
    {
        let read = move || -> Reading {
            let reading = read();
            async move { reading.await.map_err(|error| -> BoxError { error.into() }) }.boxed()
        };
        Self(Arc::new(read))
    }
}

impl fmt::Debug for StoreClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreClock").finish_non_exhaustive()
    }
}

impl Default for PublisherSettings {
    fn default() -> Self {
        Self {
            targets: TargetPolicy::default(),
            authority: None,
            poll_interval: Duration::from_millis(500),
            lease: Duration::from_secs(30),
            request_timeout: Duration::from_secs(15),
            retry_pause: Duration::from_secs(5),
            retry_pause_max: Duration::from_secs(3600),
            give_up_after: Duration::from_secs(3 * 24 * 3600),
            keep: Duration::from_secs(30 * 24 * 3600),
            removal_interval: Duration::from_secs(60),
            sinks: Vec::new(),
            clock: Timestamp::now,
            store_clock: None,
        }
    }
}

/// Why an act that cannot be undone was put off. It is retried.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PublisherError {
    /// A call of the ledger failed.
    #[error("a ledger operation failed")]
    Ledger(#[from] LedgerError),
    /// This process's clock and a store's differ so much that one of them is wrong.
    #[error("the clock of a store is another one, so no event is removed")]
    Clock(#[from] ClocksDiffer),
    /// The other store did not tell its time.
    #[error("the clock of a store could not be read, so no event is removed")]
    StoreClock(#[source] BoxError),
}

/// State that the tasks of a publisher share.
pub(crate) struct Publisher {
    ledger: Arc<dyn Ledger>,
    settings: PublisherSettings,
    sender: Sender,
    /// The name under which it leases webhooks.
    id: Uuid,
    stop: CancellationToken,
    leasing: ErrorLatch,
    removing: ErrorLatch,
}

const ERRORS: &str = "stockade_publisher_errors_total";

/// Publishes until `stop`, then waits a moment for the requests that are under way and ends its
/// leases.
/// Dropping the future stops everything immediately; its webhooks then wait until their leases end.
pub async fn run(
    ledger: Arc<dyn Ledger>,
    settings: PublisherSettings,
    stop: CancellationToken,
) -> io::Result<()> {
    let publisher = Arc::new(Publisher {
        sender: Sender::new(
            settings.targets,
            settings.request_timeout,
            settings.authority.as_deref(),
        )?,
        ledger,
        settings,
        id: Uuid::new_v4(),
        stop,
        leasing: ErrorLatch::new("leasing webhooks", ERRORS),
        removing: ErrorLatch::new("removing old events", ERRORS),
    });
    let publishing = supervise("publishing", || publish(Arc::clone(&publisher)));
    let removing = supervise("removing old events", || removal::run(&publisher));
    let sinks = publisher.settings.sinks.iter();
    let sinks = join_all(
        sinks.map(|sink| supervise("publishing to a sink", || sinks::run(&publisher, sink))),
    );
    tokio::join!(publishing, removing, sinks);
    Ok(())
}

/// The tasks of the leased webhooks. Dropping it aborts them.
#[derive(Default)]
struct Tasks(HashMap<Uuid, Task>);

struct Task {
    handle: JoinHandle<()>,
    /// Ends the task's present pause.
    wake: Arc<Notify>,
}

impl Drop for Task {
    fn drop(&mut self) {
        self.handle.abort();
    }
}

async fn publish(publisher: Arc<Publisher>) {
    let (mut tasks, mut renewed) = (Tasks::default(), None);
    loop {
        match look(&publisher, &mut tasks, &mut renewed).await {
            Ok(()) => publisher.leasing.recovered(),
            Err(error) => publisher.leasing.failed(&error),
        }
        if publisher
            .is_stopped_after(publisher.settings.poll_interval)
            .await
        {
            break;
        }
    }
    for (_, mut task) in tasks.0 {
        task.wake.notify_one();
        let _ = (&mut task.handle).await;
    }
    let released = publisher.ledger.release_webhooks(publisher.id);
    if let Ok(Err(error)) = timeout(RELEASE_TIMEOUT, released).await {
        tracing::debug!(
            error = &error as &dyn std::error::Error,
            "could not release webhooks"
        );
    }
}

/// Leases end by themselves, so a shutdown does not wait long for a ledger that is down.
pub(crate) const RELEASE_TIMEOUT: Duration = Duration::from_secs(2);

/// Starts tasks for new webhooks, and ends those of removed ones. Renews the leases in time.
async fn look(
    publisher: &Arc<Publisher>,
    tasks: &mut Tasks,
    renewed: &mut Option<Instant>,
) -> Result<(), LedgerError> {
    let webhooks = publisher.ledger.webhooks().await?;
    let present = ids(&webhooks);
    tasks
        .0
        .retain(|id, task| !task.handle.is_finished() && present.contains(id));
    for webhook in webhooks.iter().filter(|webhook| webhook.failures == 0) {
        // An operator may have enabled it in the middle of a long pause.
        if let Some(task) = tasks.0.get(&webhook.webhook.id) {
            task.wake.notify_one();
        }
    }
    let is_new = |webhook: &Webhook| {
        webhook.disabled_at.is_none() && !tasks.0.contains_key(&webhook.webhook.id)
    };
    let is_due = renewed.is_none_or(|at| at.elapsed() * 3 >= publisher.settings.lease);
    if webhooks.iter().any(is_new) || (is_due && !tasks.0.is_empty()) {
        let lease = publisher.settings.lease;
        let leased = publisher.ledger.lease_webhooks(publisher.id, lease).await?;
        *renewed = Some(Instant::now());
        tasks.keep_up_with(publisher, leased);
    }
    Ok(())
}

fn ids(webhooks: &[Webhook]) -> HashSet<Uuid> {
    webhooks.iter().map(|webhook| webhook.webhook.id).collect()
}

impl Tasks {
    /// Starts the missing tasks, and ends those whose webhook another publisher has now.
    fn keep_up_with(&mut self, publisher: &Arc<Publisher>, leased: Vec<Webhook>) {
        let ours = ids(&leased);
        self.0.retain(|id, _| ours.contains(id));
        for webhook in leased {
            self.0.entry(webhook.webhook.id).or_insert_with(|| {
                let wake = Arc::new(Notify::new());
                let delivery = delivery::run(Arc::clone(publisher), webhook, Arc::clone(&wake));
                Task {
                    handle: tokio::spawn(delivery),
                    wake,
                }
            });
        }
    }
}

impl Publisher {
    /// Returns when the publisher was stopped so long ago.
    pub(crate) async fn stopped_for(&self, grace: Duration) {
        self.stop.cancelled().await;
        tokio::time::sleep(grace).await;
    }

    /// The earliest of this process's time and those of the stores. An error if one of them differs
    /// by seconds from ours.
    pub(crate) async fn earliest_time(&self) -> Result<Timestamp, PublisherError> {
        let own = (self.settings.clock)();
        let by_ledger = earlier_time(own, self.ledger.time().await?)?;
        let Some(StoreClock(read)) = &self.settings.store_clock else {
            return Ok(by_ledger);
        };
        let own = (self.settings.clock)();
        let by_store = earlier_time(own, read().await.map_err(PublisherError::StoreClock)?)?;
        Ok(by_ledger.min(by_store))
    }

    /// Pauses. Returns whether the publisher stops.
    pub(crate) async fn is_stopped_after(&self, pause: Duration) -> bool {
        timeout(pause, self.stop.cancelled()).await.is_ok()
    }
}
