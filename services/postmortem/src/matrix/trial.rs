//! One lock and one fault: who takes part, what happens in which order, and what was counted then.
//!
//! Nothing in it is a race: leases are waited out, and where no lease may end by itself it is longer than the trial. A machine that is too slow
//! for that is noticed, and the trial begins anew.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::Serialize;
use testbed::{Proxy, Traffic};
use tokio::time::sleep;

use super::{
    client::{self, BETWEEN, Opening},
    contender::{DECIDED, GAVE_UP, INSIDE, Promises, READY, Report, Task, Work},
    contestant::{Contestant, Home},
    fault::Fault,
    site::{self, Site},
    store::{Row, Which},
    world::World,
};
use crate::{
    actor::{Actor, Role, Stop},
    stage::Stage,
};

const LOCK: &str = "item:42";
/// So that a lock which forgets its tokens does not begin where it was.
const USED_BEFORE: usize = 2;
/// Whoever may get it does so within this.
const PATIENT: Duration = Duration::from_secs(8);
/// Whoever may not get it as long as somebody else's lease runs shows so within this.
const IMPATIENT: Duration = Duration::from_millis(1500);
/// How long the answer is waited for that does not come.
const UNANSWERED: Duration = Duration::from_millis(300);
/// How long after its lease a holder is expected to have stopped.
const GRACE: Duration = Duration::from_millis(500);
/// How often a machine may be too slow.
const ATTEMPTS: usize = 8;
/// How long a PostgreSQL may take to notice that its clock has jumped.
const SEES_ITS_CLOCK_WITHIN: Duration = Duration::from_secs(20);
/// While a database restarts, no lease may end.
const LONGER: Duration = Duration::from_secs(20);

/// What was counted.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Counts {
    /// The most that were inside at the same moment.
    pub inside_at_once: u64,
    /// Of the row that takes every write.
    pub open: Row,
    /// Of the row that is claimed and written with the token; none if there is no token.
    pub fenced: Option<Row>,
    /// Whether the second one got the lock.
    pub next_got_it: bool,
    /// How long it waited for it, where that is the question.
    pub next_after_seconds: Option<f64>,
    /// Whether the release of a holder that had lost the lock let a third one in.
    pub third_let_in: bool,
    /// Whether the holder was told by its lock to stop, and did.
    pub holder_stopped: bool,
    /// Whether somebody else got the lock while it was held and nothing was broken.
    pub given_twice_without_a_fault: bool,
    /// In the order of the turns.
    pub tokens: Vec<i64>,
    /// What the lock promises; none if it promises nothing.
    pub promises: Option<Promises>,
}

/// Why this lock is not tried with this fault, if it is not.
pub fn not_applicable(contestant: Contestant, fault: Fault) -> Option<&'static str> {
    match (contestant.home(), fault) {
        (Home::Sqlite, Fault::Failover | Fault::Restart | Fault::Partition | Fault::LostAnswer) => {
            Some("a file has no server that could die or be cut off")
        }
        (Home::Etcd, Fault::Clock) => Some(
            "its leases go by the monotonic clock, and the library that bends clocks does not reach a program in Go",
        ),
        (Home::Etcd | Home::ZooKeeper, Fault::Failover) => Some(
            "what it acknowledges is on a majority, so no copy that lags is ever elected; here one server runs, which has no copy",
        ),
        _ => None,
    }
}

/// For how long a lock is asked for. New nodes of a redlock vote when a lease is over, so theirs is no longer than it must be.
fn lease(contestant: Contestant, fault: Fault) -> Duration {
    if sees_its_clock_late(contestant, fault) {
        return 2 * SEES_ITS_CLOCK_WITHIN;
    }
    if fault.spares_the_servers() || contestant.home() == Home::FiveRedis {
        fault.lease()
    } else {
        LONGER
    }
}

/// PostgreSQL looks at its clock for the time-outs of a silent session only when some alarm of that session goes off, which may take seconds.
fn sees_its_clock_late(contestant: Contestant, fault: Fault) -> bool {
    contestant.home() == Home::Postgres && fault == Fault::Clock
}

/// Plays it.
pub(super) async fn play(world: &World, contestant: Contestant, fault: Fault) -> Result<Counts> {
    for _ in 0..ATTEMPTS {
        let played = tokio::time::timeout(TRIAL_AT_MOST, play_once(world, contestant, fault)).await;
        let counts = played.with_context(|| format!("it did not end within {TRIAL_AT_MOST:?}"))?;
        if let Some(counts) = counts? {
            return Ok(counts);
        }
    }
    bail!(
        "the machine is too slow: a lease of {:?} was over before what had to happen within it",
        lease(contestant, fault)
    )
}

const TRIAL_AT_MOST: Duration = Duration::from_secs(60);

/// What takes part in a trial.
struct Trial<'a> {
    world: &'a World,
    stage: Stage,
    number: i64,
    contestant: Contestant,
    fault: Fault,
    site: Box<dyn Site + 'a>,
    /// The holder's way to the servers.
    proxies: Vec<Proxy>,
}

