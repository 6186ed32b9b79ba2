//! One Redis server: how it is asked, and whether it may vote.
//!
//! What a reader could get wrong: a request that timed out is not undone. Its connection stays, and whatever is sent on it later is carried
//! out later; that is why a release that follows a late acquire frees what the acquire took.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use redis::{
    Client, InfoDict, IntoConnectionInfo, RedisError, RedisResult,
    aio::{ConnectionManager, ConnectionManagerConfig},
    io::tcp::TcpSettings,
};
use tokio::{sync::Notify, time::timeout};

use crate::{
    FencingToken,
    clock::ClockWatch,
    error::{Answer, Exclusion, InvalidArgument},
    name::{GENERATION, HIGH_WATER, Name},
    script::{self, Reply, Script},
};

/// How long a node is waited for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patience {
    /// For an answer.
    pub answer: Duration,
    /// For a connection.
    pub connect: Duration,
    /// The longest lease that the node may have forgotten.
    pub longest_lease: Duration,
}

/// What is asked of a node on behalf of an owner.
#[derive(Debug, Clone)]
pub(crate) struct Ballot {
    pub name: Name,
    pub owner: Arc<str>,
    pub token: FencingToken,
    pub ttl: Duration,
    pub keep: Duration,
}

pub(crate) struct Node {
    pub label: String,
    connection: ConnectionManager,
    patience: Patience,
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

/// INFO, TIME, the generation and the high-water mark.
type Found = (InfoDict, (i64, i64), Option<String>, Option<String>);

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
    pub(crate) fn new(url: &str, patience: Patience, alarm: Arc<Notify>) -> Result<Self, InvalidArgument> {
        let refused = || InvalidArgument::Url(without_credentials(url));
        let info = url.into_connection_info().map_err(|_| refused())?;
        let label = info.addr().to_string();
        // Replies to small requests must not wait for one another (Nagle).
        let client = Client::open(info.set_tcp_settings(TcpSettings::default().set_nodelay(true))).map_err(|_| refused())?;
        // Every request has a timeout of its own; this one only ends the wait for a server that hangs for good.
        let config = ConnectionManagerConfig::new()
            .set_connection_timeout(Some(patience.connect))
            .set_response_timeout(Some(patience.longest_lease.max(patience.answer)))
            .set_number_of_retries(0);
        let connection = ConnectionManager::new_lazy_with_config(client, config).map_err(|_| refused())?;
        let guards = Guards { admission: Admission::Unknown, policy: None, clock: ClockWatch::new(), jumped: None };
        Ok(Self { label, connection, patience, guards: Mutex::new(guards), alarm })
    }

    pub(crate) async fn acquire(&self, ballot: &Ballot) -> Answer {
        self.vote(&script::ACQUIRE, ballot).await
    }

    pub(crate) async fn extend(&self, ballot: &Ballot) -> Answer {
        self.vote(&script::EXTEND, ballot).await
    }

    /// Also asked of a node that must not vote: what it has must go.
    pub(crate) async fn release(&self, name: &Name, owner: &str) -> Answer {
        match self.run(&script::RELEASE, &[name.lock()], &[owner]).await {
            Ok(reply) => self.answer(reply),
            Err(answer) => answer,
        }
    }

    async fn vote(&self, script: &Script, ballot: &Ballot) -> Answer {
        if let Some(exclusion) = self.exclusion_by_guard() {
            return Answer::NotVoting(exclusion);
        }
        let keys = [ballot.name.lock(), ballot.name.fence(), GENERATION, HIGH_WATER];
        let (token, ttl, keep) = (ballot.token.to_string(), ballot.ttl.as_millis().to_string(), ballot.keep.as_millis().to_string());
        match self.run(script, &keys, &[&ballot.owner, &token, &ttl, &keep]).await {
            // The reply itself may have shown that the clock has jumped.
            Ok(reply) => self.exclusion_by_guard().map_or_else(|| self.answer(reply), Answer::NotVoting),
            Err(answer) => answer,
        }
    }

