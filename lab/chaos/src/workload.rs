//! The workload: concurrent sessions of buyers, and an admin who changes the stock meanwhile.
//!
//! Every request whose outcome is unknown is repeated with the same key, as a shop's client and a
//! payment provider do.

mod carts;
mod payments;
mod session;
mod stripe;

pub use self::payments::PRICE;

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use anyhow::Result;
use client::{Error, IdempotencyKey, StockChange};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use tokio::{task::JoinSet, time::sleep};
use tokio_util::sync::CancellationToken;

use crate::{
    api::Api,
    history::{CartHistory, Histories, OrderHistory, SaleItem},
    plan::Round,
    workload::{
        carts::CartSession,
        payments::Payments,
        session::{Buyers, Session},
    },
};

/// Pause of a worker after a refusal. Refusals are fast, and would crowd out all orders.
const PAUSE_AFTER_REFUSAL_MS: std::ops::Range<u64> = 20..80;
/// One of so many sessions has a cart.
const CART_ONE_OF: u32 = 6;
/// Items that carts are made of: the first ones. The last item is sold out most of the time, and
/// nearly every cart with it would fail.
const ITEMS_OF_CARTS: usize = 2;
/// The number of each item, and how often single orders buy it, of a hundred.
const SHARES: [(usize, u32); 3] = [(0, 65), (1, 15), (2, 20)];
const PAUSE_AFTER_ORDER_MS: std::ops::Range<u64> = 2..25;

/// A running workload.
pub struct Workload {
    payments: Payments,
    stop: CancellationToken,
    acknowledged: Arc<AtomicUsize>,
    sold_out: Arc<AtomicUsize>,
    workers: JoinSet<Histories>,
    admin: JoinSet<StockChanges>,
}

/// The history of the stock of the first item.
#[derive(Clone, Debug, Default)]
pub struct StockChanges {
    /// Units whose addition was acknowledged.
    pub added: u64,
    /// Units whose addition may have taken effect without a response.
    pub possibly_added: u64,
    /// Units that were to be withdrawn. Only unsold units were, so this is a maximum.
    pub withdrawn_max: u64,
}

/// Orders and carts that were placed, and live on.
#[derive(Default)]
struct Lives {
    orders: JoinSet<OrderHistory>,
    carts: JoinSet<CartHistory>,
}

/// What all sessions share.
#[derive(Clone)]
struct Shared {
    api: Api,
    items: Arc<[Arc<SaleItem>]>,
    buyers: Arc<Buyers>,
    /// Whether Redis may lose acknowledged writes in this round.
    redis_may_lose: bool,
    pause_factor: u32,
    stop: CancellationToken,
    acknowledged: Arc<AtomicUsize>,
    sold_out: Arc<AtomicUsize>,
}

impl Workload {
    /// Starts the sessions. Most of them buy the first of `items`, and every fifth order the last
    /// of three. Others pay for `priced`, beside an admin who notes the money that is due.
    pub fn start(api: &Api, items: &[Arc<SaleItem>], priced: &str, round: &Round) -> Result<Self> {
        let api = api.retrying_for(round.health.answered_within)?;
        let shared = Shared {
            buyers: Arc::new(Buyers::new(&api)),
            api,
            items: items.into(),
            redis_may_lose: round.fault.may_lose_redis_writes(),
            pause_factor: round.pause_factor,
            stop: CancellationToken::new(),
            acknowledged: Arc::default(),
            sold_out: Arc::default(),
        };
        let (mut workers, mut admin) = (JoinSet::new(), JoinSet::new());
        for worker in 0..round.workers {
            workers.spawn(shared.clone().work(round.rng(&format!("worker {worker}"))));
        }
        admin.spawn(shared.clone().change_stock(round.rng("merchant")));
        let payments = Payments::start(&shared.api, priced, &shared.stop, round)?;
        Ok(Self {
            payments,
            stop: shared.stop,
            acknowledged: shared.acknowledged,
            sold_out: shared.sold_out,
            workers,
            admin,
        })
    }

    /// Number of orders and carts that have been acknowledged so far.
    pub fn acknowledged(&self) -> usize {
        self.acknowledged.load(Ordering::Relaxed)
    }

    /// Number of orders that have been refused as sold out so far.
    pub fn sold_out(&self) -> usize {
        self.sold_out.load(Ordering::Relaxed)
    }

