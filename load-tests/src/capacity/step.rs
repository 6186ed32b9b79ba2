//! A step: a new item, a fixed rate of orders for some seconds, and the audit.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, anyhow};
use client::{IdempotencyKey, NewOrder};
use reqwest::Client;
use serde::Serialize;
use tokio::{runtime::Handle, sync::Semaphore, task::JoinSet};

use super::{
    meter::{Meter, Moments},
    options::CapacityOptions,
    schedule::Schedule,
};
use crate::{
    action::{Action, Call},
    admin::Admin,
    buyers::Buyers,
    closing,
    history::Observation,
    items::Items,
    judge::{self, Holdings},
    options::{Options, new_name},
    outcome::Outcome,
    return_policy::ReturnPolicy,
    sale::{Attempt, Sale},
    target::Target,
    verdict::{Expectations, Verdict, percentile_ms, rate},
};

/// Longer than the service takes to report an unknown outcome.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(15);

/// Shorter than the service keeps an idle connection.
const IDLE_TIMEOUT: Duration = Duration::from_secs(10);

/// Bounds the number of tokens to sign. With more requests, buyers order several times.
const BUYERS_MAX: u64 = 100_000;

/// Share of the rate that must be completed. It is below 100 because the last requests complete
/// after the end of the schedule.
const COMPLETED_PERCENT_MIN: f64 = 95.0;

/// The driver is late if its lateness exceeds this share of the bound.
const LATENESS_SHARE_MAX: f64 = 0.1;

/// Runs steps against a service.
pub struct Driver {
    target: Target,
    admin: Admin,
    client: Client,
    options: CapacityOptions,
}

/// The result of a step. Latencies are in milliseconds, from the scheduled time of a request to the
/// last byte of its response.
#[derive(Debug, Clone, Serialize)]
pub struct Step {
    /// The name of the item.
    pub item: String,
    /// Scheduled requests per second.
    pub rate: u64,
    /// Completed requests per second, from the first schedule to the last completion.
    pub achieved: f64,
    /// Median latency.
    pub latency_ms_p50: f64,
    /// 99th percentile of the latency.
    pub latency_ms_p99: f64,
    /// 99.9th percentile of the latency.
    pub latency_ms_p999: f64,
    /// The longest latency.
    pub latency_ms_max: f64,
    /// 99th percentile of the delay with which the driver started requests. Latencies include it.
    pub lateness_ms_p99: f64,
    /// Whether the lateness is a notable share of the bound, so that the driver may be the
    /// bottleneck.
    pub driver_late: bool,
    /// Maximum number of requests that were started and not completed.
    pub outstanding_max: usize,
    /// Orders that were placed.
    pub accepted: u64,
    /// Orders that were refused.
    pub refused: u64,
    /// All other outcomes.
    pub errors: u64,
    /// Whether p99 is within the bound, no request failed, and the service had no backlog.
    pub sustained: bool,
    /// What the audit found wrong, including the requests of the warm-up.
    pub findings: Vec<String>,
}

/// What all requests of a step share.
struct Shared {
    sale: Sale,
    client: Client,
    connections: Semaphore,
    /// The number of the first measured request.
    counts_from: u64,
    meter: Mutex<Meter>,
    /// Requests with an unknown outcome.
    unknown: Mutex<Vec<Call>>,
}

impl Driver {
    /// A driver with its own connections.
    pub fn new(options: &CapacityOptions) -> Result<Self> {
        let target = Target::find(options.host.as_deref(), &options.dir, false)?;
        let admin = Admin::new(&target, false)?;
        let client = Client::builder()
            .timeout(REQUEST_TIMEOUT)
            .pool_idle_timeout(IDLE_TIMEOUT)
            .tcp_nodelay(true)
            .build()?;
        Ok(Self {
            target,
            admin,
            client,
            options: options.clone(),
        })
    }

