//! One node: what is asked of it on behalf of an owner, and whether it may vote.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use redis::InfoDict;
use tokio::sync::Notify;

use super::clock::ClockWatch;
use crate::{
    FencingToken, Mode,
    error::{Answer, Exclusion},
    lease::drift,
    redis_server::{GENERATION, HIGH_WATER, Keys, Reply, SEEN, Script, Server, script},
};

/// What is asked of a node on behalf of an owner.
#[derive(Debug, Clone)]
pub(crate) struct Ballot {
    pub keys: Keys,
    pub mode: Mode,
    pub owner: Arc<str>,
    pub token: FencingToken,
    pub ttl: Duration,
    pub keep: Duration,
}

pub(crate) struct Node {
    pub server: Arc<Server>,
    /// The longest lease that it may have forgotten.
    longest_lease: Duration,
    guards: Mutex<Guards>,
    /// Woken when the node said something that the monitor should look into.
    pub alarm: Arc<Notify>,
}

/// What is known of a node's right to vote.
struct Guards {
    admission: Admission,
    /// Anything but `noeviction`.
    policy: Option<String>,
    clock: ClockWatch,
    jumped: Option<(Instant, i64)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Admission {
    Unknown,
    /// This start of the server was first seen then, and has not been admitted.
    Waiting {
        run_id: String,
        since: Instant,
    },
    Admitted,
}

/// What is given back.
#[derive(Debug, Clone)]
pub(crate) struct Release {
    pub keys: Keys,
    pub mode: Mode,
    pub owner: Arc<str>,
    /// Whether those who wait shall know.
    pub tell: bool,
}

/// INFO, TIME, the generation, the high-water mark, and since when this start of the server has been known.
pub(super) type Found = (InfoDict, (i64, i64), Option<String>, Option<String>, Option<String>);

/// What a probe found.
pub(crate) struct Probe {
    pub run_id: String,
    /// The highest token that the node remembers.
    pub mark: i64,
    pub admitted: bool,
    /// Not admitted, and watched for longer than any lease before this probe was sent.
    pub waited: bool,
}

impl Node {
    pub(crate) fn new(server: Arc<Server>, longest_lease: Duration, alarm: Arc<Notify>) -> Self {
        let guards = Guards { admission: Admission::Unknown, policy: None, clock: ClockWatch::new(), jumped: None };
        Self { server, longest_lease, guards: Mutex::new(guards), alarm }
    }

    pub(crate) fn label(&self) -> &str {
        &self.server.label
    }

    pub(crate) async fn acquire(&self, ballot: &Ballot) -> Answer {
        match ballot.mode {
            Mode::Exclusive => self.vote(&script::ACQUIRE, ballot).await,
            Mode::Shared => self.vote(&script::ACQUIRE_SHARED, ballot).await,
        }
    }

    pub(crate) async fn extend(&self, ballot: &Ballot) -> Answer {
        match ballot.mode {
            Mode::Exclusive => self.vote(&script::EXTEND, ballot).await,
            Mode::Shared => self.vote(&script::EXTEND_SHARED, ballot).await,
        }
    }

    /// Also asked of a node that must not vote: what it has must go.
    pub(crate) async fn release(&self, release: &Release) -> Answer {
        let Release { keys, mode, owner, tell } = release;
        let channel = if *tell { keys.released() } else { "" };
        let reply = match mode {
            Mode::Exclusive => self.run(&script::RELEASE, &[keys.lock()], &[owner, channel]).await,
            Mode::Shared => self.run(&script::RELEASE_SHARED, &[keys.lock(), keys.readers()], &[owner, channel]).await,
        };
        reply.map_or_else(|answer| answer, |reply| self.answer(&reply))
    }

    /// Takes or keeps a place in the queue, and says which ticket was the last.
    pub(crate) async fn queue(&self, keys: &Keys, waiter: &str, ticket: u64, ttl: Duration) -> (Answer, u64) {
        if let Some(exclusion) = self.exclusion() {
            return (Answer::NotVoting(exclusion), 0);
        }
        let arguments = [waiter, &ticket.to_string(), &ttl.as_millis().to_string()];
        match self.run(&script::QUEUE, &[keys.queue(), keys.waiters()], &arguments).await {
            Ok(reply) => (self.answer(&reply), reply.word(0).parse().unwrap_or_default()),
            Err(answer) => (answer, 0),
        }
    }

