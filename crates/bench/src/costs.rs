//! What an order costs each of the processes that it passes: the profile of one order, and what `stockade plan --costs` reckons with.
//!
//! What a reader could get wrong: it is processor time, not waiting, and the order service and the recorder are processes of their own here, so that each
//! has a figure of its own.

use std::fmt;

use anyhow::{Result, ensure};
use serde::Serialize;

use crate::{
    buyers::{CROWD, Crowd},
    cli::Bench,
    cpu,
    sale::{Terms, sell},
    site::Site,
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
    /// What they were measured on.
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

/// Measures it; nothing where the system does not tell.
pub async fn measure(bench: &Bench, machine: String) -> Result<Option<Costs>> {
    if !cpu::is_told() {
        return Ok(None);
    }
    let crowd = Crowd::new(CROWD)?;
    let mut site = Site::without_recorder().await?;
    site.start_recorder().await?;
    let Bench {
        connections,
        seconds,
        ..
    } = *bench;
    let terms = |item, durability, status, seconds| Terms {
        item,
        durability,
        status,
        connections,
        seconds,
    };
    // Every token is checked for the first time here.
    sell(&site, &crowd, terms("costs-first", "recorded", 201, 1)).await?;
    let recorded = of_orders(
        &site,
        &crowd,
        terms("costs-recorded", "recorded", 201, seconds),
    )
    .await?;
    let accepted = of_orders(
        &site,
        &crowd,
        terms("costs-accepted", "accepted", 202, seconds),
    )
    .await?;
    Ok(Some(Costs {
        service_us_per_recorded_order: recorded.service,
        service_us_per_accepted_order: accepted.service,
        service_us_per_refusal: of_refusals(bench, &site, &crowd).await?,
        redis_us_per_order: recorded.redis,
        recorder_us_per_order: recorded.recorder,
        postgres_us_per_order: recorded.postgres,
        machine,
    }))
}

/// Microseconds, of all that was done or of an order.
struct Parts {
    service: f64,
    recorder: f64,
    redis: f64,
    postgres: f64,
}

impl Parts {
    fn look(site: &Site) -> Result<Self> {
        let recorder = site.recorder_pid().map_or(Ok(0.0), cpu::used_us)?;
        let (service, redis) = (
            cpu::used_us(site.service_pid())?,
            cpu::used_us(site.redis.pid())?,
        );
        Ok(Self {
            service,
            recorder,
            redis,
            postgres: cpu::used_us(site.postgres.pid())?,
        })
    }
}

/// Over a whole sale, from its opening until everything is recorded.
async fn of_orders(site: &Site, crowd: &Crowd, terms: Terms<'_>) -> Result<Parts> {
    let before = Parts::look(site)?;
    sell(site, crowd, terms).await?;
    let (after, orders) = (
        Parts::look(site)?,
        site.audit(terms.item).await?.held as f64,
    );
    Ok(Parts {
        service: (after.service - before.service) / orders,
        recorder: (after.recorder - before.recorder) / orders,
        redis: (after.redis - before.redis) / orders,
        postgres: (after.postgres - before.postgres) / orders,
    })
}

async fn of_refusals(bench: &Bench, site: &Site, crowd: &Crowd) -> Result<f64> {
    site.open(GONE, 1, "recorded").await?;
    let sold = site.order(GONE, "the-only-one").await?;
    ensure!(sold == 201, "the only unit of {GONE} was not sold: {sold}");
    site.audit(GONE).await?;
    let Bench {
        connections,
        seconds,
        ..
    } = *bench;
    let refusals = Load {
        url: &site.url,
        item: GONE,
        tokens: crowd.tokens(),
        run: "late",
        connections,
        seconds,
        requests: None,
        statuses: false,
    };
    let before = cpu::used_us(site.service_pid())?;
    let answered = load(refusals).await?;
    ensure!(
        answered.refused == answered.answers,
        "{} answers were no refusals",
        answered.answers - answered.refused
    );
    Ok((cpu::used_us(site.service_pid())? - before) / answered.answers as f64)
}
