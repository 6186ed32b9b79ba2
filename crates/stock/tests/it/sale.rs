//! One item on sale: its instances, its buyers, and a look at its keys that does not go through the
//! crate.

use std::{
    collections::{BTreeMap, BTreeSet},
    pin::Pin,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use domain::{
    BuyerId, Change, Durability, Entry, EntryId, IdempotencyKey, Item, ItemId, ItemState, OrderId,
    Quantity, SegmentKey, TakenOrder, Window,
};
use futures::{Stream, StreamExt};
use redis::{Cmd, FromRedisValue, Msg, ToRedisArgs};
use stock::{
    Acknowledge, Halted, Inspection, InspectionEntries, ItemStock, OldMemory, Outcome, Release,
    Reservation, Restoration, StateSet, Stock, StockError,
};

pub use testbed::eventually;
use testbed::{in_time, timeout};

use crate::site::Site;

/// What is sold.
pub struct Terms {
    pub stock: u64,
    pub segments: u16,
    pub limit: Option<u32>,
    pub window: Window,
    pub state: ItemState,
    pub durability: Durability,
}

impl Terms {
    pub fn new(stock: u64, segments: u16) -> Self {
        Self {
            stock,
            segments,
            limit: None,
            window: Window::default(),
            state: ItemState::Open,
            durability: Durability::Accepted,
        }
    }

    pub fn limit(self, units: u32) -> Self {
        Self {
            limit: Some(units),
            ..self
        }
    }
}

/// An item on sale.
pub struct Sale {
    pub site: Arc<Site>,
    pub item: Item,
    /// The first instance. Others are made by [`Sale::instance`].
    pub stock: Arc<Stock>,
    /// Units that the test released to a segment by hand. The outbox does not know of them.
    pub given_back: Mutex<BTreeMap<u16, i64>>,
    /// Entries that the test had trimmed, or lost.
    pub trimmed: Mutex<BTreeMap<u16, Vec<Entry>>>,
    /// Segments that have lost their keys.
    pub lost: Mutex<BTreeSet<u16>>,
}

/// The keys of a segment, as `lua/` and `reservation.md` have them.
pub struct Names {
    pub stock: String,
    pub decisions: String,
    pub buyers: String,
    pub outbox: String,
    pub spillovers: String,
}

/// Everything that Redis has of a segment, in comparable form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dump {
    pub stock: BTreeMap<String, String>,
    pub decisions: BTreeMap<Vec<u8>, String>,
    pub buyers: BTreeMap<String, i64>,
    /// Of those the ones who gave something back, apart from the counts.
    pub gave_back: BTreeSet<String>,
    pub spillovers: BTreeMap<Vec<u8>, String>,
    pub outbox: u64,
}

pub async fn open(site: &Arc<Site>, terms: Terms) -> Arc<Sale> {
    open_with(site, terms, site.instance().await).await
}

pub async fn open_with(site: &Arc<Site>, terms: Terms, stock: Arc<Stock>) -> Arc<Sale> {
    let item = Item {
        id: ItemId::new(site.fresh_name()).unwrap(),
        title: "Item".into(),
        stock: terms.stock,
        price: 1,
        currency: "EUR".into(),
        limit_per_buyer: terms.limit.map(|units| Quantity::new(units).unwrap()),
        segments: terms.segments,
        window: terms.window,
        hold_seconds: 600,
        max_hold_seconds: 600,
        max_per_order: None,
        waves: Vec::new(),
        new_price: None,
        durability: terms.durability,
        state: terms.state,
        epoch: 1,
        version: 1,
    };
    assert_eq!(
        stock.open(&item).await.unwrap(),
        usize::from(terms.segments)
    );
    let (given_back, trimmed, lost) = Default::default();
    let sale = Arc::new(Sale {
        site: Arc::clone(site),
        item,
        stock,
        given_back,
        trimmed,
        lost,
    });
    site.sales.lock().unwrap().push(Arc::clone(&sale));
    sale
}

impl Names {
    /// In the order of KEYS of the scripts that take them all.
    pub fn all(&self) -> [&String; 5] {
        [
            &self.stock,
            &self.decisions,
            &self.buyers,
            &self.outbox,
            &self.spillovers,
        ]
    }
}

