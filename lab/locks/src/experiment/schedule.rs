//! The schedule of each fault: who acquires the lock when, and when the fault hits.
//!
//! The *holder* acquires the lock first and reaches the servers through proxies that can be cut.
//! The *next* contender waits for the lock. A *probe* tries once while the lock is held.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use postmortem::{
    actor::{Actor, Stop},
    test_env,
};
use testbed::{Proxy, Traffic};
use tokio::time::sleep;

use super::{
    applicability::{POSTGRES_CLOCK_TIMEOUT, lease_for, notices_clock_late},
    counts::Counts,
};
use crate::{
    backend::Backend,
    client::{self, BETWEEN_STEPS, LockSettings},
    contender::{self, ACQUIRED, DECIDED, READY, Report, TIMED_OUT, Task, Work},
    env::TestEnv,
    fault::Fault,
    servers::{self, Servers},
    store::RowKind,
};

const LOCK: &str = "item:42";
/// Acquisitions before the experiment, so that a lock that loses its tokens does not restart at the
/// token that it had.
const PRIOR_ACQUISITIONS: usize = 2;
/// Longest wait of a contender that must get the lock at some time.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(8);
/// Longest wait of a contender that must not get the lock while the holder's lease runs.
const EXCLUDED_TIMEOUT: Duration = Duration::from_millis(1500);
/// How long the holder waits for the response that is lost.
const LOST_RESPONSE_TIMEOUT: Duration = Duration::from_millis(300);
/// Time after its lease by which a holder must have stopped.
const STOP_GRACE: Duration = Duration::from_millis(500);

/// Everything that takes part in an experiment.
pub(super) struct Experiment<'a> {
    env: &'a TestEnv,
    actor_env: test_env::TestEnv,
    number: i64,
    backend: Backend,
    fault: Fault,
    servers: Box<dyn Servers + 'a>,
    /// The holder's connections to the servers, in the order of the servers.
    proxies: Vec<Proxy>,
}

/// The part that a contender has in an experiment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Holder,
    Next,
    Probe,
}

impl Part {
    const fn name(self) -> &'static str {
        match self {
            Self::Holder => "holder",
            Self::Next => "next",
            Self::Probe => "probe",
        }
    }
}

/// What the contenders of an experiment reported, and what the schedule saw.
#[derive(Default)]
struct Observations {
    double_grant_before_fault: bool,
    holder: Report,
    next: Report,
    third_acquired: bool,
    next_wait: Option<Duration>,
}

impl<'a> Experiment<'a> {
    /// Starts the servers, uses the lock, and prepares the fault.
    pub(super) async fn set_up(env: &'a TestEnv, backend: Backend, fault: Fault) -> Result<Self> {
        let mut servers = env.servers.servers(backend, fault).await?;
        let number = env.begin_experiment().await?;
        let settings = LockSettings::new(
            backend,
            servers::urls(servers.as_ref()),
            lease_for(backend, fault),
        );
        use_lock(&settings, &env.lock_name(LOCK, number)).await?;
        servers.prepare(fault).await?;
        let mut proxies = Vec::new();
        for port in servers.ports() {
            proxies.push(Proxy::start(port).await?);
        }
        Ok(Self {
            env,
            actor_env: env.actor_env()?,
            number,
            backend,
            fault,
            servers,
            proxies,
        })
    }

    /// The holder is stopped with its decision made, and writes after the next contender has
    /// acquired the lock.
    pub(super) async fn pause(self) -> Result<Option<Counts>> {
        let mut holder = self.holder(Work::Unchecked).await?;
        let (mut next, third) = (self.next(ACQUIRE_TIMEOUT).await?, self.probe().await?);
        let Some(double_grant) = self.acquire_exclusively(&mut holder, DECIDED).await? else {
            return Ok(None);
        };
        let stopped = holder.pause().await?;
        let acquired_at = self.next_decides(&mut next).await?;
        holder.resume(stopped).await?;
        self.finish_with_third(double_grant, [holder, next, third], acquired_at)
            .await
    }

    /// The holder cannot reach the servers until its lease has ended. Its delayed requests arrive
    /// after the next contender has acquired the lock.
    pub(super) async fn partition(self) -> Result<Option<Counts>> {
        let mut holder = self.holder(Work::StopOnLoss).await?;
        let (mut next, third) = (self.next(ACQUIRE_TIMEOUT).await?, self.probe().await?);
        let Some(double_grant) = self.acquire_exclusively(&mut holder, DECIDED).await? else {
            return Ok(None);
        };
        self.set_traffic(Traffic::Hold);
        sleep(self.lease() + STOP_GRACE).await;
        let acquired_at = self.next_decides(&mut next).await?;
        self.set_traffic(Traffic::Pass);
        self.finish_with_third(double_grant, [holder, next, third], acquired_at)
            .await
    }

