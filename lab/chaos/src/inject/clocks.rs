//! Clocks that jump. One wrong clock alone ends no hold: that takes the time of a reconciler and
//! that of Redis.

use std::time::Duration;

use anyhow::{Context, Result};
use client::{NewItem, NewOrder, OrderState};
use futures::future::join_all;
use rand::{RngExt, rngs::StdRng};
use testbed::Clock;
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use super::Injected;
use crate::{
    env::{StockServers, TestEnv},
    fault::Fault,
    plan::Round,
};

const SECOND_MS: i64 = 1000;
const HOUR_MS: i64 = 3600 * SECOND_MS;
/// Payment reports are signed with a time, which a service compares with its own. Beyond five
/// minutes it refuses them.
const PROCESS_OFF_MAX_MS: i64 = 240 * SECOND_MS;
/// Holds that are taken meanwhile last longer by as much, and the judge waits for their end. Above
/// five seconds reconcilers end no hold, so this covers both cases.
const REDIS_AHEAD_MAX_MS: i64 = 8 * SECOND_MS;
/// The masters of a cluster must agree within the time after which spillovers are forgotten
/// (`stock::StockSettings::forget_margin`). One that is wrong by more than an order may take
/// refuses orders as late, which is the fault.
const CLUSTER_BEHIND_MAX_MS: i64 = 30 * SECOND_MS;
/// Long enough for several looks at expired holds.
const LASTS_MIN: Duration = Duration::from_millis(700);
/// The holds must be taken before the jump, and be watched beyond its end.
const LASTS_MAX: Duration = Duration::from_secs(2);

/// Holds that are open when a clock jumps.
const HOLDS: usize = 12;
const HOLD_SECONDS: u32 = 5;
const HOLD: Duration = Duration::from_secs(HOLD_SECONDS as u64);
/// Time for which holds are watched after the end of the jump: two looks of a reconciler.
const WATCH_AFTER: Duration = Duration::from_millis(500);
const WATCH_INTERVAL: Duration = Duration::from_millis(50);
/// The ledger is read after a hold has ended in it.
const TOLERANCE: Duration = Duration::from_millis(100);
const PLACE_DEADLINE: Duration = Duration::from_secs(2);
/// Beside other programs all holds may have ended by the time that the last one is placed.
const OPEN_ATTEMPTS_MAX: usize = 5;
/// The clock jumps while one of the holds has this long to go, at least.
const REST_MIN: Duration = Duration::from_secs(3);

/// Holds whose end is watched.
struct Holds {
    item: String,
    /// Each order, and when its request was sent: the hold cannot have begun earlier.
    orders: Vec<(Uuid, Instant)>,
}

/// The clock of a lock node. No hold depends on it.
pub(super) async fn lock_node(env: &TestEnv, round: &Round, rng: &mut StdRng) -> Result<Injected> {
    let node = rng.random_range(0..env.locks.len());
    let by_ms = either_way(rng, HOUR_MS);
    let clock = existing(env.locks[node].clock.as_ref())?;
    clock.set(by_ms)?;
    sleep(round.lasts).await;
    clock.set(0)?;
    Ok(Injected::now(format!(
        "the clock of lock node {node} was {by_ms} ms off for {:?}",
        round.lasts
    )))
}

/// The clock of a process of Stockade, of Redis or of PostgreSQL, while holds are open.
pub(super) async fn jump(env: &TestEnv, round: &Round, rng: &mut StdRng) -> Result<Injected> {
    let (name, clock, by_ms) = match round.fault {
        Fault::RedisClockJump => redis(env, rng).await?,
        Fault::LedgerClockJump => {
            let by_ms = either_way(rng, HOUR_MS);
            ("PostgreSQL".to_owned(), env.ledger.clock(), by_ms)
        }
        _ => {
            let process = &env.processes[rng.random_range(0..env.processes.len())];
            let by_ms = either_way(rng, PROCESS_OFF_MAX_MS);
            (process.name.clone(), process.clock.as_ref(), by_ms)
        }
    };
    let clock = existing(clock)?;
    let lasts = round.lasts.clamp(LASTS_MIN, LASTS_MAX);
    let holds = Holds::open(env, round).await?;
    clock.set(by_ms)?;
    let mut seen = holds.watch(env, Instant::now() + lasts).await;
    clock.set(0)?;
    let ended = Instant::now();
    if seen.open == 0 {
        seen.early.push(format!(
            "too little seen: none of {} holds was open while the clock was wrong",
            holds.orders.len()
        ));
    }
    if seen.early.is_empty() {
        seen.early = holds.watch(env, ended + WATCH_AFTER).await.early;
    }
    Ok(Injected {
        ended,
        findings: seen.early,
        ..Injected::now(format!(
            "the clock of {name} was {by_ms} ms off for {lasts:?}, with {} holds, of which {} were seen",
            holds.orders.len(),
            seen.open
        ))
    })
}