impl Sale {
    /// The item as the first instance has it.
    pub fn at_first(&self) -> Arc<ItemStock> {
        self.stock.item(&self.item)
    }

    /// The item as one more process has it.
    pub async fn instance(&self) -> Arc<ItemStock> {
        self.site.instance().await.item(&self.item)
    }

    /// Opens, pauses or closes every segment.
    pub async fn set_state(
        &self,
        state: ItemState,
        epoch: u64,
    ) -> Result<Vec<StateSet>, StockError> {
        self.stock
            .configure(&Item {
                state,
                epoch,
                ..self.item.clone()
            })
            .await
    }

    pub fn segment(&self, segment: u16) -> SegmentKey {
        SegmentKey {
            item: self.item.id.clone(),
            segment,
        }
    }

    pub fn order_id(&self, buyer: &BuyerId, key: &str) -> OrderId {
        OrderId::derive(
            &self.item.id,
            self.item.id.tag(),
            buyer,
            &IdempotencyKey::new(key).unwrap(),
        )
    }

    pub fn reservation(&self, buyer: &BuyerId, key: &str, units: u32) -> Reservation {
        Reservation {
            order: self.order_id(buyer, key),
            buyer: buyer.clone(),
            quantity: Quantity::new(units).unwrap(),
            acknowledge: Acknowledge::Accepted,
            within: timeout(),
        }
    }

    /// Orders at the first instance.
    pub async fn order(&self, buyer: &BuyerId, key: &str, units: u32) -> Outcome {
        self.try_order(buyer, key, units).await.unwrap()
    }

    /// Whether the buyer holds the units that are ordered at the first instance.
    pub async fn sells(&self, buyer: &BuyerId, key: &str, units: u32) -> bool {
        is_held(&self.order(buyer, key, units).await)
    }

    /// Orders at another instance.
    pub async fn order_at(
        &self,
        instance: &ItemStock,
        buyer: &BuyerId,
        key: &str,
        units: u32,
    ) -> Outcome {
        let outcome = instance.order(self.reservation(buyer, key, units)).await;
        outcome.unwrap()
    }

    /// As `order`, where the stock may be out of reach.
    pub async fn try_order(
        &self,
        buyer: &BuyerId,
        key: &str,
        units: u32,
    ) -> Result<Outcome, StockError> {
        self.at_first()
            .order(self.reservation(buyer, key, units))
            .await
    }

    /// The n-th buyer whose home is this segment.
    pub fn buyer_at(&self, home: u16, n: usize) -> BuyerId {
        let at_home = |buyer: &BuyerId| {
            buyer.stable_hash() % u64::from(self.item.segments) == u64::from(home)
        };
        (0..).map(buyer).filter(at_home).nth(n).unwrap()
    }

    pub fn names(&self, segment: u16) -> Names {
        let tag = format!("{{{}:{segment}}}", self.item.id);
        Names {
            stock: format!("stock:{tag}"),
            decisions: format!("decisions:{tag}"),
            buyers: format!("buyers:{tag}"),
            outbox: format!("outbox:{tag}"),
            spillovers: format!("spillovers:{tag}"),
        }
    }

    /// Runs a command on the server as it is. Reads are tried again if the server has been
    /// restarted meanwhile.
    pub async fn redis<T: FromRedisValue>(&self, cmd: &Cmd) -> T {
        let deadline = Instant::now() + timeout();
        loop {
            match self.try_redis(cmd).await {
                Err(error) if error.is_io_error() && Instant::now() < deadline => {
                    tokio::time::sleep(Duration::from_millis(20)).await
                }
                result => return result.unwrap(),
            }
        }
    }

    pub async fn try_redis<T: FromRedisValue>(&self, cmd: &Cmd) -> redis::RedisResult<T> {
        cmd.query_async(&mut self.site.redis.clone()).await
    }

    /// Runs a command that answers nothing but that it was done.
    pub async fn run(&self, words: &[&str]) {
        let mut cmd = redis::cmd(words[0]);
        let () = self.redis(cmd.arg(&words[1..])).await;
    }

    /// Sets a field of a hash, behind the back of the scripts.
    pub async fn set_field(&self, key: &str, field: impl ToRedisArgs, value: impl ToRedisArgs) {
        let mut set = redis::cmd("HSET");
        let _: i64 = self.redis(set.arg(key).arg(field).arg(value)).await;
    }