    /// Starts no further session, and returns the histories once every session has ended.
    pub async fn stop(self) -> (Histories, StockChanges) {
        self.stop.cancel();
        let changes = self.admin.join_all().await.into_iter().next();
        let mut histories = Histories::default();
        for of_worker in self.workers.join_all().await {
            histories.orders.extend(of_worker.orders);
            histories.carts.extend(of_worker.carts);
        }
        histories.payments = self.payments.stop().await;
        (histories, changes.unwrap_or_default())
    }
}

impl Shared {
    /// Places one order or cart after the other. The later life of each runs concurrently.
    async fn work(self, mut rng: StdRng) -> Histories {
        let mut lives = Lives::default();
        let mut histories = Histories::default();
        while !self.stop.is_cancelled() {
            let is_placed = match rng.random_ratio(1, CART_ONE_OF) {
                true => self.place_cart(&mut rng, &mut lives, &mut histories).await,
                false => self.place_order(&mut rng, &mut lives, &mut histories).await,
            };
            let pause = match is_placed {
                true => rng.random_range(PAUSE_AFTER_ORDER_MS) * u64::from(self.pause_factor),
                false => rng.random_range(PAUSE_AFTER_REFUSAL_MS),
            };
            sleep(Duration::from_millis(pause)).await;
        }
        histories.orders.extend(lives.orders.join_all().await);
        histories.carts.extend(lives.carts.join_all().await);
        histories
    }

    /// Returns whether the order was acknowledged.
    async fn place_order(
        &self,
        rng: &mut StdRng,
        lives: &mut Lives,
        histories: &mut Histories,
    ) -> bool {
        let shares = &SHARES[..self.items.len().min(SHARES.len())];
        let item = &self.items[weighted(shares, rng)];
        let session = Session::new(&self.api, item, &self.buyers, self.redis_may_lose, rng);
        match session.place(rng).await {
            Ok((session, order)) => {
                self.acknowledged.fetch_add(1, Ordering::Relaxed);
                let rng = StdRng::seed_from_u64(rng.random());
                lives.orders.spawn(session.live(order.id, rng));
                true
            }
            Err(history) => {
                let is_sold_out = usize::from(history.is_sold_out());
                self.sold_out.fetch_add(is_sold_out, Ordering::Relaxed);
                histories.orders.push(*history);
                false
            }
        }
    }

    /// Returns whether the cart was acknowledged.
    async fn place_cart(
        &self,
        rng: &mut StdRng,
        lives: &mut Lives,
        histories: &mut Histories,
    ) -> bool {
        let items = &self.items[..self.items.len().min(ITEMS_OF_CARTS)];
        let session = CartSession::new(&self.api, items, &self.buyers, rng);
        match session.place(rng).await {
            Ok((session, cart)) => {
                self.acknowledged.fetch_add(1, Ordering::Relaxed);
                let rng = StdRng::seed_from_u64(rng.random());
                lives.carts.spawn(session.live(cart, rng));
                true
            }
            Err(history) => {
                histories.carts.push(*history);
                false
            }
        }
    }

    /// Adds units in half of the rounds, and withdraws units in half of them.
    async fn change_stock(self, mut rng: StdRng) -> StockChanges {
        let (mut changes, item) = (StockChanges::default(), &self.items[0].id);
        for add in [true, false] {
            let (pause, units) = (rng.random_range(100..1500), rng.random_range(10..60_u64));
            let pause = Duration::from_millis(pause);
            let stopped = tokio::time::timeout(pause, self.stop.cancelled()).await;
            if stopped.is_ok() || !rng.random_bool(0.5) {
                continue;
            }
            let (change, key) = match add {
                true => (StockChange::add(units), 1),
                false => (StockChange::withdraw(units), 2),
            };
            let change = change.with_key(IdempotencyKey::from(key));
            match (add, self.api.admin.change_stock(item, &change).await) {
                (true, Ok(_)) => changes.added += units,
                (true, Err(_)) => changes.possibly_added += units,
                (false, _) => changes.withdrawn_max += units,
            }
        }
        changes
    }
}

/// One of the choices, each as often as its weight says.
fn weighted<T: Copy>(choices: &[(T, u32)], rng: &mut StdRng) -> T {
    let total: u32 = choices.iter().map(|(_, weight)| weight).sum();
    let mut number = rng.random_range(0..total);
    for (choice, weight) in choices {
        if number < *weight {
            return *choice;
        }
        number -= weight;
    }
    unreachable!("the number is below the sum of the weights")
}

/// Whether the hold ended while no response arrived.
fn has_expired(error: &Error) -> bool {
    matches!(error, Error::Refused(problem)
        if problem.status == 409 && problem.state.as_deref() == Some("expired"))
}