    pub(crate) async fn leave(&self, keys: &Keys, waiter: &str) -> Answer {
        let reply = self.run(&script::LEAVE, &[keys.queue(), keys.waiters()], &[waiter]).await;
        reply.map_or_else(|answer| answer, |reply| self.answer(&reply))
    }

    async fn vote(&self, script: &Script, ballot: &Ballot) -> Answer {
        if let Some(exclusion) = self.exclusion_by_guard() {
            return Answer::NotVoting(exclusion);
        }
        let Ballot { keys, mode, owner, token, ttl, keep } = ballot;
        let all = [keys.lock(), keys.fence(), GENERATION, HIGH_WATER, keys.readers()];
        let needed = if *mode == Mode::Shared { &all[..] } else { &all[..4] };
        let (token, ttl, keep) = (token.to_string(), ttl.as_millis().to_string(), keep.as_millis().to_string());
        match self.run(script, needed, &[owner, &token, &ttl, &keep]).await {
            // The reply itself may have shown that the clock has jumped.
            Ok(reply) => self.exclusion_by_guard().map_or_else(|| self.answer(&reply), Answer::NotVoting),
            Err(answer) => answer,
        }
    }

    async fn run(&self, script: &Script, keys: &[&str], arguments: &[&str]) -> Result<Reply, Answer> {
        let (sent, reply) = self.server.run(script, keys, arguments).await?;
        self.observe_clock(sent, reply.now_us);
        Ok(reply)
    }

    fn answer(&self, reply: &Reply) -> Answer {
        match reply.status.as_str() {
            "accepted" => Answer::Accepted,
            "gone" => Answer::Gone,
            "queued" => Answer::Queued { ahead: reply.word(1).parse().unwrap_or(1) },
            "held" => Answer::Held {
                remaining: reply.number(1).and_then(|remaining_ms| u64::try_from(remaining_ms).ok()).map(Duration::from_millis),
                fence: reply.number(0).and_then(FencingToken::new),
            },
            "low" => match reply.number(0).and_then(FencingToken::new) {
                Some(fence) => Answer::TooLow { fence },
                None => Answer::Unreadable(format!("token {:?}", reply.word(0))),
            },
            "forgot" => Answer::NotVoting(Exclusion::Forgot { votes_in: self.left(self.forgot(reply.word(0), Duration::ZERO)) }),
            status => Answer::Unreadable(status.to_owned()),
        }
    }

    /// Notes that this start of the server is not admitted, and says since when that is known, to us or to anybody.
    fn forgot(&self, run_id: &str, known_for: Duration) -> Instant {
        let now = Instant::now();
        let noted = now.checked_sub(known_for).unwrap_or(now);
        let mut guards = self.guards();
        let since = match &guards.admission {
            Admission::Waiting { run_id: known, since } if known == run_id => noted.min(*since),
            _ => {
                self.alarm.notify_one();
                noted
            }
        };
        guards.admission = Admission::Waiting { run_id: run_id.to_owned(), since };
        since
    }

    fn observe_clock(&self, sent: Instant, server_us: i64) {
        let received = Instant::now();
        let mut guards = self.guards();
        if let Some(by_ms) = guards.clock.observe(sent, received, server_us) {
            tracing::warn!(node = self.label(), by_ms, "the clock of a node has jumped; it does not vote until its leases are over");
            guards.jumped = Some((received, by_ms));
        }
    }

    fn left(&self, since: Instant) -> Duration {
        self.longest_lease.saturating_sub(since.elapsed())
    }

    /// Why the node must not vote, as far as is known without asking it.
    fn exclusion_by_guard(&self) -> Option<Exclusion> {
        let guards = self.guards();
        if guards.admission == Admission::Unknown {
            return Some(Exclusion::Unknown);
        }
        if let Some(policy) = &guards.policy {
            return Some(Exclusion::Evicts { policy: policy.clone() });
        }
        let (since, by_ms) = guards.jumped?;
        let votes_in = self.left(since);
        (!votes_in.is_zero()).then_some(Exclusion::ClockJumped { by_ms, votes_in })
    }

