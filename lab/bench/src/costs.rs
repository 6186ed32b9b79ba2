//! Cost of an order in each process that it passes. `stockade plan --costs` reads these figures.
//!
//! A cost is processor time, not waiting. The order service and the recorder are separate processes
//! here, so that each can be measured.

use std::fmt;

use anyhow::{Result, ensure};
use client::Durability;
use serde::Serialize;

use crate::{
    buyers::{CROWD, Crowd},
    cpu,
    options::Options,
    sale::{Begun, Terms, sell},
    test_env::{SEGMENTS, TestEnv},
    wrk::{Load, load},
};

const GONE: &str = "gone";

/// Microseconds of processor time.
#[derive(Debug, Serialize)]
pub struct Costs {
    service_us_per_recorded_order: f64,
    service_us_per_accepted_order: f64,
    service_us_per_refusal: f64,
    redis_us_per_order: f64,
    recorder_us_per_order: f64,
    postgres_us_per_order: f64,
    /// Machine that produced the figures.
    machine: String,
}

impl fmt::Display for Costs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (service, recorder) = (
            self.service_us_per_recorded_order,
            self.recorder_us_per_order,
        );
        let (redis, postgres) = (self.redis_us_per_order, self.postgres_us_per_order);
        write!(
            f,
            "processor time of a recorded order: {:.1} us, of which service {service:.1}, ",
            service + recorder + redis + postgres
        )?;
        writeln!(
            f,
            "recorder {recorder:.1}, Redis {redis:.1}, PostgreSQL {postgres:.1}"
        )?;
        let (accepted, refusal) = (
            self.service_us_per_accepted_order,
            self.service_us_per_refusal,
        );
        write!(
            f,
            "of the service for an accepted order: {accepted:.1} us; for a refusal: {refusal:.1} us"
        )
    }
}

/// Measures the costs. Returns `None` where the system does not report processor time.
pub async fn measure(options: &Options, machine: String) -> Result<Option<Costs>> {
    if !cpu::is_available() {
        return Ok(None);
    }
    let crowd = Crowd::new(CROWD)?;
    let mut env = TestEnv::without_recorder().await?;
    env.start_recorder().await?;
    let Options {
        connections,
        seconds,
        ..
    } = *options;
    let terms = |item, durability, status, seconds| Terms {
        item,
        segments: SEGMENTS,
        durability,
        status,
        connections,
        seconds,
    };
    // Fills the token cache.
    sell(
        &env,
        &crowd,
        terms("costs-first", Durability::Recorded, 201, 1),
    )
    .await?;
    let recorded = of_orders(
        &env,
        &crowd,
        terms("costs-recorded", Durability::Recorded, 201, seconds),
    )
    .await?;
    let accepted = of_orders(
        &env,
        &crowd,
        terms("costs-accepted", Durability::Accepted, 202, seconds),
    )
    .await?;
    Ok(Some(Costs {
        service_us_per_recorded_order: recorded.service,
        service_us_per_accepted_order: accepted.service,
        service_us_per_refusal: of_refusals(options, &env, &crowd).await?,
        redis_us_per_order: recorded.redis,
        recorder_us_per_order: recorded.recorder,
        postgres_us_per_order: recorded.postgres,
        machine,
    }))
}

/// Processor time in microseconds, in total or per order.
struct Parts {
    service: f64,
    recorder: f64,
    redis: f64,
    postgres: f64,
}

impl Parts {
    fn read(env: &TestEnv) -> Result<Self> {
        let recorder = env.recorder_pid().map_or(Ok(0.0), cpu::used_us)?;
        let (service, redis) = (
            cpu::used_us(env.service_pid())?,
            cpu::used_us(env.redis.pid())?,
        );
        Ok(Self {
            service,
            recorder,
            redis,
            postgres: cpu::used_us(env.postgres.pid())?,
        })
    }
}

/// Cost per order from the first request of the load to the last answer. The audits of the bench
/// come before and after, because they sum all orders in PostgreSQL.
async fn of_orders(env: &TestEnv, crowd: &Crowd, terms: Terms<'_>) -> Result<Parts> {
    let begun = Begun::begin(env, crowd, terms).await?;
    let before = Parts::read(env)?;
    let answered = begun.load(env, crowd).await?;
    let after = Parts::read(env)?;
    let orders = begun.settle(env, &answered).await?.accepted as f64;
    Ok(Parts {
        service: (after.service - before.service) / orders,
        recorder: (after.recorder - before.recorder) / orders,
        redis: (after.redis - before.redis) / orders,
        postgres: (after.postgres - before.postgres) / orders,
    })
}

async fn of_refusals(options: &Options, env: &TestEnv, crowd: &Crowd) -> Result<f64> {
    env.open(GONE, 1, Durability::Recorded).await?;
    let sold = env.order(GONE, "the-only-one").await?;
    ensure!(sold == 201, "the only unit of {GONE} was not sold: {sold}");
    env.audit(GONE).await?;
    let Options {
        connections,
        seconds,
        ..
    } = *options;
    let refusals = Load {
        url: &env.url,
        item: GONE,
        tokens: crowd.tokens(),
        run: "late",
        connections,
        seconds,
        requests: None,
        statuses: false,
    };
    let before = cpu::used_us(env.service_pid())?;
    let answered = load(refusals).await?;
    ensure!(
        answered.refused == answered.answers,
        "{} answers were no refusals",
        answered.answers - answered.refused
    );
    Ok((cpu::used_us(env.service_pid())? - before) / answered.answers as f64)
}