    /// Deletes fields of a hash, behind the back of the scripts.
    pub async fn delete_fields<F: ToRedisArgs>(&self, key: &str, fields: &[F]) {
        let _: i64 = self.redis(redis::cmd("HDEL").arg(key).arg(fields)).await;
    }

    pub async fn has_key(&self, key: &str) -> bool {
        self.redis(redis::cmd("EXISTS").arg(key)).await
    }

    /// All that is in the outbox of a segment.
    pub async fn entries(&self, segment: u16) -> Vec<Entry> {
        let key = self.segment(segment);
        let entries = self.stock.read_outbox(&key, None, 100_000).await;
        entries.unwrap()
    }

    /// What an operator sees of a segment, with its entries.
    pub async fn inspected(&self, segment: u16) -> Inspection {
        let key = self.segment(segment);
        let inspected = self.stock.inspect(&key, InspectionEntries::All).await;
        inspected.unwrap()
    }

    /// A segment that is halted with this token, and keeps what it remembers.
    pub async fn halted(&self, segment: u16, token: u64) -> Halted {
        let key = self.segment(segment);
        let halted = self.stock.halt(&key, token, OldMemory::Keep).await;
        halted.unwrap()
    }

    /// Ends a repair that has restored nothing.
    pub async fn adjusted(&self, halted: &Halted, available: u64, epoch: u64) {
        let nothing = Restoration::default();
        let adjusted = self
            .stock
            .adjust(&self.item, halted, nothing, available, epoch);
        adjusted.await.unwrap();
    }

    /// Units come back to a segment, from nowhere that the outbox knows.
    pub async fn put_back(&self, segment: u16, units: i64) {
        *self.given_back.lock().unwrap().entry(segment).or_default() += units;
        let stock = self.names(segment).stock;
        let entry = format!("1-{}", rand::random::<u32>());
        self.set_field(&stock, "gained", entry).await;
        let mut add = redis::cmd("HINCRBY");
        let _: i64 = self.redis(add.arg(stock).arg("available").arg(units)).await;
    }

    pub async fn dump(&self, segment: u16) -> Dump {
        let names = self.names(segment);
        let spillovers: Vec<(Vec<u8>, String)> = self
            .redis(
                redis::cmd("ZRANGE")
                    .arg(&names.spillovers)
                    .arg(0)
                    .arg(-1)
                    .arg("WITHSCORES"),
            )
            .await;
        let (marks, buyers): (BTreeMap<String, i64>, _) = self
            .redis::<BTreeMap<String, i64>>(redis::cmd("HGETALL").arg(&names.buyers))
            .await
            .into_iter()
            .partition(|(buyer, _)| buyer.starts_with('\n'));
        let mut dump = Dump {
            stock: self.redis(redis::cmd("HGETALL").arg(&names.stock)).await,
            decisions: self
                .redis(redis::cmd("HGETALL").arg(&names.decisions))
                .await,
            buyers,
            gave_back: marks.into_keys().map(|mark| mark[1..].to_owned()).collect(),
            spillovers: spillovers.into_iter().collect(),
            outbox: self.redis(redis::cmd("XLEN").arg(&names.outbox)).await,
        };
        // What open_segment leaves, so that every key exists.
        assert_eq!(dump.decisions.remove(&vec![]), Some(String::new()));
        assert_eq!(dump.buyers.remove(""), Some(0));
        assert_eq!(dump.spillovers.remove(&vec![]).as_deref(), Some("inf"));
        dump
    }

    pub async fn dumps(&self) -> Vec<Dump> {
        let mut dumps = Vec::new();
        for segment in 0..self.item.segments {
            dumps.push(self.dump(segment).await);
        }
        dumps
    }

    pub async fn available(&self) -> u64 {
        self.dumps().await.iter().map(Dump::available).sum()
    }

    /// Every key of the segment is gone. The audit goes on to know what was in its outbox.
    pub async fn lose(&self, segment: u16) {
        let entries = self.entries(segment).await;
        self.trimmed
            .lock()
            .unwrap()
            .entry(segment)
            .or_default()
            .extend(entries);
        self.lost.lock().unwrap().insert(segment);
        let names = self.names(segment);
        let () = self.redis(redis::cmd("DEL").arg(&names.all())).await;
        self.next_ms().await;
    }