    /// Runs a step at this rate.
    pub async fn step(&self, rate: u64) -> Result<Step> {
        let schedule = Schedule::new(rate, self.options.warm_seconds + self.options.step_seconds);
        let shared = Arc::new(self.prepare(schedule).await?);
        let outstanding_max = drive(schedule, &shared).await?;
        let findings = self.audit(schedule, &shared).await?;
        let meter = shared.meter.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(self.result(
            rate,
            &shared.sale.items.get(0).id,
            &meter,
            outstanding_max,
            findings,
        ))
    }

    async fn prepare(&self, schedule: Schedule) -> Result<Shared> {
        let buyers = schedule.requests.min(BUYERS_MAX);
        // More units than requests, so that the search for the last units is not measured.
        let stock = self
            .options
            .stock
            .unwrap_or(schedule.requests + schedule.requests.div_ceil(10));
        // The limit is high enough for all orders of a buyer.
        let limit = u32::try_from(schedule.requests.div_ceil(buyers))?;
        let options = Options::of_orders(
            schedule.requests,
            stock,
            limit,
            self.options.segments,
            self.options.durability,
        );
        let items = Items::new(
            [ReturnPolicy::Final].into(),
            &new_name("capacity"),
            &options,
        )?;
        let buyers = Buyers::new(buyers, &self.target.jwt_secret);
        items.create(&self.admin, &options).await?;
        Ok(Shared {
            sale: Sale::new(&self.target, items, buyers, &options)?,
            client: self.client.clone(),
            connections: Semaphore::new(self.options.connections as usize),
            counts_from: schedule.rate * self.options.warm_seconds,
            meter: Mutex::new(Meter::new()?),
            unknown: Mutex::default(),
        })
    }

    /// Settles unknown outcomes, and compares the history with the audit.
    async fn audit(&self, schedule: Schedule, shared: &Shared) -> Result<Vec<String>> {
        let unknown = std::mem::take(
            &mut *shared
                .unknown
                .lock()
                .unwrap_or_else(PoisonError::into_inner),
        );
        for call in unknown {
            let settled = shared.sale.send(&shared.client, &call).await;
            shared.record(&call, &settled.last);
        }
        let closed = closing::close(&shared.sale, &self.admin).await?;
        let expectations = Expectations {
            requests: Some(schedule.requests),
            limit: shared.sale.limit,
            must_resell: false,
        };
        Ok(Verdict::new("capacity", &shared.sale.history(), &closed, expectations).findings)
    }

    fn result(
        &self,
        rate_due: u64,
        item: &str,
        meter: &Meter,
        outstanding_max: usize,
        findings: Vec<String>,
    ) -> Step {
        let (latency, bound_ms) = (
            |percent| percentile_ms(&meter.latency, percent),
            f64::from(u32::try_from(self.options.bound_ms).unwrap_or(u32::MAX)),
        );
        let achieved = rate(meter.latency.len(), meter.seconds());
        let lateness_ms_p99 = percentile_ms(&meter.lateness, 99.0);
        #[expect(clippy::cast_precision_loss, reason = "no rate is near 2^53")]
        let is_completed = achieved * 100.0 >= rate_due as f64 * COMPLETED_PERCENT_MIN;
        Step {
            item: item.to_owned(),
            rate: rate_due,
            achieved,
            latency_ms_p50: latency(50.0),
            latency_ms_p99: latency(99.0),
            latency_ms_p999: latency(99.9),
            latency_ms_max: latency(100.0),
            lateness_ms_p99,
            driver_late: lateness_ms_p99 > bound_ms * LATENESS_SHARE_MAX,
            outstanding_max,
            accepted: meter.accepted,
            refused: meter.refused,
            errors: meter.errors,
            sustained: latency(99.0) <= bound_ms && meter.errors == 0 && is_completed,
            findings,
        }
    }
}

/// Starts every request on schedule, and waits until all have completed. Returns the maximum number
/// of outstanding requests.
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
    // The semaphore is never closed, so a permit always becomes available.
    let _connection = shared.connections.acquire().await;
    let call = shared.order(number);
    let attempt = shared.sale.attempt(&shared.client, &call).await;
    if number >= shared.counts_from {
        let moments = Moments {
            due,
            started,
            completed: Instant::now(),
        };
        shared
            .meter
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .record(moments, &attempt.outcome);
    }
    match attempt.outcome {
        Outcome::Unknown(_) => shared
            .unknown
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(call),
        _ => shared.record(&call, &attempt),
    }
}