    /// Why the node must not vote, as far as is known. Somebody else may have admitted it meanwhile.
    pub(crate) fn exclusion(&self) -> Option<Exclusion> {
        self.exclusion_by_guard().or_else(|| match &self.guards().admission {
            Admission::Waiting { since, .. } => Some(Exclusion::Forgot { votes_in: self.left(*since) }),
            Admission::Unknown | Admission::Admitted => None,
        })
    }

    /// Looks at the node's guards.
    pub(crate) async fn probe(&self) -> Result<Probe, Answer> {
        let mut pipeline = redis::pipe();
        pipeline.cmd("INFO").cmd("TIME").get(GENERATION).get(HIGH_WATER).get(SEEN);
        let sent = Instant::now();
        let found: Found = self.server.query(&pipeline).await?;
        let now_us = us(found.1);
        self.observe_clock(sent, now_us);
        let is_new =
            !found.4.as_deref().is_some_and(|seen| found.0.get::<String>("run_id").is_some_and(|run_id| seen.starts_with(&run_id)));
        let probe = self.judge(found, sent)?;
        if is_new && !probe.admitted {
            self.note_first_sight(&probe.run_id, now_us).await;
        }
        Ok(probe)
    }

    /// So that somebody who comes later, and does not stay for so long, need not wait from the beginning.
    async fn note_first_sight(&self, run_id: &str, now_us: i64) {
        let mut pipeline = redis::pipe();
        pipeline.set(SEEN, format!("{run_id}:{now_us}")).ignore();
        if let Err(answer) = self.server.query::<()>(&pipeline).await {
            tracing::debug!(node = self.label(), %answer, "a node does not remember since when it is known");
        }
    }

    pub(super) fn judge(&self, (info, now, generation, high_water, seen): Found, sent: Instant) -> Result<Probe, Answer> {
        let run_id: String = info.get("run_id").ok_or_else(|| Answer::Unreadable("INFO without run_id".into()))?;
        let policy: String = info.get("maxmemory_policy").unwrap_or_default();
        let (admitted_run_id, floor) = generation.as_deref().and_then(|generation| generation.split_once(':')).unwrap_or_default();
        let mark = mark(floor)?.max(mark(high_water.as_deref().unwrap_or_default())?);
        let admitted = admitted_run_id == run_id;
        self.guards().policy = (policy != "noeviction").then_some(policy);
        if admitted {
            self.guards().admission = Admission::Admitted;
            return Ok(Probe { run_id, mark, admitted, waited: false });
        }
        let since = self.forgot(&run_id, known_for(&run_id, seen.as_deref(), us(now)));
        let waited = since + self.longest_lease <= sent;
        Ok(Probe { run_id, mark, admitted, waited })
    }

    /// Lets this start of the server vote, above `mark`.
    pub(crate) async fn admit(&self, run_id: &str, mark: i64) -> Result<(), Answer> {
        let reply = self.run(&script::ADMIT, &[GENERATION, HIGH_WATER], &[run_id, &mark.to_string()]).await?;
        if reply.status == "admitted" {
            tracing::info!(node = self.label(), above = mark, "a node that may have forgotten locks votes again");
            self.guards().admission = Admission::Admitted;
        } else {
            self.forgot(reply.word(0), Duration::ZERO);
        }
        Ok(())
    }

    fn guards(&self) -> MutexGuard<'_, Guards> {
        self.guards.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn mark(text: &str) -> Result<i64, Answer> {
    if text.is_empty() {
        return Ok(0);
    }
    text.parse().ok().filter(|mark| *mark >= 0).ok_or_else(|| Answer::Unreadable(format!("high-water mark {text:?}")))
}

fn us((seconds, us): (i64, i64)) -> i64 {
    seconds * 1_000_000 + us
}

/// For how long this start of the server has been known to anybody, by its own clock, and not longer than that by ours.
fn known_for(run_id: &str, seen: Option<&str>, now_us: i64) -> Duration {
    let seen_us = seen.and_then(|seen| seen.strip_prefix(run_id)?.strip_prefix(':')?.parse().ok());
    let known_for = Duration::from_micros(seen_us.and_then(|seen_us: i64| u64::try_from(now_us - seen_us).ok()).unwrap_or_default());
    known_for.saturating_sub(drift(known_for))
}
