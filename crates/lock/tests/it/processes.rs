//! Holders that are killed, or stopped for longer than their lease: each is another process, this
//! program again.
//!
//! What a reader could get wrong: the times that processes tell each other are of the wall clock,
//! which both have from the same machine.

use std::{
    env,
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
        mpsc::{Receiver, channel},
    },
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use lock::{FencingToken, Lock, LockError, RedlockBuilder};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use testbed::{Redis, eventually_some, in_time, timeout};
use testkit_macros::tested_in;
use tokio::time::sleep;

use crate::{
    stalls::unless_stalled,
    support::{
        becomes, holding, is_lost, kept_out, ms, name, patient, pttl, raw, uneven_five, value,
    },
};

const LEASE: Duration = ms(1500);
/// Of a holder that renews it: a busy machine may renew late.
const RENEWED_LEASE: Duration = ms(3000);
/// For how long a waiter counts as alive after it was last heard of.
const WAITER_TIMEOUT: Duration = ms(1000);
/// What a process that was stopped does at intervals, also while it waits for news of its lock.
const TICK: Duration = ms(20);
/// So many of them may pass before it is told of a loss that happened before the first.
const TICKS_MAX: u64 = 5;
const NODES: &str = "LOCK_NODES";
const NAME: &str = "LOCK_NAME";
const RENEWS: &str = "LOCK_RENEWS";
/// Only of a holder that waits its turn.
const WAITER_TIMEOUT_MS: &str = "LOCK_WAITER_TIMEOUT_MS";

fn unix_ms() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_millis()
        .try_into()
        .unwrap()
}

/// What a test knows of its holder. It is killed if the test is over, however that ended.
struct Holder {
    process: Child,
    lines: Receiver<String>,
}

impl Holder {
    fn start(servers: &[Redis], name: &str, renews: bool) -> Self {
        Self::spawn(servers, name, renews, None)
    }

    /// It waits its turn.
    fn start_fair(servers: &[Redis], name: &str, waiter_timeout: Duration) -> Self {
        Self::spawn(servers, name, false, Some(waiter_timeout))
    }

    fn spawn(
        servers: &[Redis],
        name: &str,
        renews: bool,
        waiter_timeout: Option<Duration>,
    ) -> Self {
        let mut command = Command::new(env::current_exe().unwrap());
        command.args([
            "--exact",
            "processes::holds_a_lock_until_it_is_lost",
            "--ignored",
            "--nocapture",
        ]);
        command
            .env(
                NODES,
                servers.iter().map(Redis::url).collect::<Vec<_>>().join(" "),
            )
            .env(NAME, name);
        command.env(RENEWS, if renews { "yes" } else { "no" });
        if let Some(timeout) = waiter_timeout {
            command.env(WAITER_TIMEOUT_MS, timeout.as_millis().to_string());
        }
        let mut process = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (sender, lines) = channel();
        let output = BufReader::new(process.stderr.take().unwrap());
        thread::spawn(move || {
            output
                .lines()
                .map_while(Result::ok)
                .try_for_each(|line| sender.send(line))
        });
        Self { process, lines }
    }

    /// What the holder says of this next.
    async fn says(&self, what: &str) -> Vec<u64> {
        eventually_some(&format!("the line {what:?} of the holder"), async || {
            while let Ok(line) = self.lines.try_recv() {
                if let Some(numbers) = line.strip_prefix(what) {
                    let numbers = numbers.split_whitespace();
                    return Some(numbers.map(|number| number.parse().unwrap()).collect());
                }
                eprintln!("the holder said {line:?}");
            }
            None
        })
        .await
    }

