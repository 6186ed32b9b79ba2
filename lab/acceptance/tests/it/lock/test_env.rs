//! Lock nodes that vote, and the binary that uses them.

use std::{
    path::Path,
    process::{Child, Command, Output},
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use testbed::Redis;
use testkit::{eventually, timeout};
use tokio::sync::OnceCell;

use crate::process;

/// Five nodes, shared by the tests of this process.
static SHARED: OnceCell<Vec<Redis>> = OnceCell::const_new();
static NAMES: AtomicU32 = AtomicU32::new(0);

/// A name that no other test uses.
pub fn name(what: &str) -> String {
    format!("{what} {}", NAMES.fetch_add(1, Ordering::Relaxed))
}

/// Starts nodes and waits until they vote.
pub async fn start(count: usize) -> Vec<Redis> {
    let mut servers = Vec::new();
    for _ in 0..count {
        servers.push(Redis::start().await.unwrap());
    }
    // Nodes vote after a lease, hence a short one. It may end while the command runs.
    eventually("the first lock of new nodes", async || {
        let mut run = lock_run(&servers, "admission", &["--lease", "500ms"], &["true"]);
        process::run(&mut run).status.success()
    })
    .await;
    servers
}

/// The shared nodes, for tests that break nothing.
pub async fn five() -> &'static [Redis] {
    SHARED.get_or_init(|| start(5)).await
}

pub fn urls(servers: &[Redis]) -> String {
    servers.iter().map(Redis::url).collect::<Vec<_>>().join(",")
}

/// `stockade` without settings.
pub fn stockade() -> Command {
    process::stockade(Path::new("/nonexistent"))
}

pub fn lock_run(servers: &[Redis], name: &str, options: &[&str], command: &[&str]) -> Command {
    let mut run = stockade();
    run.env("LOCK_URLS", urls(servers))
        .args(["lock", "run", name])
        .args(options)
        .arg("--")
        .args(command);
    run
}

/// Such a run, from its start to its end.
pub fn locked_run(servers: &[Redis], name: &str, options: &[&str], command: &[&str]) -> Output {
    process::run(&mut lock_run(servers, name, options, command))
}

/// How such a run ends.
pub fn exit_code(servers: &[Redis], name: &str, options: &[&str], command: &[&str]) -> i32 {
    code(&locked_run(servers, name, options, command))
}

pub fn lock_status(servers: &[Redis], name: &str, options: &[&str]) -> Output {
    process::run(&mut status_command(servers, name, options))
}

pub fn status_command(servers: &[Redis], name: &str, options: &[&str]) -> Command {
    let mut status = stockade();
    status
        .args(["lock", "status", name, "--nodes", &urls(servers)])
        .args(options);
    status
}

pub fn code(output: &Output) -> i32 {
    output.status.code().unwrap_or_else(|| panic!("{output:?}"))
}

/// A run in the background. Killed when dropped.
pub struct Holding(pub Child);

impl Holding {
    /// A run that holds the lock, or waits for it.
    pub fn of(servers: &[Redis], name: &str, options: &[&str], command: &[&str]) -> Self {
        Self::start(&mut lock_run(servers, name, options, command))
    }

    pub fn start(command: &mut Command) -> Self {
        Self(command.spawn().expect("the binary runs"))
    }

    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.0.id().cast_signed()), signal).expect("it can be signalled");
    }

    pub fn ends(&mut self) -> Option<i32> {
        let since = Instant::now();
        loop {
            if let Some(status) = self.0.try_wait().expect("it can be waited for") {
                return status.code();
            }
            // clock: a fault is that it never ends.
            assert!(since.elapsed() < timeout(), "it never ended");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub async fn redis<T: redis::FromRedisValue>(server: &Redis, command: &[&str]) -> T {
    let mut connection = testbed::patient_connection(&server.url()).await.unwrap();
    redis::cmd(command[0])
        .arg(&command[1..])
        .query_async(&mut connection)
        .await
        .unwrap()
}

/// Number of servers that hold the lock, for any owner.
pub async fn holding(servers: &[Redis], name: &str) -> usize {
    let mut holding = 0;
    for server in servers {
        holding += redis::<usize>(server, &["EXISTS", name]).await;
    }
    holding
}

/// Waits until no server holds the lock.
pub async fn becomes_free(servers: &[Redis], name: &str) {
    eventually("the lock is free", async || {
        holding(servers, name).await == 0
    })
    .await;
}

/// Whether the process runs. A zombie that no parent reaps does not count.
pub fn is_alive(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ")
        .is_some_and(|(_, state)| !state.starts_with('Z'))
}
