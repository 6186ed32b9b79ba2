//! The buyers, and everything that they do: order, pay, pay late, pay twice, cancel, forget, want their money back; and who sees to the
//! stock meanwhile.
//!
//! Whatever they are not answered they ask again with the same key, as a shop's client and a payment provider do.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicUsize, Ordering},
    },
    time::Duration,
};

use anyhow::Result;
use rand::{RngExt, SeedableRng, rngs::StdRng};
use serde_json::json;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::{
    book::{Entry, Level, Offer, Placed},
    plan::Round,
    shop::{Buyer, Order, Reply, Shop, State, insist},
};

/// Orders that are being placed at a time.
const AT_ONCE: usize = 16;
/// Buyers that there are; each comes several times.
const BUYERS: usize = 400;
/// How long somebody asks for an answer. No fault lasts as long.
const PATIENCE: Duration = Duration::from_secs(45);
/// Nobody is turned away faster than this, or the refusals would be all there is.
const PAUSE_AFTER_REFUSAL_MS: std::ops::Range<u64> = 20..80;
const PAUSE_AFTER_ORDER_MS: std::ops::Range<u64> = 2..25;

/// What becomes of an order, if its buyer has a say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Pay,
    PayAndSayItAgain,
    PayTwice,
    PayLate,
    PayAndReturn,
    Cancel,
    Forget,
}

/// How often, of a hundred.
const FATES: [(Fate, u32); 7] = [
    (Fate::Pay, 38),
    (Fate::PayAndSayItAgain, 7),
    (Fate::PayTwice, 4),
    (Fate::PayLate, 9),
    (Fate::PayAndReturn, 5),
    (Fate::Cancel, 15),
    (Fate::Forget, 22),
];

/// A crowd at work.
pub struct Rush {
    stop: CancellationToken,
    acknowledged: Arc<AtomicUsize>,
    workers: JoinSet<Vec<Entry>>,
    merchant: JoinSet<Moved>,
}

/// What became of the stock meanwhile.
#[derive(Clone, Debug, Default)]
pub struct Moved {
    /// Units that were added, and it was acknowledged.
    pub added: u64,
    /// Units that were to be added, and nobody answered.
    pub perhaps_added: u64,
    /// Units that were to be taken back, as far as nobody had them.
    pub wanted_back: u64,
}

/// What everybody knows.
#[derive(Clone)]
struct Scene {
    shop: Arc<Shop>,
    offers: Arc<[Arc<Offer>]>,
    buyers: Arc<[Buyer]>,
    stop: CancellationToken,
    acknowledged: Arc<AtomicUsize>,
}

impl Rush {
    /// Lets a crowd in. The first of the offers is what most of them want.
    pub fn begin(shop: &Arc<Shop>, offers: &[Arc<Offer>], round: &Round) -> Result<Self> {
        let buyers: Result<Vec<_>> = (0..BUYERS)
            .map(|buyer| shop.buyer(format!("buyer-{buyer}")))
            .collect();
        let scene = Scene {
            shop: Arc::clone(shop),
            offers: offers.into(),
            buyers: buyers?.into(),
            stop: CancellationToken::new(),
            acknowledged: Arc::default(),
        };
        let (mut workers, mut merchant) = (JoinSet::new(), JoinSet::new());
        for worker in 0..AT_ONCE {
            workers.spawn(scene.clone().work(round.dice(&format!("worker {worker}"))));
        }
        merchant.spawn(scene.clone().see_to_the_stock(round.dice("merchant")));
        Ok(Self {
            stop: scene.stop,
            acknowledged: scene.acknowledged,
            workers,
            merchant,
        })
    }

    /// How many orders have been acknowledged so far.
    pub fn acknowledged(&self) -> usize {
        self.acknowledged.load(Ordering::Relaxed)
    }

    /// Nobody comes any more; returns everybody's books when everybody has been answered.
    pub async fn end(self) -> (Vec<Entry>, Moved) {
        self.stop.cancel();
        let moved = self
            .merchant
            .join_all()
            .await
            .into_iter()
            .next()
            .unwrap_or_default();
        (
            self.workers
                .join_all()
                .await
                .into_iter()
                .flatten()
                .collect(),
            moved,
        )
    }
}

impl Scene {
    async fn work(self, mut dice: StdRng) -> Vec<Entry> {
        let (mut lives, mut entries) = (JoinSet::new(), Vec::new());
        while !self.stop.is_cancelled() {
            let visit = Visit::new(&self, &mut dice);
            let pause = match visit.place(&mut dice).await {
                Ok((visit, order)) => {
                    self.acknowledged.fetch_add(1, Ordering::Relaxed);
                    lives.spawn(visit.live(order.id, StdRng::seed_from_u64(dice.random())));
                    dice.random_range(PAUSE_AFTER_ORDER_MS)
                }
                Err(entry) => {
                    entries.push(*entry);
                    dice.random_range(PAUSE_AFTER_REFUSAL_MS)
                }
            };
            sleep(Duration::from_millis(pause)).await;
        }
        entries.extend(lives.join_all().await);
        entries
    }

