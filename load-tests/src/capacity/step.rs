//! One step: a new item, a fixed rate of orders for some seconds, and the audit.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, anyhow};
use reqwest::{Client, header::HeaderValue};
use serde::Serialize;
use tokio::{runtime::Handle, sync::Semaphore, task::JoinSet};

use super::{
    meter::{Meter, Moments},
    options::CapacityOptions,
    schedule::Schedule,
};
use crate::{
    admin::Admin,
    answer::Answer,
    cli::{Options, new_name},
    closing,
    crowd::Crowd,
    items::Items,
    judge::{self, Standing},
    mix::Mix,
    sale::{Attempt, Sale},
    scenarios::RUSH,
    tally::Answered,
    target::Target,
    verdict::{Demand, Verdict, percentile_ms, rate},
    wish::{Asked, Wish},
};

/// Longer than the service takes to say that it does not know.
const TIMEOUT: Duration = Duration::from_secs(15);

/// Shorter than the service keeps a connection on which nothing comes.
const IDLE: Duration = Duration::from_secs(10);

/// Buyers come again rather than that more tokens are signed.
const BUYERS_MOST: u64 = 100_000;

/// A rate is kept up if that much of it is answered, in percent: the last answers come after the last requests.
const KEPT_UP_PERCENT: f64 = 95.0;

/// The driver is late if its own share of the bound is more than this.
const LATE_SHARE_OF_BOUND: f64 = 0.1;

/// Who makes the steps.
pub struct Driver {
    target: Target,
    admin: Admin,
    client: Client,
    options: CapacityOptions,
}

/// What came of a step. Latencies are in milliseconds, from when the request was due to the last byte of the answer.
#[derive(Debug, Clone, Serialize)]
pub struct Step {
    /// The item that was sold.
    pub item: String,
    /// Requests a second that were due.
    pub rate: u64,
    /// Answers a second, from when the first request was due to the last answer.
    pub achieved: f64,
    /// Half of the answers took no longer.
    pub latency_ms_p50: f64,
    /// 99 of 100 took no longer.
    pub latency_ms_p99: f64,
    /// 999 of 1000 took no longer.
    pub latency_ms_p999: f64,
    /// The longest.
    pub latency_ms_max: f64,
    /// How much later than due the driver began 99 of 100 requests at most. It is part of the latencies.
    pub lateness_ms_p99: f64,
    /// The driver's lateness is a notable part of the bound: it may be the driver that cannot do more.
    pub driver_late: bool,
    /// Requests that were begun and not answered at some moment, at most.
    pub outstanding_most: usize,
    /// Orders that were placed.
    pub accepted: u64,
    /// Orders that were refused.
    pub refused: u64,
    /// Anything else.
    pub errors: u64,
    /// p99 is within the bound, nothing failed, and the service kept up.
    pub holds: bool,
    /// What the audit of the item found wrong, the requests of the warm-up included.
    pub findings: Vec<String>,
}

/// What the requests of a step share.
struct Shared {
    sale: Sale,
    client: Client,
    connections: Semaphore,
    /// The first request that counts.
    counts_from: u64,
    meter: Mutex<Meter>,
    /// Requests whose outcome was unknown.
    open: Mutex<Vec<Asked>>,
}

impl Driver {
    /// A driver with a client of its own.
    pub fn new(options: &CapacityOptions) -> Result<Self> {
        let target = Target::find(options.host.as_deref(), &options.dir, false)?;
        let admin = Admin::new(&target)?;
        let client = Client::builder()
            .timeout(TIMEOUT)
            .pool_idle_timeout(IDLE)
            .tcp_nodelay(true)
            .build()?;
        Ok(Self {
            target,
            admin,
            client,
            options: options.clone(),
        })
    }

    /// Makes a step at this rate.
    pub async fn step(&self, rate: u64) -> Result<Step> {
        let schedule = Schedule::new(rate, self.options.warm_seconds + self.options.step_seconds);
        let shared = Arc::new(self.prepare(schedule).await?);
        let outstanding_most = drive(schedule, &shared).await?;
        let findings = self.audit(schedule, &shared).await?;
        let meter = shared.meter.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(self.result(
            rate,
            &shared.sale.items.get(0).id,
            &meter,
            outstanding_most,
            findings,
        ))
    }

