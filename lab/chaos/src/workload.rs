//! The workload: concurrent sessions of buyers, and an admin who changes the stock meanwhile.
//!
//! Every request whose outcome is unknown is repeated with the same key, as a shop's client and a
//! payment provider do.

mod session;

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use anyhow::Result;
use client::{IdempotencyKey, StockChange};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use tokio::{task::JoinSet, time::sleep};
use tokio_util::sync::CancellationToken;

use crate::{
    api::Api,
    history::{OrderHistory, SaleItem},
    plan::Round,
    workload::session::{Buyers, Session},
};

/// Number of orders that are being placed concurrently.
const WORKERS: usize = 16;
/// Time for which a request is repeated. No fault lasts as long.
const RETRY_DEADLINE: Duration = Duration::from_secs(45);
/// Pause of a worker after a refusal. Refusals are fast, and would crowd out all orders.
const PAUSE_AFTER_REFUSAL_MS: std::ops::Range<u64> = 20..80;
const PAUSE_AFTER_ORDER_MS: std::ops::Range<u64> = 2..25;

/// A running workload.
pub struct Workload {
    stop: CancellationToken,
    acknowledged: Arc<AtomicUsize>,
    workers: JoinSet<Vec<OrderHistory>>,
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

/// What all sessions share.
#[derive(Clone)]
struct Shared {
    api: Api,
    items: Arc<[Arc<SaleItem>]>,
    buyers: Arc<Buyers>,
    stop: CancellationToken,
    acknowledged: Arc<AtomicUsize>,
}

impl Workload {
    /// Starts the sessions. Most of them buy the first of `items`.
    pub fn start(api: &Api, items: &[Arc<SaleItem>], round: &Round) -> Result<Self> {
        let api = api.retrying_for(RETRY_DEADLINE)?;
        let shared = Shared {
            buyers: Arc::new(Buyers::new(&api)),
            api,
            items: items.into(),
            stop: CancellationToken::new(),
            acknowledged: Arc::default(),
        };
        let (mut workers, mut admin) = (JoinSet::new(), JoinSet::new());
        for worker in 0..WORKERS {
            workers.spawn(shared.clone().work(round.rng(&format!("worker {worker}"))));
        }
        admin.spawn(shared.clone().change_stock(round.rng("merchant")));
        Ok(Self {
            stop: shared.stop,
            acknowledged: shared.acknowledged,
            workers,
            admin,
        })
    }

    /// Number of orders that have been acknowledged so far.
    pub fn acknowledged(&self) -> usize {
        self.acknowledged.load(Ordering::Relaxed)
    }

    /// Starts no further session, and returns the histories once every session has ended.
    pub async fn stop(self) -> (Vec<OrderHistory>, StockChanges) {
        self.stop.cancel();
        let changes = self.admin.join_all().await.into_iter().next();
        let histories = self.workers.join_all().await;
        (
            histories.into_iter().flatten().collect(),
            changes.unwrap_or_default(),
        )
    }
}

impl Shared {
    /// Places one order after the other. The later life of each order runs concurrently.
    async fn work(self, mut rng: StdRng) -> Vec<OrderHistory> {
        let (mut lives, mut histories) = (JoinSet::new(), Vec::new());
        while !self.stop.is_cancelled() {
            let session = Session::new(&self.api, &self.items, &self.buyers, &mut rng);
            let pause = match session.place(&mut rng).await {
                Ok((session, order)) => {
                    self.acknowledged.fetch_add(1, Ordering::Relaxed);
                    lives.spawn(session.live(order.id, StdRng::seed_from_u64(rng.random())));
                    rng.random_range(PAUSE_AFTER_ORDER_MS)
                }
                Err(history) => {
                    histories.push(*history);
                    rng.random_range(PAUSE_AFTER_REFUSAL_MS)
                }
            };
            sleep(Duration::from_millis(pause)).await;
        }
        histories.extend(lives.join_all().await);
        histories
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