impl Shared {
    fn order(&self, number: u64) -> Call {
        let buyer = usize::try_from(number).unwrap_or(0) % self.sale.buyers.count();
        let key = IdempotencyKey::from(number);
        let order = NewOrder::new(&self.sale.items.get(0).id, 1).with_key(key);
        Call {
            buyer,
            item: 0,
            action: Action::Order(order),
        }
    }

    /// Records the outcome in the history.
    fn record(&self, call: &Call, attempt: &Attempt) {
        // No buyer exceeds the limit, so none may be refused because of it.
        let holdings = Holdings {
            held: 0,
            limit: self.sale.limit,
            may_return: false,
        };
        let violation = judge::new_order(&attempt.outcome, 1, holdings);
        self.sale.history().record(&Observation {
            buyer: call.buyer,
            item: call.item,
            action: &call.action,
            outcome: &attempt.outcome,
            violation,
            begun: attempt.begun,
            unknown_first: false,
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
        let word = if self.sustained {
            "sustained"
        } else {
            "failed"
        };
        write!(
            f,
            "{rate:>7}/s scheduled  {achieved:>9.1}/s completed  p50 {latency_ms_p50:.1}  p99 {latency_ms_p99:.1}  p99.9 {latency_ms_p999:.1} ms  {errors} errors  {word}"
        )
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Driver, Step};
    use crate::capacity::{
        double::{Misbehavior, start},
        options::CapacityOptions,
    };

    async fn step(rate: u64, misbehavior: Misbehavior, arguments: &[&str]) -> Step {
        let dir = tempfile::tempdir().unwrap();
        let host = start(dir.path(), misbehavior).await;
        let options = CapacityOptions::for_tests(&host, dir.path(), arguments);
        Driver::new(&options).unwrap().step(rate).await.unwrap()
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn every_request_of_a_step_is_sent_and_found_in_the_audit() {
        let step = step(200, Misbehavior::default(), &[]).await;
        assert_eq!(
            (step.accepted, step.refused, step.errors),
            (200, 0, 0),
            "{step}"
        );
        assert!(step.findings.is_empty(), "{:?}", step.findings);
    }

    /// A closed loop would have sent one request per connection during the stall, and measured all
    /// others as fast.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_stall_delays_every_request_that_was_scheduled_during_it() {
        let stall = Some((100, Duration::from_millis(400)));
        let step = step(
            200,
            Misbehavior {
                stall,
                ..Misbehavior::default()
            },
            &["--connections", "4"],
        )
        .await;
        assert!(
            step.outstanding_max >= 40,
            "80 requests were scheduled during the stall: {}",
            step.outstanding_max
        );
        // The two slowest of 200 requests, which determine p99, were scheduled at its beginning.
        assert!(step.latency_ms_p99 >= 380.0, "{step}");
        assert!(step.latency_ms_max >= 395.0 && !step.sustained, "{step}");
        assert_eq!((step.accepted, step.errors), (200, 0));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn an_unknown_outcome_is_an_error_and_its_order_is_not_lost() {
        let step = step(
            100,
            Misbehavior {
                unknown_every: Some(10),
                ..Misbehavior::default()
            },
            &[],
        )
        .await;
        assert_eq!(
            (step.accepted, step.errors, step.sustained),
            (90, 10, false),
            "{step}"
        );
        assert!(
            step.findings.is_empty(),
            "a repeat resolved each outcome: {:?}",
            step.findings
        );
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn an_order_that_the_audit_lacks_is_found() {
        let step = step(
            50,
            Misbehavior {
                loses: 1,
                ..Misbehavior::default()
            },
            &[],
        )
        .await;
        assert_eq!(
            step.findings,
            ["1 units were acknowledged but are not in the ledger"]
        );
    }
}