    /// Half of the time units are added in the rush, and half of the time some are taken back.
    async fn see_to_the_stock(self, mut dice: StdRng) -> Moved {
        let (mut moved, offer) = (Moved::default(), &self.offers[0]);
        for (wish, chance) in [("add", 0.5), ("take_back", 0.5)] {
            let (pause, units) = (dice.random_range(100..1500), dice.random_range(10..60_u64));
            let late = tokio::time::timeout(Duration::from_millis(pause), self.stop.cancelled())
                .await
                .is_ok();
            if late || !dice.random_bool(chance) {
                continue;
            }
            let body = json!({ wish: units });
            let reply = insist(Instant::now() + PATIENCE, || {
                self.shop.move_stock(&offer.item, wish, &body)
            })
            .await;
            match (wish, reply) {
                ("add", Reply::Done(_)) => moved.added += units,
                ("add", _) => moved.perhaps_added += units,
                _ => moved.wanted_back += units,
            }
        }
        moved
    }
}

/// One order and its buyer.
struct Visit {
    shop: Arc<Shop>,
    buyer: Buyer,
    entry: Entry,
}

impl Visit {
    fn new(scene: &Scene, dice: &mut StdRng) -> Self {
        // Four of five want the first.
        let other = dice.random_range(0..scene.offers.len());
        let offer = Arc::clone(&scene.offers[if dice.random_bool(0.8) { 0 } else { other }]);
        let buyer = scene.buyers[dice.random_range(0..scene.buyers.len())].clone();
        let quantity = dice.random_range(1..=offer.limit.min(3));
        let entry = Entry {
            offer,
            buyer: buyer.name.clone(),
            key: format!("{:016x}", dice.random::<u64>()),
            quantity,
            requests: 0,
            placed: Placed::Unknown,
            payment: None,
            acknowledged: Vec::new(),
            wanted: BTreeSet::new(),
            contradictions: Vec::new(),
        };
        Self {
            shop: Arc::clone(&scene.shop),
            buyer,
            entry,
        }
    }

    async fn place(mut self, dice: &mut StdRng) -> Result<(Self, Order), Box<Entry>> {
        if dice.random_bool(0.05) {
            self.click_twice();
        }
        let reply = self.ask_to_place().await;
        let entry = &mut self.entry;
        match reply {
            Reply::Done(order) => {
                entry.placed = Placed::Acknowledged(order.id);
                entry.acknowledged.push(order.state);
                if order.quantity != entry.quantity {
                    entry.contradictions.push(format!(
                        "{} units instead of {}",
                        order.quantity, entry.quantity
                    ));
                }
                return Ok((self, order));
            }
            Reply::Refused {
                status: 409, code, ..
            } if ["sold_out", "buyer_limit_reached"].contains(&&*code) => {
                entry.placed = Placed::Refused(code);
            }
            Reply::Refused {
                status,
                code,
                state,
            } => {
                entry.contradictions.push(format!(
                    "placing it: {status} {code} {}",
                    state.as_deref().unwrap_or_default()
                ));
                entry.placed = Placed::Refused(code);
            }
            Reply::Unknown(why) => entry.contradictions.push(format!(
                "placing it: nobody answered in {PATIENCE:?}, at last: {why}"
            )),
        }
        Err(Box::new(self.entry))
    }

    /// The same request a second time, whose answer nobody waits for.
    fn click_twice(&mut self) {
        self.entry.requests += 1;
        let (
            shop,
            buyer,
            Entry {
                offer,
                key,
                quantity,
                ..
            },
        ) = (
            Arc::clone(&self.shop),
            self.buyer.clone(),
            self.entry.clone(),
        );
        tokio::spawn(async move { shop.place(&buyer, &offer.item, &key, quantity).await });
    }

    async fn ask_to_place(&mut self) -> Reply<Order> {
        let (
            Entry {
                offer,
                key,
                quantity,
                ..
            },
            requests,
        ) = (&self.entry, AtomicU32::new(0));
        let ask = || {
            requests.fetch_add(1, Ordering::Relaxed);
            self.shop.place(&self.buyer, &offer.item, key, *quantity)
        };
        let reply = insist(Instant::now() + PATIENCE, ask).await;
        self.entry.requests += requests.into_inner();
        reply
    }

