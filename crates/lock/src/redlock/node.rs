//! One node: what is asked of it on behalf of an owner, and whether it may vote.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use redis::InfoDict;
use tokio::{sync::Notify, time::timeout};

use super::{
    clock::ClockWatch,
    durability::{Durability, Generation},
};
use crate::{
    FencingToken, Mode,
    error::{Answer, Exclusion},
    lease::drift,
    owner::unique,
    redis_server::{GENERATION, HIGH_WATER, Keys, Reply, Script, Server, WATCH, script},
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

/// What a script says on a server whose run has not been admitted.
const FORGOT: &str = "forgot";

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
    /// As it was last seen.
    durability: Option<Durability>,
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
        /// What it was marked with, to see if it forgets once more.
        watch: Option<String>,
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

/// INFO, TIME, the generation, the high-water mark and the mark of who waits for it.
type Found = (
    InfoDict,
    (i64, i64),
    Option<String>,
    Option<String>,
    Option<String>,
);

/// What a probe found.
pub(crate) struct Probe {
    pub run_id: String,
    /// The highest token that the node remembers.
    pub mark: i64,
    pub admitted: bool,
    /// Neither the keys of an admission nor a token are there.
    pub blank: bool,
    /// The generation of the earlier run whose votes the node still has.
    pub kept: Option<String>,
    /// Whether its votes survive a restart, by its settings.
    pub durability: Durability,
    /// Whether the node itself has noted that they do.
    pub noted_durable: bool,
    /// Not admitted, and watched for longer than any lease before this probe was sent.
    pub waited: bool,
    /// What it is marked with while it is not admitted.
    pub watch: Option<String>,
    /// What an earlier start of it was marked with.
    pub stale_watch: Option<String>,
    /// By its own clock.
    pub now_us: i64,
}

impl Node {
    pub(crate) fn new(server: Arc<Server>, longest_lease: Duration, alarm: Arc<Notify>) -> Self {
        let guards = Guards {
            admission: Admission::Unknown,
            policy: None,
            durability: None,
            clock: ClockWatch::new(),
            jumped: None,
        };
        Self {
            server,
            longest_lease,
            guards: Mutex::new(guards),
            alarm,
        }
    }

    pub(crate) fn label(&self) -> &str {
        &self.server.label
    }

    pub(crate) fn log_failed_admission(&self, answer: &Answer) {
        tracing::warn!(node = self.label(), %answer, "a node could not be admitted");
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
        let Release {
            keys,
            mode,
            owner,
            tell,
        } = release;
        let channel = if *tell { keys.released() } else { "" };
        let reply = match mode {
            Mode::Exclusive => {
                self.run(&script::RELEASE, &[keys.lock()], &[owner, channel])
                    .await
            }
            Mode::Shared => {
                self.run(
                    &script::RELEASE_SHARED,
                    &[keys.lock(), keys.readers()],
                    &[owner, channel],
                )
                .await
            }
        };
        reply.map_or_else(|answer| answer, |reply| self.answer(&reply))
    }

    /// Takes or keeps a place in the queue, and says which ticket was the last.
    pub(crate) async fn queue(
        &self,
        keys: &Keys,
        waiter: &str,
        ticket: u64,
        ttl: Duration,
    ) -> (Answer, u64) {
        if let Some(exclusion) = self.exclusion() {
            return (Answer::NotVoting(exclusion), 0);
        }
        let arguments = [waiter, &ticket.to_string(), &ttl.as_millis().to_string()];
        match self
            .run(&script::QUEUE, &[keys.queue(), keys.waiters()], &arguments)
            .await
        {
            Ok(reply) => (
                self.answer(&reply),
                reply.word(0).parse().unwrap_or_default(),
            ),
            Err(answer) => (answer, 0),
        }
    }

    pub(crate) async fn leave(&self, keys: &Keys, waiter: &str) -> Answer {
        let reply = self
            .run(&script::LEAVE, &[keys.queue(), keys.waiters()], &[waiter])
            .await;
        reply.map_or_else(|answer| answer, |reply| self.answer(&reply))
    }

    async fn vote(&self, script: &Script, ballot: &Ballot) -> Answer {
        if let Some(exclusion) = self.exclusion_by_guard() {
            return Answer::NotVoting(exclusion);
        }
        let Ballot {
            keys,
            mode,
            owner,
            token,
            ttl,
            keep,
        } = ballot;
        let all = [
            keys.lock(),
            keys.fence(),
            GENERATION,
            HIGH_WATER,
            keys.readers(),
        ];
        let needed = if *mode == Mode::Shared {
            &all[..]
        } else {
            &all[..4]
        };
        let (token, ttl, keep) = (
            token.to_string(),
            ttl.as_millis().to_string(),
            keep.as_millis().to_string(),
        );
        let arguments = [&**owner, &token, &ttl, &keep];
        let mut reply = self.run(script, needed, &arguments).await;
        if let Ok(refusal) = &reply
            && refusal.status == FORGOT
            && self.admit_again().await
        {
            reply = self.run(script, needed, &arguments).await;
        }
        match reply {
            // The reply itself may have shown that the clock has jumped.
            Ok(reply) => self
                .exclusion_by_guard()
                .map_or_else(|| self.answer(&reply), Answer::NotVoting),
            Err(answer) => answer,
        }
    }

    async fn run(
        &self,
        script: &Script,
        keys: &[&str],
        arguments: &[&str],
    ) -> Result<Reply, Answer> {
        let (sent, reply) = self.server.run(script, keys, arguments).await?;
        self.observe_clock(sent, reply.now_us);
        Ok(reply)
    }

    fn answer(&self, reply: &Reply) -> Answer {
        match reply.status.as_str() {
            FORGOT => Answer::NotVoting(Exclusion::Forgot {
                votes_in: self.left(self.forgot(reply.word(0))),
            }),
            _ => reply.answer(),
        }
    }

    /// Notes that this start of the server is not admitted, and since when that is known.
    fn forgot(&self, run_id: &str) -> Instant {
        let mut guards = self.guards();
        match &guards.admission {
            Admission::Waiting {
                run_id: known,
                since,
                ..
            } if known == run_id => *since,
            _ => {
                let since = Instant::now();
                guards.admission = Admission::Waiting {
                    run_id: run_id.to_owned(),
                    since,
                    watch: None,
                };
                self.alarm.notify_one();
                since
            }
        }
    }

    /// Since when this start of the server has been without admission and has not lost its data, as
    /// far as its mark says.
    fn waits(&self, run_id: &str, found: Option<&str>, now_us: i64) -> Instant {
        self.forgot(run_id);
        let now = Instant::now();
        match &mut self.guards().admission {
            Admission::Waiting { since, watch, .. } => {
                // Between two looks it may have been admitted, have voted, and have forgotten that.
                if found.is_none() || watch.as_deref() != found {
                    let marked = found.map_or(Duration::ZERO, |mark| age(mark, now_us));
                    (*since, *watch) = (
                        now.checked_sub(marked).unwrap_or(now),
                        found.map(Into::into),
                    );
                }
                *since
            }
            Admission::Unknown | Admission::Admitted => now,
        }
    }

    /// Marks a node that is not admitted, so that clients that come later, and do not stay for so
    /// long, need not wait from the beginning.
    pub(crate) async fn watch(&self, probe: &Probe) -> Result<(), Answer> {
        let mark = probe.mark_with(&unique());
        let stale = probe.stale_watch.as_deref().unwrap_or_default();
        self.mark(&mark, stale, "").await.map(drop)
    }

    /// Marks a node for a fresh start, if it is blank at that moment. Returns the mark that was
    /// set.
    pub(crate) async fn watch_blank(&self, mark: &str) -> Result<Option<String>, Answer> {
        self.mark(mark, "", "yes").await
    }

    /// The mark that the node has now, if it was made from this one.
    async fn mark(
        &self,
        mark: &str,
        stale: &str,
        if_blank: &str,
    ) -> Result<Option<String>, Answer> {
        let keys = [WATCH, GENERATION, HIGH_WATER];
        let reply = self
            .run(&script::WATCH, &keys, &[mark, stale, if_blank])
            .await?;
        let found = reply.word(0);
        if reply.status != "watched" || !is_made_from(found, mark) {
            return Ok(None);
        }
        if let Admission::Waiting { watch, .. } = &mut self.guards().admission {
            *watch = Some(found.to_owned());
        }
        Ok(Some(found.to_owned()))
    }

    fn observe_clock(&self, sent: Instant, server_us: i64) {
        let received = Instant::now();
        let mut guards = self.guards();
        if let Some(by_ms) = guards.clock.observe(sent, received, server_us) {
            tracing::warn!(
                node = self.label(),
                by_ms,
                "the clock of a node has jumped; it does not vote until its leases have ended"
            );
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
            return Some(Exclusion::Evicts {
                policy: policy.clone(),
            });
        }
        let (since, by_ms) = guards.jumped?;
        let votes_in = self.left(since);
        (!votes_in.is_zero()).then_some(Exclusion::ClockJumped { by_ms, votes_in })
    }

    /// Why the node must not vote, as far as is known. Another client may have admitted it since.
    pub(crate) fn exclusion(&self) -> Option<Exclusion> {
        self.exclusion_by_guard()
            .or_else(|| match &self.guards().admission {
                Admission::Waiting { since, .. } => Some(Exclusion::Forgot {
                    votes_in: self.left(*since),
                }),
                Admission::Unknown | Admission::Admitted => None,
            })
    }

    /// Looks at the node's guards.
    pub(crate) async fn probe(&self) -> Result<Probe, Answer> {
        let mut pipeline = redis::pipe();
        pipeline
            .cmd("INFO")
            .cmd("TIME")
            .get(GENERATION)
            .get(HIGH_WATER)
            .get(WATCH);
        let sent = Instant::now();
        let (found, durability) = tokio::join!(
            self.server.query::<Found>(&pipeline),
            Durability::ask(&self.server)
        );
        let found = found?;
        let (seconds, us) = found.1;
        self.observe_clock(sent, seconds * 1_000_000 + us);
        self.judge(found, durability, sent)
    }

    pub(super) fn judge(
        &self,
        (info, (seconds, us), generation, high_water, watch): Found,
        durability: Durability,
        sent: Instant,
    ) -> Result<Probe, Answer> {
        let run_id: String = info
            .get("run_id")
            .ok_or_else(|| Answer::Unreadable("INFO without run_id".into()))?;
        let policy: String = info.get("maxmemory_policy").unwrap_or_default();
        let durability = durability.with_info(&info);
        let blank = generation.is_none() && high_water.is_none();
        let known = Generation::parse(generation.as_deref().unwrap_or_default());
        let mark = mark(known.floor)?.max(mark(high_water.as_deref().unwrap_or_default())?);
        let admitted = known.run_id == run_id;
        let noted_durable = known.is_durable;
        let now_us = seconds * 1_000_000 + us;
        let (watch, stale_watch) = if watch
            .as_deref()
            .is_some_and(|mark| mark.starts_with(&run_id))
        {
            (watch, None)
        } else {
            (None, watch)
        };
        self.guards().policy = (policy != "noeviction").then_some(policy);
        self.note(&durability);
        let waited = if admitted {
            self.guards().admission = Admission::Admitted;
            false
        } else {
            self.waits(&run_id, watch.as_deref(), now_us) + self.longest_lease <= sent
        };
        let is_kept = !admitted && noted_durable && durability == Durability::Confirmed;
        Ok(Probe {
            run_id,
            mark,
            admitted,
            blank,
            kept: generation.filter(|_| is_kept),
            durability,
            noted_durable,
            waited,
            watch,
            stale_watch,
            now_us,
        })
    }

    fn note(&self, durability: &Durability) {
        let before = self.guards().durability.replace(durability.clone());
        if before.as_ref() != Some(durability)
            && let Durability::Refuted { reason } = durability
        {
            tracing::warn!(
                node = self.label(),
                reason,
                "a node declared durable is not; it waits for the longest lease after a restart"
            );
        }
    }

    /// Lets this run of the server vote, above `floor`, if the server still has the `evidence` on
    /// which that was decided: the mark of those who waited, or the generation of an earlier run.
    pub(crate) async fn admit(
        &self,
        probe: &Probe,
        floor: i64,
        evidence: &str,
    ) -> Result<bool, Answer> {
        let durable = match probe.durability {
            Durability::Confirmed => "yes",
            Durability::Refuted { .. } => "no",
            Durability::NotDeclared => "",
        };
        let keys = [GENERATION, HIGH_WATER, WATCH];
        let arguments = [&*probe.run_id, &floor.to_string(), evidence, durable];
        let reply = self.run(&script::ADMIT, &keys, &arguments).await?;
        let is_admitted = reply.status == "admitted";
        if is_admitted {
            self.guards().admission = Admission::Admitted;
        } else {
            self.forgot(reply.word(0));
        }
        Ok(is_admitted)
    }

    /// Lets a durable node vote again that has restarted and still has its votes. It needs no
    /// floor: it knows every token that it has accepted.
    pub(crate) async fn admit_kept(&self, probe: &Probe) -> Result<bool, Answer> {
        let Some(generation) = &probe.kept else {
            return Ok(false);
        };
        let is_admitted = self.admit(probe, 0, generation).await?;
        if is_admitted {
            tracing::info!(
                node = self.label(),
                "a durable node has restarted with its votes; it votes again"
            );
        }
        Ok(is_admitted)
    }

    /// The same for a node that a ballot found restarted: the ballot need not fail for that.
    async fn admit_again(&self) -> bool {
        if !self.server.is_declared_durable {
            return false;
        }
        let admitted = async {
            let probe = self.probe().await?;
            // A look may have admitted it while the ballot was on its way.
            Ok::<_, Answer>(probe.admitted || self.admit_kept(&probe).await?)
        };
        let answered = timeout(self.server.answer_timeout(), admitted).await;
        matches!(answered, Ok(Ok(true)))
    }

    fn guards(&self) -> MutexGuard<'_, Guards> {
        self.guards.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Probe {
    /// A mark for this run of the server, `RUN_ID:MICROSECONDS:NAME`. The server fills in the time
    /// at which it sets the mark, because the wait starts then and not at the probe.
    pub(crate) fn mark_with(&self, name: &str) -> String {
        format!("{}:{TIME_OF_SERVER}:{name}", self.run_id)
    }

    /// Whether a client has seen that it does not vote, in this run or an earlier one.
    pub(crate) fn is_marked(&self) -> bool {
        self.watch.is_some() || self.stale_watch.is_some()
    }

    /// For how long the node has had its mark.
    pub(crate) fn marked_for(&self) -> Option<Duration> {
        self.watch.as_deref().map(|mark| age(mark, self.now_us))
    }
}

/// Stands for the server's time in a mark that is still to be set.
const TIME_OF_SERVER: char = '@';

/// Whether the server made `found` from `mark` by filling in its time.
fn is_made_from(found: &str, mark: &str) -> bool {
    mark.split_once(TIME_OF_SERVER)
        .is_some_and(|(run, name)| found.starts_with(run) && found.ends_with(name))
}

fn mark(text: &str) -> Result<i64, Answer> {
    if text.is_empty() {
        return Ok(0);
    }
    text.parse()
        .ok()
        .filter(|mark| *mark >= 0)
        .ok_or_else(|| Answer::Unreadable(format!("high-water mark {text:?}")))
}

/// For how long a server has had its mark, by its own clock; a little less, so that it is not
/// longer by ours.
fn age(mark: &str, now_us: i64) -> Duration {
    let marked_us = mark
        .split(':')
        .nth(1)
        .and_then(|marked_us| marked_us.parse::<i64>().ok());
    let age = marked_us
        .and_then(|marked_us| u64::try_from(now_us.checked_sub(marked_us)?).ok())
        .map_or(Duration::ZERO, Duration::from_micros);
    age.saturating_sub(drift(age))
}
