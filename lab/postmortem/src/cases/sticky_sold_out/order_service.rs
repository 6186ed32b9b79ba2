//! The order service caches that the stock was empty, so that a sold-out item causes no load on
//! Redis.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use anyhow::Result;
use futures::StreamExt;
use redis::{Script, aio::MultiplexedConnection};
use tokio::{sync::watch, task::JoinHandle, time::sleep};

use crate::{
    point::Point,
    timeline::{Event, Lane},
};

/// Counter of units that are left, and number of returns so far.
pub(super) const LEFT: &str = "concert:left";
const EPOCH: &str = "concert:epoch";
/// Channel on which returns are published.
const CHANNEL: &str = "concert:returned";
const RESUBSCRIBE_DELAY: Duration = Duration::from_millis(20);

/// What invalidates the flag.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Clearing {
    /// A return at this service.
    pub by_own_return: bool,
    /// A message about a return.
    pub by_message: bool,
    /// A return since the stock was read.
    pub by_epoch: bool,
    /// A lifetime.
    pub after: Option<Duration>,
}

/// State of a service.
#[derive(Debug, Default)]
struct Cache {
    /// Epoch and time of the read that found the stock empty.
    sold_out: Option<(u64, Instant)>,
    /// Latest epoch of a received message.
    epoch: u64,
}

/// An order service.
pub(super) struct OrderService {
    pub lane: Lane,
    redis: MultiplexedConnection,
    clearing: Clearing,
    cache: Arc<Mutex<Cache>>,
    subscription: Option<Subscription>,
}

/// A subscription that is renewed when it breaks.
struct Subscription {
    task: JoinHandle<()>,
    subscribed: watch::Receiver<usize>,
    received: watch::Receiver<u64>,
}

impl OrderService {
    /// Starts a service that receives messages through this address.
    pub async fn start(
        lane: Lane,
        redis: MultiplexedConnection,
        messages_url: String,
        clearing: Clearing,
    ) -> Result<Self> {
        let cache = Arc::<Mutex<Cache>>::default();
        let subscription = clearing
            .by_message
            .then(|| Subscription::start(messages_url, Arc::clone(&cache), clearing, lane.clone()));
        let service = Self {
            lane,
            redis,
            clearing,
            cache,
            subscription,
        };
        service.wait_for_subscription(1).await;
        Ok(service)
    }

    /// Sells a unit. If none is left, the point `read_empty` is between the read and the flag.
    pub async fn buy(&self, read_empty: Option<&Point>) -> Result<bool> {
        if self.is_sold_out() {
            return Ok(false);
        }
        let (sold, epoch) = self.take().await?;
        if sold {
            self.lane.notes(Event::Sale, "sells a unit");
            return Ok(true);
        }
        let read_at = Instant::now();
        if let Some(point) = read_empty {
            point.pass().await;
        }
        cache(&self.cache).sold_out = Some((epoch, read_at));
        self.lane.notes(Event::Refused, "sets the flag: sold out");
        Ok(false)
    }

    /// Returns units to the stock.
    pub async fn return_units(&self, units: u64) -> Result<()> {
        let script = "redis.call('INCRBY', KEYS[1], ARGV[1]) local epoch = redis.call('INCR', KEYS[2]) redis.call('PUBLISH', KEYS[3], epoch)";
        let script = Script::new(script);
        let () = script
            .key(LEFT)
            .key(EPOCH)
            .key(CHANNEL)
            .arg(units)
            .invoke_async(&mut self.redis.clone())
            .await?;
        self.lane
            .notes(Event::Write, format!("returns {units} units"));
        if self.clearing.by_own_return {
            cache(&self.cache).sold_out = None;
        }
        Ok(())
    }

    /// Waits until it has subscribed this many times, if it subscribes at all.
    pub async fn wait_for_subscription(&self, times: usize) {
        if let Some(subscription) = &self.subscription {
            let _ = subscription
                .subscribed
                .clone()
                .wait_for(|subscribed| *subscribed >= times)
                .await;
        }
    }

    /// Waits until it has received the message of this epoch, if it subscribes at all.
    pub async fn wait_for_message(&self, epoch: u64) {
        if let Some(subscription) = &self.subscription {
            let _ = subscription
                .received
                .clone()
                .wait_for(|received| *received >= epoch)
                .await;
        }
    }

    fn is_sold_out(&self) -> bool {
        let cache = cache(&self.cache);
        let Some((epoch, read_at)) = cache.sold_out else {
            return false;
        };
        let is_old = self.clearing.by_epoch && epoch < cache.epoch;
        !is_old
            && self
                .clearing
                .after
                .is_none_or(|lifetime| read_at.elapsed() < lifetime)
    }

    async fn take(&self) -> Result<(bool, u64)> {
        let script = "local epoch = tonumber(redis.call('GET', KEYS[2]) or '0')
                      if tonumber(redis.call('GET', KEYS[1])) < 1 then return {0, epoch} end
                      redis.call('DECR', KEYS[1])
                      return {1, epoch}";
        Ok(Script::new(script)
            .key(LEFT)
            .key(EPOCH)
            .invoke_async(&mut self.redis.clone())
            .await?)
    }
}

impl Subscription {
    fn start(url: String, cache: Arc<Mutex<Cache>>, clearing: Clearing, lane: Lane) -> Self {
        let (subscribed, is_subscribed) = watch::channel(0);
        let (received, has_received) = watch::channel(0);
        let task = tokio::spawn(async move {
            loop {
                // Messages that are published while there is no subscription are lost.
                if listen(&url, &cache, clearing, &lane, &subscribed, &received)
                    .await
                    .is_err()
                {
                    sleep(RESUBSCRIBE_DELAY).await;
                }
            }
        });
        Self {
            task,
            subscribed: is_subscribed,
            received: has_received,
        }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn listen(
    url: &str,
    cache: &Mutex<Cache>,
    clearing: Clearing,
    lane: &Lane,
    subscribed: &watch::Sender<usize>,
    received: &watch::Sender<u64>,
) -> Result<()> {
    let mut messages = redis::Client::open(url)?.get_async_pubsub().await?;
    messages.subscribe(CHANNEL).await?;
    subscribed.send_modify(|subscribed| *subscribed += 1);
    let mut messages = messages.on_message();
    while let Some(message) = messages.next().await {
        let epoch: u64 = message.get_payload()?;
        lane.notes(Event::Note, "receives the message of a return");
        let mut cache = self::cache(cache);
        cache.epoch = cache.epoch.max(epoch);
        if !clearing.by_epoch {
            cache.sold_out = None;
        }
        drop(cache);
        received.send_replace(epoch);
    }
    anyhow::bail!("the subscription to Redis ended")
}

fn cache(cache: &Mutex<Cache>) -> MutexGuard<'_, Cache> {
    cache.lock().unwrap_or_else(PoisonError::into_inner)
}