    /// The server fails, restarts or changes its clock while the holder runs and its lease is
    /// valid.
    pub(super) async fn break_server(mut self) -> Result<Option<Counts>> {
        let mut holder = self.holder(Work::Unchecked).await?;
        let timeout = if notices_clock_late(self.backend, self.fault) {
            POSTGRES_CLOCK_TIMEOUT
        } else {
            EXCLUDED_TIMEOUT
        };
        // After a failover the servers have another address, so the next contender starts later.
        let waiting = if self.fault == Fault::Failover {
            None
        } else {
            Some(self.next(timeout).await?)
        };
        let began = Instant::now();
        let Some(double_grant) = self.acquire_exclusively(&mut holder, DECIDED).await? else {
            return Ok(None);
        };
        self.servers.inject(self.fault).await?;
        let mut next = match waiting {
            Some(next) => next,
            None => self.next(timeout).await?,
        };
        self.next_decides(&mut next).await?;
        if began.elapsed() > self.safe_lease() {
            return Ok(None);
        }
        let observations = Observations {
            double_grant_before_fault: double_grant,
            holder: holder.finish().await?,
            next: next.finish().await?,
            ..Observations::default()
        };
        self.count(observations).await.map(Some)
    }

    /// The holder's acquire request arrives, and it gives up before the response does.
    pub(super) async fn lose_response(self) -> Result<Option<Counts>> {
        let mut holder = self
            .contender(
                Part::Holder,
                Work::Unchecked,
                LOST_RESPONSE_TIMEOUT,
                self.urls_of_holder(),
            )
            .await?;
        let mut next = self.next(ACQUIRE_TIMEOUT).await?;
        self.set_traffic(Traffic::HoldAnswers);
        let requested = Instant::now();
        holder.until(TIMED_OUT).await?;
        let acquired = acquires(&mut next).await?;
        let next_wait = acquired.then(|| requested.elapsed());
        self.set_traffic(Traffic::Pass);
        let observations = Observations {
            holder: holder.finish().await?,
            next: next.finish().await?,
            next_wait,
            ..Observations::default()
        };
        self.count(observations).await.map(Some)
    }

    /// The holder's process is killed while it holds the lock.
    pub(super) async fn kill(self) -> Result<Option<Counts>> {
        let mut holder = self.holder(Work::Unchecked).await?;
        let mut next = self.next(ACQUIRE_TIMEOUT).await?;
        // The lock that needs two steps dies between them.
        let dies_at = if self.backend == Backend::SetnxExpire {
            BETWEEN_STEPS
        } else {
            DECIDED
        };
        let Some(double_grant) = self.acquire_exclusively(&mut holder, dies_at).await? else {
            return Ok(None);
        };
        next.go().await?;
        holder.kill().await?;
        let killed = Instant::now();
        self.env.store.leave(self.number, 1).await?;
        let acquired = acquires(&mut next).await?;
        let next_wait = acquired.then(|| killed.elapsed());
        let observations = Observations {
            double_grant_before_fault: double_grant,
            next: next.finish().await?,
            next_wait,
            ..Observations::default()
        };
        self.count(observations).await.map(Some)
    }

    /// Starts the holder, and cuts it off from the servers that its majority must not include.
    async fn holder(&self, work: Work) -> Result<Actor> {
        let urls = self.urls_of_holder();
        let holder = self
            .contender(Part::Holder, work, ACQUIRE_TIMEOUT, urls)
            .await?;
        for index in self.servers.unreachable_for_holder() {
            self.proxies[*index].set(Traffic::Reset);
        }
        Ok(holder)
    }

    fn urls_of_holder(&self) -> Vec<String> {
        if self.proxies.is_empty() {
            return self.urls();
        }
        let ports = self.proxies.iter().map(Proxy::port);
        ports.map(|port| self.servers.url(port)).collect()
    }

    fn urls(&self) -> Vec<String> {
        servers::urls(self.servers.as_ref())
    }

    async fn next(&self, timeout: Duration) -> Result<Actor> {
        self.contender(Part::Next, Work::Unchecked, timeout, self.urls())
            .await
    }

    async fn probe(&self) -> Result<Actor> {
        self.contender(Part::Probe, Work::Probe, Duration::ZERO, self.urls())
            .await
    }