    /// Its token, and when its lease is over by its own deadline.
    async fn has_it(&self) -> (FencingToken, u64) {
        let said = self.says("held").await;
        (
            FencingToken::new(said[0].try_into().unwrap()).unwrap(),
            said[1],
        )
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.process.id().try_into().unwrap()), signal).unwrap();
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Not a test: the process that the tests below stop and kill.
#[tokio::test]
#[ignore = "runs only as a child of another test"]
async fn holds_a_lock_until_it_is_lost() {
    let nodes = env::var(NODES).expect("the nodes");
    let (name, renews) = (env::var(NAME).unwrap(), env::var(RENEWS).unwrap() == "yes");
    let lease = if renews { RENEWED_LEASE } else { LEASE };
    let builder = RedlockBuilder::new(nodes.split(' '))
        .lease(lease)
        .node_timeout(WAITER_TIMEOUT / 2);
    let builder = match env::var(WAITER_TIMEOUT_MS) {
        Ok(timeout) => builder
            .fair(true)
            .waiter_timeout(ms(timeout.parse().unwrap())),
        Err(_) => builder,
    };
    let redlock = builder.build().await.unwrap();
    let mut guard = redlock.acquire(&name).await.unwrap();
    let (token, until) = (
        guard.token(),
        unix_ms() + u64::try_from(guard.validity().as_millis()).unwrap(),
    );
    eprintln!("held {token} {until}");
    let ticks = Arc::new(AtomicU32::new(0));
    tokio::spawn(count_ticks_after_a_stop(lease, Arc::clone(&ticks)));
    if renews {
        is_lost(guard.run(async |_| std::future::pending::<()>().await)).await;
    } else {
        guard.lost().await;
    }
    assert!(guard.is_lost() && guard.validity().is_zero());
    eprintln!("lost {} {}", unix_ms(), ticks.load(Ordering::Relaxed));
    // `run` can be told before the task that cancels has had its turn.
    in_time("the cancellation", guard.cancellation().cancelled()).await;
    is_lost(guard.extend()).await;
    eprintln!("cannot extend");
    is_lost(guard.release()).await;
    eprintln!("cannot release");
}

/// Counts the ticks of this process after the last gap between two of them that is no chance.
async fn count_ticks_after_a_stop(lease: Duration, ticks: Arc<AtomicU32>) {
    let (mut last, mut stopped) = (Instant::now(), false);
    loop {
        sleep(TICK).await;
        if last.elapsed() >= lease / 2 {
            stopped = true;
            ticks.store(0, Ordering::Relaxed);
        }
        ticks.fetch_add(stopped.into(), Ordering::Relaxed);
        last = Instant::now();
    }
}

/// Milliseconds by the clock of a server.
async fn now_ms(server: &Redis) -> f64 {
    let (seconds, micros): (f64, f64) = redis::cmd("TIME")
        .query_async(&mut raw(server).await)
        .await
        .unwrap();
    seconds * 1000.0 + micros / 1000.0
}

/// By the clocks of the servers, the lock ends within the lease unless it is extended.
async fn ends_within(lease: Duration, servers: &[Redis], name: &str) {
    for server in servers {
        let left_ms = pttl(server, name).await;
        let lease_ms = i64::try_from(lease.as_millis()).unwrap();
        assert!(
            left_ms == -2 || (0..=lease_ms).contains(&left_ms),
            "{left_ms} ms are left"
        );
    }
}

#[tokio::test]
async fn the_lock_of_a_killed_process_is_free_when_its_lease_is_over_and_not_before() {
    let five = uneven_five().await;
    let name = name("killed");
    let redlock = patient(five).await;
    let holder = Holder::start(five, &name, false);
    let (token, until) = holder.has_it().await;
    holder.signal(Signal::SIGKILL);
    let attempt = redlock.try_acquire(&name).await;
    assert!(
        matches!(attempt, Err(LockError::Held { .. })) || unix_ms() > until,
        "{attempt:?}"
    );
    let next = match attempt {
        Ok(guard) => guard,
        Err(_) => {
            assert!(
                holding(five, &name).await >= 3 || unix_ms() > until,
                "no client released it"
            );
            ends_within(LEASE, five, &name).await;
            redlock.acquire_within(&name, timeout()).await.unwrap()
        }
    };
    let at = unix_ms();
    assert!(at >= until, "{} ms too early", until - at);
    assert!(next.token() > token, "{} after {token}", next.token());
    next.release().await.unwrap();
}

#[tested_in(unless_stalled(RENEWED_LEASE))]
async fn a_killed_process_that_renewed_has_kept_others_out_and_does_so_no_longer() {
    let five = uneven_five().await;
    let name = name("killed while renewing");
    let redlock = patient(five).await;
    let holder = Holder::start(five, &name, true);
    let (token, until) = holder.has_it().await;
    // It has renewed if it is past the end of its first lease.
    while unix_ms() < until + 300 {
        kept_out(redlock.try_acquire(&name)).await;
        sleep(ms(20)).await;
    }
    holder.signal(Signal::SIGKILL);
    ends_within(RENEWED_LEASE, five, &name).await;
    let next = redlock.acquire_within(&name, timeout()).await.unwrap();
    assert!(next.token() > token, "{} after {token}", next.token());
    next.release().await.unwrap();
}