/// A machine that was too slow shows nothing.
async fn play_once(world: &World, contestant: Contestant, fault: Fault) -> Result<Option<Counts>> {
    let mut site = world.shared.site(contestant, fault).await?;
    let number = world.begin_trial().await?;
    let name = world.lock_name(LOCK, number);
    use_before(contestant, fault, site.as_ref(), &name).await?;
    site.arm(fault).await?;
    let mut proxies = Vec::new();
    for port in site.ports() {
        proxies.push(Proxy::start(port).await?);
    }
    let stage = world.stage()?;
    let trial = Trial {
        world,
        stage,
        number,
        contestant,
        fault,
        site,
        proxies,
    };
    match fault {
        Fault::Pause => trial.pause().await,
        Fault::Failover | Fault::Restart | Fault::Clock => trial.strike().await,
        Fault::Partition => trial.partition().await,
        Fault::LostAnswer => trial.lost_answer().await,
        Fault::Kill => trial.kill().await,
    }
}

/// A lock that is in use: nodes vote, tables and tokens are there.
async fn use_before(
    contestant: Contestant,
    fault: Fault,
    site: &dyn Site,
    name: &str,
) -> Result<()> {
    let opening = Opening::new(contestant, site::urls(site), lease(contestant, fault));
    let client = client::open(&opening, None).await?;
    for _ in 0..USED_BEFORE {
        let held = client
            .take(name, PATIENT)
            .await?
            .context("the lock was not to be had, and nobody else wanted it")?;
        held.give_back().await;
    }
    Ok(())
}