    async fn prepare(&self, schedule: Schedule) -> Result<Shared> {
        let buyers = schedule.requests.min(BUYERS_MOST);
        // With room, because what is measured here is not how the last units are found.
        let stock = self
            .options
            .stock
            .unwrap_or(schedule.requests + schedule.requests.div_ceil(10));
        // The limit is nobody's here: a buyer who comes again is one more order.
        let limit = u32::try_from(schedule.requests.div_ceil(buyers))?;
        let options = Options::of_orders(
            schedule.requests,
            stock,
            limit,
            self.options.segments,
            self.options.durability,
        );
        let mix = Mix::of(&RUSH);
        let items = Items::new(&mix, &self.target.host, &new_name("capacity"), &options)?;
        let crowd = Crowd::new(
            mix,
            1,
            (buyers, 0.0),
            schedule.requests,
            &self.target.jwt_secret,
        )?;
        items.open(&self.admin, &options).await?;
        Ok(Shared {
            sale: Sale::new(&self.target, items, crowd, &options)?,
            client: self.client.clone(),
            connections: Semaphore::new(self.options.connections as usize),
            counts_from: schedule.rate * self.options.warm_seconds,
            meter: Mutex::new(Meter::new()?),
            open: Mutex::default(),
        })
    }

    /// Settles what was left open, and holds our books against the audit.
    async fn audit(&self, schedule: Schedule, shared: &Shared) -> Result<Vec<String>> {
        let open = std::mem::take(&mut *shared.open.lock().unwrap_or_else(PoisonError::into_inner));
        for asked in open {
            let settled = shared.sale.ask(&shared.client, &asked).await;
            shared.enter(&asked, &settled.last);
        }
        let closed = closing::close(&shared.sale, &self.admin).await?;
        let demand = Demand {
            requests: Some(schedule.requests),
            limit: shared.sale.limit,
            must_resell: false,
        };
        Ok(Verdict::new("capacity", &shared.sale.tally(), &closed, demand).findings)
    }

    fn result(
        &self,
        rate_due: u64,
        item: &str,
        meter: &Meter,
        outstanding_most: usize,
        findings: Vec<String>,
    ) -> Step {
        let (latency, bound_ms) = (
            |percent| percentile_ms(&meter.latency, percent),
            f64::from(u32::try_from(self.options.bound_ms).unwrap_or(u32::MAX)),
        );
        let achieved = rate(meter.latency.len(), meter.seconds());
        let lateness_ms_p99 = percentile_ms(&meter.lateness, 99.0);
        #[expect(clippy::cast_precision_loss, reason = "no rate is near 2^53")]
        let kept_up = achieved * 100.0 >= rate_due as f64 * KEPT_UP_PERCENT;
        Step {
            item: item.to_owned(),
            rate: rate_due,
            achieved,
            latency_ms_p50: latency(50.0),
            latency_ms_p99: latency(99.0),
            latency_ms_p999: latency(99.9),
            latency_ms_max: latency(100.0),
            lateness_ms_p99,
            driver_late: lateness_ms_p99 > bound_ms * LATE_SHARE_OF_BOUND,
            outstanding_most,
            accepted: meter.accepted,
            refused: meter.refused,
            errors: meter.errors,
            holds: latency(99.0) <= bound_ms && meter.errors == 0 && kept_up,
            findings,
        }
    }
}

/// Starts every request when it is due, and waits for all answers; says how many were outstanding at most.
async fn drive(schedule: Schedule, shared: &Arc<Shared>) -> Result<usize> {
    let (handle, for_thread) = (Handle::current(), Arc::clone(shared));
    let thread = thread::spawn(move || {
        let _runtime = handle.enter();
        let (mut requests, mut most) = (JoinSet::new(), 0);
        schedule.run(Instant::now(), |number, due| {
            requests.spawn(request(Arc::clone(&for_thread), number, due));
            while requests.try_join_next().is_some() {}
            most = most.max(requests.len());
        });
        (requests, most)
    });
    let joined = tokio::task::spawn_blocking(|| thread.join()).await?;
    let (requests, most) = joined.map_err(|_| anyhow!("the driver's thread panicked"))?;
    requests.join_all().await;
    Ok(most)
}