    async fn run(&self, script: &Script, keys: &[&str], arguments: &[&str]) -> Result<Reply, Answer> {
        let sent = Instant::now();
        let reply = timeout(self.patience.answer, script.run(&self.connection, keys, arguments)).await;
        let reply = reply.map_err(|_| Answer::TimedOut)?.map_err(failed)?;
        self.observe_clock(sent, reply.now_us);
        Ok(reply)
    }

    fn answer(&self, reply: Reply) -> Answer {
        match reply.status.as_str() {
            "accepted" => Answer::Accepted,
            "gone" => Answer::Gone,
            "held" => Answer::Held {
                remaining: reply.number(1).and_then(|remaining_ms| u64::try_from(remaining_ms).ok()).map(Duration::from_millis),
                fence: reply.number(0).and_then(FencingToken::new),
            },
            "low" => match reply.number(0).and_then(FencingToken::new) {
                Some(fence) => Answer::TooLow { fence },
                None => Answer::Unreadable(format!("token {:?}", reply.word(0))),
            },
            "forgot" => Answer::NotVoting(Exclusion::Forgot { votes_in: self.left(self.forgot(reply.word(0))) }),
            status => Answer::Unreadable(status.to_owned()),
        }
    }

    /// Notes that this start of the server is not admitted, and since when that is known.
    fn forgot(&self, run_id: &str) -> Instant {
        let mut guards = self.guards();
        match &guards.admission {
            Admission::Waiting { run_id: known, since } if known == run_id => *since,
            _ => {
                let since = Instant::now();
                guards.admission = Admission::Waiting { run_id: run_id.to_owned(), since };
                self.alarm.notify_one();
                since
            }
        }
    }

    fn observe_clock(&self, sent: Instant, server_us: i64) {
        let received = Instant::now();
        let mut guards = self.guards();
        if let Some(by_ms) = guards.clock.observe(sent, received, server_us) {
            tracing::warn!(node = self.label, by_ms, "the clock of a node has jumped; it does not vote until its leases are over");
            guards.jumped = Some((received, by_ms));
        }
    }

    fn left(&self, since: Instant) -> Duration {
        self.patience.longest_lease.saturating_sub(since.elapsed())
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
        let sent = Instant::now();
        let mut connection = self.connection.clone();
        let mut pipeline = redis::pipe();
        pipeline.cmd("INFO").cmd("TIME").get(GENERATION).get(HIGH_WATER);
        let asked = pipeline.query_async(&mut connection);
        let found: RedisResult<Found> =
            timeout(self.patience.answer.max(self.patience.connect), asked).await.map_err(|_| Answer::TimedOut)?;
        let found = found.map_err(failed)?;
        let (seconds, us) = found.1;
        self.observe_clock(sent, seconds * 1_000_000 + us);
        self.judge(found, sent)
    }

    fn judge(&self, (info, _, generation, high_water): Found, sent: Instant) -> Result<Probe, Answer> {
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
        let waited = self.forgot(&run_id) + self.patience.longest_lease <= sent;
        Ok(Probe { run_id, mark, admitted, waited })
    }

    /// Lets this start of the server vote, above `mark`.
    pub(crate) async fn admit(&self, run_id: &str, mark: i64) -> Result<(), Answer> {
        let reply = self.run(&script::ADMIT, &[GENERATION, HIGH_WATER], &[run_id, &mark.to_string()]).await?;
        if reply.status == "admitted" {
            tracing::info!(node = self.label, above = mark, "a node that may have forgotten locks votes again");
            self.guards().admission = Admission::Admitted;
        } else {
            self.forgot(reply.word(0));
        }
        Ok(())
    }

    fn guards(&self) -> MutexGuard<'_, Guards> {
        self.guards.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn failed(error: RedisError) -> Answer {
    if error.is_timeout() { Answer::TimedOut } else { Answer::Failed(error) }
}

fn mark(text: &str) -> Result<i64, Answer> {
    if text.is_empty() {
        return Ok(0);
    }
    text.parse().ok().filter(|mark| *mark >= 0).ok_or_else(|| Answer::Unreadable(format!("high-water mark {text:?}")))
}

fn without_credentials(url: &str) -> String {
    match (url.find("://"), url.rfind('@')) {
        (Some(scheme), Some(at)) if scheme + 3 <= at => format!("{}***{}", &url[..scheme + 3], &url[at..]),
        _ => url.into(),
    }
}
