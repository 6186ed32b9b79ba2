//! The order service: it remembers that the stock was empty, so that a sold-out item costs Redis nothing.

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

/// Units that are left, and how often some have come back.
pub(super) const LEFT: &str = "concert:left";
const EPOCH: &str = "concert:epoch";
/// Where it is told that units have come back.
const CHANNEL: &str = "concert:returned";
const SUBSCRIBE_AGAIN_AFTER: Duration = Duration::from_millis(20);

/// What ends the flag.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Clearing {
    /// A return that comes in at this service.
    pub by_own_return: bool,
    /// A message.
    pub by_message: bool,
    /// A flag is worth nothing if units have come back since the stock was read.
    pub by_epoch: bool,
    /// Time.
    pub after: Option<Duration>,
}

/// What a service knows.
#[derive(Debug, Default)]
struct Known {
    /// The stock was empty: as of this epoch, read at this time.
    sold_out: Option<(u64, Instant)>,
    /// The latest epoch that it has heard of.
    epoch: u64,
}

/// An order service.
pub(super) struct OrderService {
    pub lane: Lane,
    redis: MultiplexedConnection,
    clearing: Clearing,
    known: Arc<Mutex<Known>>,
    listening: Option<Listening>,
}

/// A subscription that is renewed when it breaks.
struct Listening {
    task: JoinHandle<()>,
    subscribed: watch::Receiver<usize>,
    heard: watch::Receiver<u64>,
}

impl OrderService {
    /// One that hears messages through this address.
    pub async fn start(
        lane: Lane,
        redis: MultiplexedConnection,
        messages_url: String,
        clearing: Clearing,
    ) -> Result<Self> {
        let known = Arc::<Mutex<Known>>::default();
        let listening = clearing
            .by_message
            .then(|| Listening::start(messages_url, Arc::clone(&known), clearing, lane.clone()));
        let service = Self {
            lane,
            redis,
            clearing,
            known,
            listening,
        };
        service.is_subscribed(1).await;
        Ok(service)
    }

    /// Sells a unit. Where none is left, `read_empty` lies between that look and what follows from it.
    pub async fn buy(&self, read_empty: Option<&Point>) -> Result<bool> {
        if self.says_sold_out() {
            return Ok(false);
        }
        let (sold, epoch) = self.take().await?;
        if sold {
            self.lane.notes(Event::Sale, "sells one");
            return Ok(true);
        }
        let read_at = Instant::now();
        if let Some(point) = read_empty {
            point.pass().await;
        }
        known(&self.known).sold_out = Some((epoch, read_at));
        self.lane.notes(Event::Refused, "remembers: sold out");
        Ok(false)
    }

    /// Takes units in that somebody has returned.
    pub async fn take_back(&self, units: u64) -> Result<()> {
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
            .notes(Event::Write, format!("takes {units} units back"));
        if self.clearing.by_own_return {
            known(&self.known).sold_out = None;
        }
        Ok(())
    }

    /// Waits until it has subscribed so often, if it listens at all.
    pub async fn is_subscribed(&self, times: usize) {
        if let Some(listening) = &self.listening {
            let _ = listening
                .subscribed
                .clone()
                .wait_for(|subscribed| *subscribed >= times)
                .await;
        }
    }

    /// Waits until it has heard of this epoch, if it listens at all.
    pub async fn has_heard(&self, epoch: u64) {
        if let Some(listening) = &self.listening {
            let _ = listening
                .heard
                .clone()
                .wait_for(|heard| *heard >= epoch)
                .await;
        }
    }

    fn says_sold_out(&self) -> bool {
        let known = known(&self.known);
        let Some((epoch, read_at)) = known.sold_out else {
            return false;
        };
        let is_old = self.clearing.by_epoch && epoch < known.epoch;
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

impl Listening {
    fn start(url: String, known: Arc<Mutex<Known>>, clearing: Clearing, lane: Lane) -> Self {
        let (subscribed, is_subscribed) = watch::channel(0);
        let (heard, has_heard) = watch::channel(0);
        let task = tokio::spawn(async move {
            loop {
                // What is published while there is no subscription is published to nobody.
                if listen(&url, &known, clearing, &lane, &subscribed, &heard)
                    .await
                    .is_err()
                {
                    sleep(SUBSCRIBE_AGAIN_AFTER).await;
                }
            }
        });
        Self {
            task,
            subscribed: is_subscribed,
            heard: has_heard,
        }
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn listen(
    url: &str,
    known: &Mutex<Known>,
    clearing: Clearing,
    lane: &Lane,
    subscribed: &watch::Sender<usize>,
    heard: &watch::Sender<u64>,
) -> Result<()> {
    let mut messages = redis::Client::open(url)?.get_async_pubsub().await?;
    messages.subscribe(CHANNEL).await?;
    subscribed.send_modify(|subscribed| *subscribed += 1);
    let mut messages = messages.on_message();
    while let Some(message) = messages.next().await {
        let epoch: u64 = message.get_payload()?;
        lane.notes(Event::Note, "hears of a return");
        let mut known = self::known(known);
        known.epoch = known.epoch.max(epoch);
        if !clearing.by_epoch {
            known.sold_out = None;
        }
        drop(known);
        heard.send_replace(epoch);
    }
    anyhow::bail!("the connection was cut")
}

fn known(known: &Mutex<Known>) -> MutexGuard<'_, Known> {
    known.lock().unwrap_or_else(PoisonError::into_inner)
}
