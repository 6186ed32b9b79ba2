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
use crate::{env::TestEnv, fault::Fault, plan::Round};

const SECOND_MS: i64 = 1000;
const HOUR_MS: i64 = 3600 * SECOND_MS;
/// Payment reports are signed with a time, which a service compares with its own. Beyond five
/// minutes it refuses them.
const PROCESS_OFF_MAX_MS: i64 = 240 * SECOND_MS;
/// Holds that are taken meanwhile last longer by as much, and the judge waits for their end. Above
/// five seconds reconcilers end no hold, so this covers both cases.
const REDIS_AHEAD_MAX_MS: i64 = 8 * SECOND_MS;
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
        Fault::RedisClockJump => {
            let ahead = rng.random_bool(0.5);
            let by_ms =
                rng.random_range(SECOND_MS..if ahead { REDIS_AHEAD_MAX_MS } else { HOUR_MS });
            let by_ms = if ahead { by_ms } else { -by_ms };
            ("Redis", env.redis_clock.as_ref(), by_ms)
        }
        Fault::LedgerClockJump => {
            let by_ms = either_way(rng, HOUR_MS);
            ("PostgreSQL", env.ledger.clock(), by_ms)
        }
        _ => {
            let process = &env.processes[rng.random_range(0..env.processes.len())];
            let by_ms = either_way(rng, PROCESS_OFF_MAX_MS);
            (&*process.name, process.clock.as_ref(), by_ms)
        }
    };
    let clock = existing(clock)?;
    let lasts = round.lasts.clamp(LASTS_MIN, LASTS_MAX);
    let holds = Holds::open(env, round).await?;
    clock.set(by_ms)?;
    let mut findings = holds.watch(env, Instant::now() + lasts).await;
    clock.set(0)?;
    let ended = Instant::now();
    if findings.is_empty() {
        findings = holds.watch(env, ended + WATCH_AFTER).await;
    }
    Ok(Injected {
        ended,
        findings,
        ..Injected::now(format!(
            "the clock of {name} was {by_ms} ms off for {lasts:?}, with {} holds",
            holds.orders.len()
        ))
    })
}

impl Holds {
    async fn open(env: &TestEnv, round: &Round) -> Result<Self> {
        let api = env.api.retrying_for(PLACE_DEADLINE)?;
        let item = round.item("patient");
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

    /// The holds that end before their time, until then.
    async fn watch(&self, env: &TestEnv, until: Instant) -> Vec<String> {
        loop {
            let rows = env.ledger_view.orders(&self.item).await;
            let now = Instant::now();
            // The ledger itself may be slow to answer. It is read again.
            let rows = rows.unwrap_or_default();
            let is_early = |(id, sent): &&(Uuid, Instant)| {
                let is_over = rows
                    .get(id)
                    .is_some_and(|row| row.state != OrderState::Held);
                is_over && now + TOLERANCE < *sent + HOLD
            };
            let early = self.orders.iter().filter(is_early);
            let findings: Vec<_> = early
                .map(|(id, sent)| {
                    format!(
                        "{}: the hold of order {id} ended after {:?} instead of {HOLD:?}",
                        self.item,
                        now - *sent
                    )
                })
                .collect();
            if !findings.is_empty() || now > until {
                return findings;
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