/// A clock of the Redis servers of the stock, and how far it jumps.
async fn redis<'a>(env: &'a TestEnv, rng: &mut StdRng) -> Result<(String, Option<&'a Clock>, i64)> {
    let shared = env.redis_clock.as_ref();
    let (name, clock) = env.redis.clock(shared, rng).await?;
    // Only the masters of a cluster have clocks that may differ.
    let behind_max_ms = if matches!(env.redis, StockServers::Cluster(_)) {
        CLUSTER_BEHIND_MAX_MS
    } else {
        HOUR_MS
    };
    let by_ms = if rng.random_bool(0.5) {
        rng.random_range(SECOND_MS..REDIS_AHEAD_MAX_MS)
    } else {
        -rng.random_range(SECOND_MS..behind_max_ms)
    };
    Ok((name, clock, by_ms))
}

/// What a watch over holds has seen.
#[derive(Default)]
struct Seen {
    /// Most holds that the ledger had as held at one time, before their end.
    open: usize,
    /// The holds that ended too early.
    early: Vec<String>,
}

impl Holds {
    /// Takes holds, and again if it took too long for any of them to be watched.
    async fn open(env: &TestEnv, round: &Round) -> Result<Self> {
        let mut attempt = 1;
        loop {
            let holds = Self::take(env, round.item(&format!("patient-{attempt}"))).await?;
            let is_fresh = |(_, sent): &(Uuid, Instant)| sent.elapsed() + REST_MIN < HOLD;
            if holds.orders.iter().any(is_fresh) || attempt == OPEN_ATTEMPTS_MAX {
                return Ok(holds);
            }
            attempt += 1;
        }
    }

    async fn take(env: &TestEnv, item: String) -> Result<Self> {
        let api = env.api.retrying_for(PLACE_DEADLINE)?;
        let new = NewItem {
            hold_seconds: Some(HOLD_SECONDS),
            segments: Some(2),
            ..NewItem::new(&item, HOLDS as u64)
        };
        let created = api.admin.create_item(&new).await;
        created.with_context(|| format!("creating the item {item}"))?;
        let place = async |number| {
            let (sent, buyer) = (Instant::now(), api.buyer(&format!("patient-{number}")));
            let placed = buyer.place(&NewOrder::new(&item, 1)).await.ok()?;
            Some((placed.order.id, sent))
        };
        let orders = join_all((0..HOLDS).map(place)).await;
        Ok(Self {
            orders: orders.into_iter().flatten().collect(),
            item,
        })
    }

    /// The holds that end before their time, until then, and how many were seen.
    async fn watch(&self, env: &TestEnv, until: Instant) -> Seen {
        let mut seen = Seen::default();
        loop {
            let rows = env.ledger_view.orders(&self.item).await;
            let now = Instant::now();
            // The ledger itself may be slow to answer. It is read again.
            let rows = rows.unwrap_or_default();
            let is_open = |(id, sent): &&(Uuid, Instant)| {
                let is_held = rows
                    .get(id)
                    .is_some_and(|row| row.state == OrderState::Held);
                is_held && now + TOLERANCE < *sent + HOLD
            };
            seen.open = seen.open.max(self.orders.iter().filter(is_open).count());
            let is_early = |(id, sent): &&(Uuid, Instant)| {
                let is_over = rows
                    .get(id)
                    .is_some_and(|row| row.state != OrderState::Held);
                is_over && now + TOLERANCE < *sent + HOLD
            };
            let early = self.orders.iter().filter(is_early);
            seen.early = early
                .map(|(id, sent)| {
                    format!(
                        "{}: the hold of order {id} ended after {:?} instead of {HOLD:?}",
                        self.item,
                        now - *sent
                    )
                })
                .collect();
            if !seen.early.is_empty() || now > until {
                return seen;
            }
            sleep(WATCH_INTERVAL).await;
        }
    }
}

fn either_way(rng: &mut StdRng, most_ms: i64) -> i64 {
    rng.random_range(SECOND_MS..most_ms) * if rng.random_bool(0.5) { 1 } else { -1 }
}

fn existing(clock: Option<&Clock>) -> Result<&Clock> {
    clock.context("this environment has no such clock that jumps")
}