    /// Starts a contender, and waits until it is ready.
    async fn contender(
        &self,
        part: Part,
        work: Work,
        timeout: Duration,
        urls: Vec<String>,
    ) -> Result<Actor> {
        let task = Task {
            store_url: self.env.store_url.clone(),
            experiment: self.number,
            settings: LockSettings::new(self.backend, urls, self.lease()),
            lock_name: self.env.lock_name(LOCK, self.number),
            acquire_timeout_ms: u64::try_from(timeout.as_millis())?,
            work,
        };
        let variables = match part {
            Part::Next => self.servers.variables_of_next().await?,
            Part::Holder | Part::Probe => Vec::new(),
        };
        let mut actor = Actor::start_with(
            &self.actor_env,
            part.name(),
            contender::ROLE,
            &task,
            variables,
        )
        .await?;
        actor.until(READY).await?;
        Ok(actor)
    }

    /// Lets the holder acquire the lock and go on to `point`, while a probe tries to acquire it as
    /// well. Returns whether the probe got it; `None` if the lease may have ended meanwhile.
    async fn acquire_exclusively(&self, holder: &mut Actor, point: &str) -> Result<Option<bool>> {
        let mut probe = self.probe().await?;
        let began = Instant::now();
        holder.until(point).await?;
        let report: Report = probe.finish().await?;
        Ok((began.elapsed() < self.safe_lease()).then_some(report.acquired))
    }

    /// Lets the next contender wait for the lock and, if it gets it, go on to its decision. Returns
    /// when it got the lock or gave up.
    async fn next_decides(&self, next: &mut Actor) -> Result<Instant> {
        let acquired = acquires(next).await?;
        let at = Instant::now();
        if acquired {
            next.until(DECIDED).await?;
        }
        Ok(at)
    }

    /// Lets the holder write and release, then a third contender try, and then the next one write.
    /// `None` if the lease of the next contender may have ended before the third one tried.
    async fn finish_with_third(
        &self,
        double_grant_before_fault: bool,
        [mut holder, mut next, mut third]: [Actor; 3],
        acquired_at: Instant,
    ) -> Result<Option<Counts>> {
        let holder: Report = holder.finish().await?;
        let third: Report = third.finish().await?;
        if third.acquired && acquired_at.elapsed() > self.safe_lease() {
            return Ok(None);
        }
        let observations = Observations {
            double_grant_before_fault,
            holder,
            next: next.finish().await?,
            third_acquired: third.acquired,
            next_wait: None,
        };
        self.count(observations).await.map(Some)
    }

    /// Time within which a lease has certainly not ended.
    fn safe_lease(&self) -> Duration {
        self.lease() * 4 / 5
    }

    fn lease(&self) -> Duration {
        lease_for(self.backend, self.fault)
    }

    fn set_traffic(&self, traffic: Traffic) {
        self.proxies.iter().for_each(|proxy| proxy.set(traffic));
    }

    async fn count(&self, seen: Observations) -> Result<Counts> {
        let (store, Observations { holder, next, .. }) = (&self.env.store, &seen);
        let tokens: Vec<_> = holder.tokens.iter().chain(&next.tokens).copied().collect();
        let is_fenced = !tokens.is_empty() || next.promises.is_some_and(|promises| promises.fenced);
        let fenced = if is_fenced {
            Some(store.history(self.number, RowKind::Fenced).await?)
        } else {
            None
        };
        Ok(Counts {
            concurrent_holders: store.concurrent_holders_max(self.number).await?,
            unchecked: store.history(self.number, RowKind::Unchecked).await?,
            fenced,
            next_acquired: next.acquired,
            next_wait_seconds: seen.next_wait.map(|wait| wait.as_secs_f64()),
            third_acquired: seen.third_acquired,
            holder_stopped: holder.stopped,
            double_grant_before_fault: seen.double_grant_before_fault,
            tokens,
            promises: next.promises,
        })
    }
}

/// Acquires and releases the lock, so that nodes vote, and tables and tokens exist.
async fn use_lock(settings: &LockSettings, name: &str) -> Result<()> {
    let client = client::open(settings, None).await?;
    for _ in 0..PRIOR_ACQUISITIONS {
        let held = client
            .acquire(name, ACQUIRE_TIMEOUT)
            .await?
            .context("acquiring the lock without contention timed out")?;
        held.release().await;
    }
    Ok(())
}

/// Waits until a contender acquires the lock or times out. Returns whether it acquired the lock.
async fn acquires(contender: &mut Actor) -> Result<bool> {
    loop {
        match contender.next().await? {
            Stop::At(point) if point == ACQUIRED => return Ok(true),
            Stop::At(point) if point == TIMED_OUT => return Ok(false),
            Stop::At(_) => {}
            Stop::Done(result) => {
                bail!("contender ended before it acquired the lock or timed out: {result}")
            }
        }
    }
}