impl Trial<'_> {
    async fn pause(self) -> Result<Option<Counts>> {
        let mut first = self.first(Work::Blind).await?;
        let (mut second, mut third) = (self.next(PATIENT).await?, self.asker().await?);
        let Some(given_twice) = self.enters(&mut first, DECIDED).await? else {
            return Ok(None);
        };
        let stopped = first.pause().await?;
        let entered = enters(&mut second).await?;
        let had = Instant::now();
        if entered {
            second.until(DECIDED).await?;
        }
        first.resume(stopped).await?;
        let holder: Report = first.finish().await?;
        let third: Report = third.finish().await?;
        if third.had_it && had.elapsed() > self.margin() {
            return Ok(None);
        }
        let next = second.finish().await?;
        self.count(given_twice, holder, next, third.had_it, None)
            .await
            .map(Some)
    }

    /// What happens to the servers while the holder is alive and well, and its lease runs.
    async fn strike(mut self) -> Result<Option<Counts>> {
        let mut first = self.first(Work::Blind).await?;
        // Who asks the server that takes another's place finds it at another address.
        let moves = self.fault == Fault::Failover;
        let late = sees_its_clock_late(self.contestant, self.fault);
        let patience = if late {
            SEES_ITS_CLOCK_WITHIN
        } else {
            IMPATIENT
        };
        let mut second = if moves {
            None
        } else {
            Some(self.next(patience).await?)
        };
        let began = Instant::now();
        let Some(given_twice) = self.enters(&mut first, DECIDED).await? else {
            return Ok(None);
        };
        self.site.strike(self.fault).await?;
        if moves {
            second = Some(self.next(patience).await?);
        }
        let second = second.as_mut().context("there is a second one")?;
        if enters(second).await? {
            second.until(DECIDED).await?;
        }
        if began.elapsed() > self.margin() {
            return Ok(None);
        }
        let holder = first.finish().await?;
        let next = second.finish().await?;
        self.count(given_twice, holder, next, false, None)
            .await
            .map(Some)
    }

    async fn partition(self) -> Result<Option<Counts>> {
        let mut first = self.first(Work::Watched).await?;
        let (mut second, mut third) = (self.next(PATIENT).await?, self.asker().await?);
        let Some(given_twice) = self.enters(&mut first, DECIDED).await? else {
            return Ok(None);
        };
        self.lets(Traffic::Hold);
        sleep(self.lease() + GRACE).await;
        let entered = enters(&mut second).await?;
        let had = Instant::now();
        if entered {
            second.until(DECIDED).await?;
        }
        // What the holder has sent meanwhile arrives now.
        self.lets(Traffic::Pass);
        let holder: Report = first.finish().await?;
        let third: Report = third.finish().await?;
        if third.had_it && had.elapsed() > self.margin() {
            return Ok(None);
        }
        let next = second.finish().await?;
        self.count(given_twice, holder, next, third.had_it, None)
            .await
            .map(Some)
    }

    async fn lost_answer(self) -> Result<Option<Counts>> {
        let mut first = self
            .contender(
                "the first",
                Work::Blind,
                UNANSWERED,
                self.urls_of_the_first(),
            )
            .await?;
        let mut second = self.next(PATIENT).await?;
        self.lets(Traffic::HoldAnswers);
        let asked = Instant::now();
        first.until(GAVE_UP).await?;
        let entered = enters(&mut second).await?;
        let after = entered.then(|| asked.elapsed());
        self.lets(Traffic::Pass);
        let holder = first.finish().await?;
        let next = second.finish().await?;
        self.count(false, holder, next, false, after)
            .await
            .map(Some)
    }

    async fn kill(self) -> Result<Option<Counts>> {
        let mut first = self.first(Work::Blind).await?;
        let mut second = self.next(PATIENT).await?;
        // The lock of two steps dies between them.
        let dies_at = if self.contestant == Contestant::SetnxExpire {
            BETWEEN
        } else {
            DECIDED
        };
        let Some(given_twice) = self.enters(&mut first, dies_at).await? else {
            return Ok(None);
        };
        second.go().await?;
        first.kill().await?;
        let killed = Instant::now();
        self.world.store.leave(self.number, 1).await?;
        let entered = enters(&mut second).await?;
        let after = entered.then(|| killed.elapsed());
        let next = second.finish().await?;
        self.count(given_twice, Report::default(), next, false, after)
            .await
            .map(Some)
    }

    /// Whoever holds it. It comes by ways that can be cut, and those to the servers that must not help it are.
    async fn first(&self, work: Work) -> Result<Actor> {
        let first = self
            .contender("the first", work, PATIENT, self.urls_of_the_first())
            .await?;
        for beyond in self.site.beyond() {
            self.proxies[*beyond].set(Traffic::Reset);
        }
        Ok(first)
    }

    fn urls_of_the_first(&self) -> Vec<String> {
        let ports: Vec<_> = self.proxies.iter().map(Proxy::port).collect();
        if ports.is_empty() {
            site::urls(self.site.as_ref())
        } else {
            ports.iter().map(|port| self.site.url(*port)).collect()
        }
    }

    /// Whoever wants it next.
    async fn next(&self, patience: Duration) -> Result<Actor> {
        self.contender(
            "the next",
            Work::Blind,
            patience,
            site::urls(self.site.as_ref()),
        )
        .await
    }

    /// Whoever asks once.
    async fn asker(&self) -> Result<Actor> {
        self.contender(
            "another",
            Work::Asks,
            Duration::ZERO,
            site::urls(self.site.as_ref()),
        )
        .await
    }

    async fn contender(
        &self,
        lane: &str,
        work: Work,
        patience: Duration,
        urls: Vec<String>,
    ) -> Result<Actor> {
        let opening = Opening::new(self.contestant, urls, self.lease());
        let task = Task {
            database: self.world.database.clone(),
            trial: self.number,
            opening,
            name: self.world.lock_name(LOCK, self.number),
            patience_ms: u64::try_from(patience.as_millis())?,
            work,
        };
        let variables = if lane == "the next" {
            self.site.variables_of_the_next().await?
        } else {
            Vec::new()
        };
        let mut actor =
            Actor::start_with(&self.stage, lane, Role::Contender, &task, variables).await?;
        actor.until(READY).await?;
        Ok(actor)
    }

    /// The holder takes the lock and goes on to this point; meanwhile nobody else must get it. Whether somebody did, unless the lease may have
    /// been over by then.
    async fn enters(&self, first: &mut Actor, point: &str) -> Result<Option<bool>> {
        let mut asker = self.asker().await?;
        let began = Instant::now();
        first.until(point).await?;
        let asked: Report = asker.finish().await?;
        Ok((began.elapsed() < self.margin()).then_some(asked.had_it))
    }

    /// The part of a lease within which a thing has certainly happened while it ran.
    fn margin(&self) -> Duration {
        self.lease() * 4 / 5
    }

    fn lease(&self) -> Duration {
        lease(self.contestant, self.fault)
    }

    fn lets(&self, traffic: Traffic) {
        self.proxies.iter().for_each(|proxy| proxy.set(traffic));
    }

    async fn count(
        &self,
        given_twice: bool,
        holder: Report,
        next: Report,
        third_let_in: bool,
        after: Option<Duration>,
    ) -> Result<Counts> {
        let store = &self.world.store;
        let tokens: Vec<_> = holder.tokens.iter().chain(&next.tokens).copied().collect();
        let open = store.count(self.number, Which::Open).await?;
        let fenced = if next.tokens.is_empty() && holder.tokens.is_empty() && !is_fenced(&next) {
            None
        } else {
            Some(store.count(self.number, Which::Fenced).await?)
        };
        Ok(Counts {
            inside_at_once: store.inside_at_once(self.number).await?,
            open,
            fenced,
            next_got_it: next.had_it,
            next_after_seconds: after.map(|after| after.as_secs_f64()),
            third_let_in,
            holder_stopped: holder.stopped,
            given_twice_without_a_fault: given_twice,
            tokens,
            promises: next.promises,
        })
    }
}

fn is_fenced(report: &Report) -> bool {
    report.promises.is_some_and(|promises| promises.fenced)
}

/// Whether it gets the lock.
async fn enters(contender: &mut Actor) -> Result<bool> {
    loop {
        match contender.next().await? {
            Stop::At(point) if point == INSIDE => return Ok(true),
            Stop::At(point) if point == GAVE_UP => return Ok(false),
            Stop::At(_) => {}
            Stop::Done(result) => bail!("it ended before it had the lock or gave up: {result}"),
        }
    }
}