async fn is_told_when_it_wakes_up(renews: bool) {
    let five = uneven_five().await;
    let name = name("stopped");
    let redlock = patient(five).await;
    let mut holder = Holder::start(five, &name, renews);
    let (token, until) = holder.has_it().await;
    holder.signal(Signal::SIGSTOP);

    let mut next = redlock.acquire_within(&name, timeout()).await.unwrap();
    assert!(next.token() > token, "{} after {token}", next.token());
    assert!(
        unix_ms() >= until,
        "no other client has it while the holder may count on it"
    );
    let mut values = Vec::new();
    for server in five {
        values.push(value(server, &name).await);
    }
    assert!(holder.lines.try_recv().is_err(), "it sleeps");

    let woken = unix_ms();
    holder.signal(Signal::SIGCONT);
    let lost = holder.says("lost").await;
    assert!(lost[0] >= woken, "{lost:?} before {woken}");
    assert!(
        lost[1] <= TICKS_MAX,
        "it learned of the loss {} ticks after it woke up",
        lost[1]
    );
    holder.says("cannot extend").await;
    holder.says("cannot release").await;
    assert!(holder.process.wait().unwrap().success());

    let ours = values.iter().flatten().max().unwrap();
    assert!(
        values
            .iter()
            .filter(|value| value.as_ref() == Some(ours))
            .count()
            >= 3,
        "{values:?}"
    );
    for (server, before) in five.iter().zip(&values) {
        if before.as_ref() == Some(ours) {
            assert_eq!(value(server, &name).await, *before);
        }
    }
    next.extend().await.unwrap();
    next.release().await.unwrap();
}

#[tokio::test]
async fn a_process_that_was_stopped_past_its_lease_is_told_at_once_and_does_no_harm() {
    is_told_when_it_wakes_up(false).await;
}

#[tokio::test]
async fn a_process_that_renews_and_was_stopped_past_its_lease_is_told_at_once_and_does_no_harm() {
    is_told_when_it_wakes_up(true).await;
}

/// How many wait, by the node that knows of the most.
async fn waiting(servers: &[Redis], name: &str) -> usize {
    let mut waiting = 0;
    for server in servers {
        let mut count = redis::cmd("ZCARD");
        waiting = waiting.max(
            count
                .arg(format!("{name}:queue"))
                .query_async(&mut raw(server).await)
                .await
                .unwrap(),
        );
    }
    waiting
}

#[tokio::test]
async fn waiters_in_several_processes_are_served_in_the_order_in_which_they_came() {
    let five = uneven_five().await;
    let name = name("queue of processes");
    let guard = patient(five).await.acquire(&name).await.unwrap();
    let mut waiters = Vec::new();
    for number in 1..=3 {
        // Each keeps its place, however seldom a busy machine lets it ask again.
        waiters.push(Holder::start_fair(five, &name, timeout()));
        becomes("it waits in the queue", async || {
            waiting(five, &name).await == number
        })
        .await;
    }
    let mut last = guard.token();
    guard.release().await.unwrap();
    for waiter in &waiters {
        let (token, _) = waiter.has_it().await;
        assert!(token > last, "{token} after {last}");
        last = token;
        // Its lease ends, and the next one has it.
    }
    becomes("no client waits", async || waiting(five, &name).await == 0).await;
}

#[tokio::test]
async fn a_dead_waiter_delays_those_behind_it_by_its_timeout_and_no_longer() {
    let five = uneven_five().await;
    let name = name("dead waiter");
    let guard = patient(five).await.acquire(&name).await.unwrap();
    let dead = Holder::start_fair(five, &name, WAITER_TIMEOUT);
    becomes("the first waits in the queue", async || {
        waiting(five, &name).await == 1
    })
    .await;
    let alive = Holder::start_fair(five, &name, WAITER_TIMEOUT);
    becomes("the second waits behind it", async || {
        waiting(five, &name).await == 2
    })
    .await;
    dead.signal(Signal::SIGKILL);
    for server in five {
        let waiters: Vec<(Vec<u8>, f64)> = redis::cmd("ZRANGE")
            .arg(format!("{name}:waiters"))
            .arg(0)
            .arg(-1)
            .arg("WITHSCORES")
            .query_async(&mut raw(server).await)
            .await
            .unwrap();
        let latest = now_ms(server).await + WAITER_TIMEOUT.as_secs_f64() * 1000.0;
        assert!(
            waiters.iter().all(|(_, dead_at)| *dead_at <= latest),
            "{waiters:?} after {latest}"
        );
    }
    guard.release().await.unwrap();
    alive.has_it().await;
    assert!(dead.lines.try_recv().is_err(), "the dead one never had it");
}