    /// Everything that happens to it later.
    async fn live(mut self, id: Uuid, mut dice: StdRng) -> Entry {
        let fate = fate(&mut dice);
        let hold_ms = u64::from(self.entry.offer.hold_seconds) * 1000;
        let wait_ms = match fate {
            Fate::PayLate => hold_ms + dice.random_range(300..1500),
            _ => dice.random_range(0..hold_ms * 2 / 3),
        };
        sleep(Duration::from_millis(wait_ms)).await;
        if dice.random_bool(0.1) {
            self.ask_the_same_again(id).await;
        }
        let payment = format!("pay-{id}");
        match fate {
            Fate::Forget => {}
            Fate::Cancel => self.cancel(id).await,
            Fate::Pay | Fate::PayLate => self.pay(id, &payment).await,
            Fate::PayAndSayItAgain => {
                self.pay(id, &payment).await;
                self.pay(id, &payment).await;
            }
            Fate::PayTwice => {
                self.pay(id, &payment).await;
                self.pay_again(id).await;
            }
            Fate::PayAndReturn => {
                self.pay(id, &payment).await;
                self.refund(id).await;
            }
        }
        self.entry
    }

    /// A repeated request is the same order.
    async fn ask_the_same_again(&mut self, id: Uuid) {
        match self.ask_to_place().await {
            Reply::Done(order) if order.id == id => {}
            // Redis has lost it, and what is told anew must not be what was told before.
            Reply::Refused { status: 409, .. } if self.entry.offer.level != Level::Recorded => {}
            other => self.wrong("placing it again", &other),
        }
    }

    async fn pay(&mut self, id: Uuid, payment: &str) {
        self.entry.wanted.insert(State::Confirmed);
        match insist(Instant::now() + PATIENCE, || self.shop.pay(id, payment)).await {
            Reply::Done(order) if matches!(order.state, State::Confirmed | State::RefundDue) => {
                self.entry.acknowledged.push(order.state);
                self.entry.payment = Some(payment.to_owned());
            }
            Reply::Refused { .. } if self.may_be_lost() => {}
            other => self.wrong("paying", &other),
        }
    }

    /// Another payment for the same order: it must not be taken as if it were the first, unless the first was not.
    async fn pay_again(&mut self, id: Uuid) {
        let payment = format!("pay-again-{id}");
        match insist(Instant::now() + PATIENCE, || self.shop.pay(id, &payment)).await {
            Reply::Refused {
                status: 409,
                ref code,
                ..
            } if code == "already_paid" => {}
            Reply::Refused { .. } if self.may_be_lost() => {}
            other => self.wrong("paying twice", &other),
        }
    }

    async fn cancel(&mut self, id: Uuid) {
        self.entry.wanted.insert(State::Cancelled);
        match insist(Instant::now() + PATIENCE, || {
            self.shop.cancel(&self.buyer, id)
        })
        .await
        {
            Reply::Done(order) if order.state == State::Cancelled => {
                self.entry.acknowledged.push(order.state)
            }
            // Its hold was over while nobody answered.
            Reply::Refused {
                status: 409,
                state: Some(ref state),
                ..
            } if state == "expired" => {}
            Reply::Refused { .. } if self.may_be_lost() => {}
            other => self.wrong("cancelling", &other),
        }
    }

    async fn refund(&mut self, id: Uuid) {
        if !self
            .entry
            .acknowledged
            .iter()
            .any(|state| matches!(state, State::Confirmed | State::RefundDue))
        {
            return;
        }
        self.entry.wanted.insert(State::Refunded);
        match insist(Instant::now() + PATIENCE, || self.shop.refund(id)).await {
            Reply::Done(order) if order.state == State::Refunded => {
                self.entry.acknowledged.push(order.state)
            }
            other => self.wrong("refunding", &other),
        }
    }

    /// An order that only Redis was known to have, and that nothing was acknowledged of since. The judge decides whether it was to be there.
    fn may_be_lost(&self) -> bool {
        self.entry.offer.level != Level::Recorded
            && self
                .entry
                .acknowledged
                .iter()
                .all(|state| *state == State::Held)
    }

    fn wrong(&mut self, what: &str, reply: &Reply<Order>) {
        let told = match reply {
            Reply::Done(order) => format!("order {} {:?}", order.id, order.state),
            Reply::Refused {
                status,
                code,
                state,
            } => format!("{status} {code} {}", state.as_deref().unwrap_or_default()),
            Reply::Unknown(why) => format!("nobody answered in {PATIENCE:?}, at last: {why}"),
        };
        self.entry.contradictions.push(format!("{what}: {told}"));
    }
}

fn fate(dice: &mut StdRng) -> Fate {
    let mut throw = dice.random_range(0..FATES.iter().map(|(_, weight)| weight).sum());
    for (fate, weight) in FATES {
        if throw < weight {
            return fate;
        }
        throw -= weight;
    }
    Fate::Forget
}
