//! One item on sale: its instances, its buyers, and a look at its keys that does not go through the crate.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use domain::{BuyerId, Durability, Entry, IdempotencyKey, Item, ItemId, ItemState, OrderId, Quantity, SegmentKey, Window};
use redis::{Cmd, FromRedisValue};
use stock::{Acknowledge, Ask, ItemStock, Outcome, StateSet, Stock, StockError};

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
        Self { stock, segments, limit: None, window: Window::default(), state: ItemState::Open, durability: Durability::Accepted }
    }

    pub fn limit(self, units: u32) -> Self {
        Self { limit: Some(units), ..self }
    }
}

/// An item on sale.
pub struct Sale {
    pub site: Arc<Site>,
    pub item: Item,
    /// The first instance. Others are made by [`Sale::instance`].
    pub stock: Arc<Stock>,
    /// Units that the test gave back to a segment by hand. The outbox does not know of them.
    pub given_back: Mutex<BTreeMap<u16, i64>>,
    /// Entries that the test had trimmed.
    pub trimmed: Mutex<BTreeMap<u16, Vec<Entry>>>,
}

/// The keys of a segment, as `lua/` and `reservation.md` have them.
pub struct Names {
    pub stock: String,
    pub answers: String,
    pub buyers: String,
    pub outbox: String,
    pub walks: String,
}

/// Everything that Redis has of a segment, in comparable form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dump {
    pub stock: BTreeMap<String, String>,
    pub answers: BTreeMap<Vec<u8>, String>,
    pub buyers: BTreeMap<String, i64>,
    pub walks: BTreeMap<Vec<u8>, String>,
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
        price_cents: 1,
        currency: "EUR".into(),
        limit_per_buyer: terms.limit.map(|units| Quantity::new(units).unwrap()),
        segments: terms.segments,
        window: terms.window,
        hold_seconds: 600,
        durability: terms.durability,
        state: terms.state,
        epoch: 1,
        version: 1,
    };
    assert_eq!(stock.open(&item).await.unwrap(), usize::from(terms.segments));
    let sale = Arc::new(Sale { site: Arc::clone(site), item, stock, given_back: Mutex::default(), trimmed: Mutex::default() });
    site.sales.lock().unwrap().push(Arc::clone(&sale));
    sale
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
    pub async fn set_state(&self, state: ItemState, epoch: u64) -> Result<Vec<StateSet>, StockError> {
        self.stock.configure(&Item { state, epoch, ..self.item.clone() }).await
    }

    pub fn segment(&self, segment: u16) -> SegmentKey {
        SegmentKey { item: self.item.id.clone(), segment }
    }

    pub fn order_id(&self, buyer: &BuyerId, key: &str) -> OrderId {
        OrderId::derive(&self.item.id, self.item.id.tag(), buyer, &IdempotencyKey::new(key).unwrap())
    }

    pub fn ask(&self, buyer: &BuyerId, key: &str, units: u32) -> Ask {
        Ask {
            order: self.order_id(buyer, key),
            buyer: buyer.clone(),
            quantity: Quantity::new(units).unwrap(),
            acknowledge: Acknowledge::Accepted,
            within: Duration::from_secs(10),
        }
    }

    /// Orders at the first instance.
    pub async fn order(&self, buyer: &BuyerId, key: &str, units: u32) -> Result<Outcome, StockError> {
        self.at_first().order(self.ask(buyer, key, units)).await
    }

    /// The n-th buyer whose home is this segment.
    pub fn buyer_at(&self, home: u16, n: usize) -> BuyerId {
        let at_home = |buyer: &BuyerId| buyer.stable_hash() % u64::from(self.item.segments) == u64::from(home);
        (0..).map(buyer).filter(at_home).nth(n).unwrap()
    }

    pub fn names(&self, segment: u16) -> Names {
        let tag = format!("{{{}:{segment}}}", self.item.id);
        Names {
            stock: format!("stock:{tag}"),
            answers: format!("answers:{tag}"),
            buyers: format!("buyers:{tag}"),
            outbox: format!("outbox:{tag}"),
            walks: format!("walks:{tag}"),
        }
    }

    /// Runs a command on the server as it is. Reads are tried again if the server has been restarted meanwhile.
    pub async fn redis<T: FromRedisValue>(&self, cmd: &Cmd) -> T {
        for _ in 0..100 {
            match self.try_redis(cmd).await {
                Err(error) if error.is_io_error() => tokio::time::sleep(Duration::from_millis(20)).await,
                result => return result.unwrap(),
            }
        }
        panic!("the server is gone");
    }

    pub async fn try_redis<T: FromRedisValue>(&self, cmd: &Cmd) -> redis::RedisResult<T> {
        cmd.query_async(&mut self.site.redis.clone()).await
    }

    /// Units come back to a segment, from nowhere that the outbox knows.
    pub async fn give_back(&self, segment: u16, units: i64) {
        *self.given_back.lock().unwrap().entry(segment).or_default() += units;
        let _: i64 = self.redis(redis::cmd("HINCRBY").arg(self.names(segment).stock).arg("available").arg(units)).await;
    }

    pub async fn dump(&self, segment: u16) -> Dump {
        let names = self.names(segment);
        let walks: Vec<(Vec<u8>, String)> = self.redis(redis::cmd("ZRANGE").arg(&names.walks).arg(0).arg(-1).arg("WITHSCORES")).await;
        let mut dump = Dump {
            stock: self.redis(redis::cmd("HGETALL").arg(&names.stock)).await,
            answers: self.redis(redis::cmd("HGETALL").arg(&names.answers)).await,
            buyers: self.redis(redis::cmd("HGETALL").arg(&names.buyers)).await,
            walks: walks.into_iter().collect(),
            outbox: self.redis(redis::cmd("XLEN").arg(&names.outbox)).await,
        };
        // What open_segment leaves, so that every key exists.
        assert_eq!(dump.answers.remove(&vec![]), Some(String::new()));
        assert_eq!(dump.buyers.remove(""), Some(0));
        assert_eq!(dump.walks.remove(&vec![]).as_deref(), Some("inf"));
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

    /// Milliseconds by the clock of a server.
    pub async fn now_ms(&self) -> i64 {
        let (seconds, micros): (i64, i64) = self.redis(&redis::cmd("TIME")).await;
        seconds * 1000 + micros / 1000
    }
}

impl Dump {
    pub fn available(&self) -> u64 {
        self.stock["available"].parse().unwrap()
    }

    pub fn answer(&self, order: OrderId) -> Option<&str> {
        self.answers.get(&order.as_bytes()[..]).map(String::as_str)
    }
}

/// The n-th buyer, wherever at home.
pub fn buyer(n: usize) -> BuyerId {
    BuyerId::new(format!("buyer-{n}")).unwrap()
}

pub fn is_held(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Held { .. })
}

/// Waits for something that comes soon, but not at once.
pub async fn eventually(what: &str, mut happened: impl AsyncFnMut() -> bool) {
    let deadline = std::time::Instant::now() + Duration::from_secs(10);
    while !happened().await {
        assert!(std::time::Instant::now() < deadline, "{what} did not happen");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