async fn request(shared: Arc<Shared>, number: u64, due: Instant) {
    let started = Instant::now();
    // Closed nowhere, so there is always a permit in the end.
    let _connection = shared.connections.acquire().await;
    let asked = shared.order(number);
    let attempt = shared.sale.attempt(&shared.client, &asked).await;
    if number >= shared.counts_from {
        let moments = Moments {
            due,
            started,
            answered: Instant::now(),
        };
        shared
            .meter
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .enter(moments, &attempt.answer);
    }
    match attempt.answer {
        Answer::Unknown(_) => shared
            .open
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(asked),
        _ => shared.enter(&asked, &attempt),
    }
}

impl Shared {
    fn order(&self, number: u64) -> Asked {
        let buyer = usize::try_from(number).unwrap_or(0) % self.sale.crowd.buyers();
        let key = HeaderValue::from(number);
        Asked {
            buyer,
            item: 0,
            wish: Wish::Order { key, quantity: 1 },
        }
    }

    /// Enters the answer in our books.
    fn enter(&self, asked: &Asked, attempt: &Attempt) {
        // Nobody orders more than the limit, so nobody may be refused for it.
        let standing = Standing {
            held: 0,
            limit: self.sale.limit,
            may_return: false,
        };
        let flaw = judge::new_order(&attempt.answer, 1, standing);
        self.sale.tally().enter(&Answered {
            buyer: asked.buyer,
            item: asked.item,
            wish: &asked.wish,
            answer: &attempt.answer,
            flaw,
            took: attempt.took,
            at: self.sale.elapsed(),
        });
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            rate,
            achieved,
            latency_ms_p50,
            latency_ms_p99,
            latency_ms_p999,
            errors,
            ..
        } = self;
        let holds = if self.holds { "holds" } else { "too much" };
        write!(
            f,
            "{rate:>7}/s due  {achieved:>9.1}/s answered  p50 {latency_ms_p50:.1}  p99 {latency_ms_p99:.1}  p99.9 {latency_ms_p999:.1} ms  {errors} errors  {holds}"
        )
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Driver, Step};
    use crate::capacity::{
        double::{Manners, start},
        options::CapacityOptions,
    };

    async fn step(rate: u64, manners: Manners, arguments: &[&str]) -> Step {
        let dir = tempfile::tempdir().unwrap();
        let host = start(dir.path(), manners).await;
        let options = CapacityOptions::for_tests(&host, dir.path(), arguments);
        Driver::new(&options).unwrap().step(rate).await.unwrap()
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn every_request_of_a_step_is_made_and_found_in_the_audit() {
        let step = step(200, Manners::default(), &[]).await;
        assert_eq!(
            (step.accepted, step.refused, step.errors),
            (200, 0, 0),
            "{step}"
        );
        assert!(step.findings.is_empty(), "{:?}", step.findings);
    }

    /// A closed loop would have made one request for each connection while the service stalled, and called all others fast.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_stall_is_seen_by_everybody_who_would_have_waited() {
        let stall = Some((100, Duration::from_millis(400)));
        let step = step(
            200,
            Manners {
                stall,
                ..Manners::default()
            },
            &["--connections", "4"],
        )
        .await;
        assert!(
            step.outstanding_most >= 40,
            "80 requests were due in the stall: {}",
            step.outstanding_most
        );
        // Of 200 requests the two that count for p99 were due at its beginning.
        assert!(step.latency_ms_p99 >= 380.0, "{step}");
        assert!(step.latency_ms_max >= 395.0 && !step.holds, "{step}");
        assert_eq!((step.accepted, step.errors), (200, 0));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn an_unknown_outcome_is_an_error_and_its_order_is_not_lost() {
        let step = step(
            100,
            Manners {
                unknown_every: Some(10),
                ..Manners::default()
            },
            &[],
        )
        .await;
        assert_eq!(
            (step.accepted, step.errors, step.holds),
            (90, 10, false),
            "{step}"
        );
        assert!(
            step.findings.is_empty(),
            "asked again, each was told: {:?}",
            step.findings
        );
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn an_order_that_the_audit_does_not_know_is_found() {
        let step = step(
            50,
            Manners {
                loses: 1,
                ..Manners::default()
            },
            &[],
        )
        .await;
        assert_eq!(
            step.findings,
            ["1 units were acknowledged and are not in the ledger"]
        );
    }
}