    /// A stream that begins again counts from the clock: its ids are later than those of the old
    /// one from the next millisecond on.
    pub async fn next_ms(&self) {
        let now = self.now_ms().await;
        eventually("the next millisecond", async || self.now_ms().await > now).await;
    }

    /// Drops the entries before the checkpoint, as the recorder does. The audit goes on to know
    /// them.
    pub async fn trim(&self, segment: u16, checkpoint: EntryId) {
        let entries = self.entries(segment).await;
        let gone: Vec<_> = entries
            .into_iter()
            .filter(|entry| entry.id < checkpoint)
            .collect();
        let trimmed = self
            .stock
            .trim_outboxes(&[(self.segment(segment), checkpoint)])
            .await
            .remove(0)
            .unwrap();
        assert_eq!(trimmed.dropped, gone.len() as u64);
        self.trimmed
            .lock()
            .unwrap()
            .entry(segment)
            .or_default()
            .extend(gone);
    }

    /// Hears what is said of a segment on a channel from now on.
    pub async fn listen(&self, channel: &str, segment: u16) -> Listener {
        let client = redis::Client::open(self.site.masters[0].as_str()).unwrap();
        let mut subscription = client.get_async_pubsub().await.unwrap();
        subscription.subscribe(channel).await.unwrap();
        Listener {
            messages: Box::pin(subscription.into_on_message()),
            segment: self.segment(segment).to_string(),
        }
    }

    /// Everything that orders have, by the outboxes.
    pub async fn holdings(&self) -> Vec<Release> {
        let mut holdings = BTreeMap::new();
        for segment in 0..self.item.segments {
            let mut entries = self
                .trimmed
                .lock()
                .unwrap()
                .get(&segment)
                .cloned()
                .unwrap_or_default();
            entries.extend(self.entries(segment).await);
            for entry in entries {
                match entry.change {
                    Change::Taken { orders, .. } => {
                        holdings.extend(
                            orders
                                .into_iter()
                                .map(|order| (order.id, Release { segment, order })),
                        );
                    }
                    Change::Released { orders } => orders
                        .iter()
                        .for_each(|order| drop(holdings.remove(&order.id))),
                    _ => {}
                }
            }
        }
        holdings.into_values().collect()
    }

    /// An order's units, to be released.
    pub fn to_return(&self, buyer: &BuyerId, key: &str, units: u32, segment: u16) -> Release {
        let (id, quantity) = (self.order_id(buyer, key), Quantity::new(units).unwrap());
        Release {
            segment,
            order: TakenOrder {
                id,
                buyer: buyer.clone(),
                quantity,
            },
        }
    }

    /// Milliseconds by the clock of a server.
    pub async fn now_ms(&self) -> i64 {
        let (seconds, micros): (i64, i64) = self.redis(&redis::cmd("TIME")).await;
        seconds * 1000 + micros / 1000
    }
}

/// Messages about one segment. Other tests share the channels.
pub struct Listener {
    messages: Pin<Box<dyn Stream<Item = Msg> + Send>>,
    segment: String,
}

impl Listener {
    pub async fn next(&mut self) -> String {
        let about = |text: &str| text.split(' ').next() == Some(&self.segment);
        let message = async {
            loop {
                let text: String = self
                    .messages
                    .next()
                    .await
                    .expect("the subscription is over")
                    .get_payload()
                    .unwrap();
                if about(&text) {
                    return text;
                }
            }
        };
        in_time("a message about the segment", message).await
    }
}

impl Dump {
    /// The fields of the hash `stock`, as `field=value`.
    pub fn fields(&self) -> Vec<String> {
        let fields = self.stock.iter();
        fields
            .map(|(field, value)| format!("{field}={value}"))
            .collect()
    }

    pub fn available(&self) -> u64 {
        self.stock["available"].parse().unwrap()
    }

    pub fn decision(&self, order: OrderId) -> Option<&str> {
        self.decisions
            .get(&order.as_bytes()[..])
            .map(String::as_str)
    }
}

/// The n-th buyer, wherever at home.
pub fn buyer(n: usize) -> BuyerId {
    BuyerId::new(format!("buyer-{n}")).unwrap()
}

pub fn is_held(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Held { .. })
}
