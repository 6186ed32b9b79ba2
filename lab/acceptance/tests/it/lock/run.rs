//! A command under a lock.

use std::{
    fs,
    io::Read,
    path::Path,
    process::Stdio,
    time::{Duration, Instant},
};

use nix::sys::signal::Signal;
use testkit::eventually;

use super::test_env::{
    Holding, becomes_free, code, exit_code, five, holding, is_alive, lock_run, lock_status,
    locked_run, name, redis, start, stockade, urls,
};
use crate::process::{run, stderr, stdout};

/// The answer of PTTL for a key that does not exist. A key without an end has another one.
#[cfg(target_os = "linux")]
const NO_KEY: i64 = -2;
/// Longer than any test runs.
const LONG_WAIT: &str = "1h";

fn number(path: &Path) -> Option<i32> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[tokio::test]
async fn the_command_gets_a_token_that_rises_from_run_to_run() {
    let (servers, name) = (five().await, name("tokens"));
    let mut last = 0;
    for _ in 0..4 {
        let output = locked_run(
            servers,
            &name,
            &[],
            &[
                "sh",
                "-c",
                "echo \"$STOCKADE_LOCK_TOKEN/$STOCKADE_LOCK_NAME\"",
            ],
        );
        let text = stdout(&output);
        let (token, of) = text
            .trim_end()
            .split_once('/')
            .unwrap_or_else(|| panic!("{output:?}"));
        let token: i64 = token.parse().unwrap();
        assert!(token > last, "{token} after {last}");
        assert_eq!((of, code(&output), &*stderr(&output)), (&*name, 0, ""));
        last = token;
    }
    becomes_free(servers, &name).await;
}

#[tokio::test]
async fn the_exit_status_is_that_of_the_command() {
    let (servers, name) = (five().await, name("exit status"));
    for (script, expected) in [
        ("exit 0", 0),
        ("exit 7", 7),
        ("exit 255", 255),
        ("kill -9 $$", 137),
        ("kill -TERM $$", 143),
    ] {
        let output = locked_run(servers, &name, &[], &["sh", "-c", script]);
        assert_eq!(code(&output), expected, "{script}: {}", stderr(&output));
    }
}

#[tokio::test]
async fn the_command_reads_our_standard_input() {
    let (servers, name) = (five().await, name("input"));
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), "a line").unwrap();
    let output = run(lock_run(servers, &name, &[], &["cat"]).stdin(file.reopen().unwrap()));
    assert_eq!(stdout(&output), "a line");
}

#[tokio::test]
async fn what_is_no_command_ends_as_in_a_shell_and_frees_the_lock() {
    let (servers, name) = (five().await, name("no command"));
    let text = tempfile::NamedTempFile::new().unwrap();
    let text = text.path().to_str().unwrap();
    for (command, expected) in [
        ("/no/such/command", 127),
        ("no-such-command", 127),
        (text, 126),
        ("/", 126),
    ] {
        let output = locked_run(servers, &name, &["--lease", "60"], &[command]);
        assert_eq!(code(&output), expected, "{}", stderr(&output));
        assert!(stderr(&output).contains(command), "{}", stderr(&output));
        becomes_free(servers, &name).await;
    }
}

#[tokio::test]
async fn a_wait_that_times_out_exits_with_75() {
    let (servers, name) = (five().await, name("wait"));
    let _holder = Holding::of(servers, &name, &[], &["sleep", "60"]);
    eventually("it is held", async || holding(servers, &name).await >= 3).await;
    // A run that waits for much longer gets the lock when the holder's command ends.
    for (wait, at_least) in [("0", 0), ("0.5", 500), ("1500ms", 1500)] {
        let since = Instant::now();
        let output = locked_run(servers, &name, &["--wait", wait], &["echo", "never"]);
        let took = since.elapsed();
        assert_eq!(
            (code(&output), &*stdout(&output)),
            (75, ""),
            "{}",
            stderr(&output)
        );
        assert!(stderr(&output).contains("held for"), "{}", stderr(&output));
        assert!(
            took >= Duration::from_millis(at_least),
            "--wait {wait} took {took:?}"
        );
        if at_least == 0 {
            let attempts = stderr(&output);
            assert!(!attempts.contains("waiting for lock"), "{attempts}");
        }
    }
}

#[tokio::test]
async fn two_runs_exclude_each_other() {
    let (servers, name) = (five().await, name("exclusion"));
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    // A second one inside would be between the two lines of the first.
    let script = format!(
        "echo in >>'{0}'; sleep 0.1; echo out >>'{0}'",
        log.display()
    );
    for options in [
        &["--lease", "10"][..],
        &["--lease", "10", "--fair"],
        &["--lease", "10", "--wait", LONG_WAIT],
    ] {
        let _ = fs::remove_file(&log);
        let mut runs: Vec<_> = (0..4)
            .map(|_| Holding::of(servers, &name, options, &["sh", "-c", &script]))
            .collect();
        assert!(runs.iter_mut().all(|run| run.ends() == Some(0)));
        assert_eq!(
            fs::read_to_string(&log).unwrap(),
            "in\nout\n".repeat(4),
            "{options:?}"
        );
    }
}

#[tokio::test]
async fn sharers_share_and_keep_others_out() {
    let (servers, name) = (five().await, name("sharing"));
    let _one = Holding::of(servers, &name, &["--shared"], &["sleep", "60"]);
    eventually("it is held", async || holding(servers, &name).await >= 3).await;
    assert_eq!(
        exit_code(
            servers,
            &name,
            &["--shared", "--wait", LONG_WAIT],
            &["true"]
        ),
        0
    );
    assert_eq!(exit_code(servers, &name, &["--wait", "0"], &["true"]), 75);
}

#[tokio::test]
async fn the_lock_is_extended_for_as_long_as_the_command_runs() {
    let (servers, name) = (five().await, name("renewal"));
    let folder = tempfile::tempdir().unwrap();
    let done = folder.path().join("done");
    let script = format!("until [ -e '{}' ]; do sleep 0.05; done", done.display());
    let mut holder = Holding::of(servers, &name, &["--lease", "2"], &["sh", "-c", &script]);
    eventually("it is held", async || holding(servers, &name).await >= 3).await;
    tokio::time::sleep(Duration::from_millis(2500)).await;
    assert_eq!(exit_code(servers, &name, &["--wait", "0"], &["true"]), 75);
    fs::write(&done, "").unwrap();
    assert_eq!(holder.ends(), Some(0));
}

/// Writes the pid of a grandchild into a file, and ignores SIGTERM if requested.
fn stubborn(pid: &Path, trap: &str) -> String {
    format!(
        "{trap} sleep 60 & echo $! >'{0}.new'; mv '{0}.new' '{0}'; wait; wait; sleep 60",
        pid.display()
    )
}

#[tokio::test]
async fn a_command_whose_lock_was_taken_is_stopped_with_its_children() {
    let servers = five().await;
    for (trap, grace) in [("", "30"), ("trap '' TERM;", "0.3")] {
        let name = name("taken away");
        let folder = tempfile::tempdir().unwrap();
        let pid = folder.path().join("pid");
        let mut run = lock_run(
            servers,
            &name,
            &["--lease", "3", "--grace", grace],
            &["sh", "-c", &stubborn(&pid, trap)],
        );
        let mut holder = Holding::start(&mut run);
        eventually("it runs", async || number(&pid).is_some()).await;
        for server in &servers[..3] {
            redis::<()>(server, &["SET", &name, "another owner", "PX", "60000"]).await;
        }
        assert_eq!(holder.ends(), Some(74), "{trap}");
        assert!(!is_alive(number(&pid).unwrap()), "{trap}");
    }
}

#[tokio::test]
async fn a_command_whose_nodes_are_gone_is_stopped_within_the_lease() {
    let (mut servers, name) = (start(3).await, name("gone"));
    let mut run = lock_run(&servers, &name, &["--lease", "2"], &["sleep", "60"]);
    let mut holder = Holding::start(run.env("STOCKADE_LOG", "warn").stderr(Stdio::piped()));
    eventually("it is held", async || holding(&servers, &name).await == 3).await;
    for server in &mut servers[..2] {
        server.kill().await.unwrap();
    }
    assert_eq!(holder.ends(), Some(74));
    let mut log = String::new();
    let mut stderr = holder.0.stderr.take().unwrap();
    stderr.read_to_string(&mut log).unwrap();
    // An extension that failed is tried again after a thirtieth of the lease.
    let attempts = log.matches("lease extension failed").count();
    assert!(attempts <= 30, "{attempts} attempts: {log}");
}

#[tokio::test]
async fn signals_are_passed_on_and_the_lock_is_freed() {
    let servers = five().await;
    for (signal, word, expected) in [(Signal::SIGTERM, "TERM", 143), (Signal::SIGINT, "INT", 130)] {
        let name = name("signals");
        let folder = tempfile::tempdir().unwrap();
        let (ready, heard) = (folder.path().join("ready"), folder.path().join("heard"));
        // A command that cleans up and exits with its own status.
        let script = format!(
            "trap 'echo 1 >\"{}\"; exit 9' {word}; echo 1 >'{}'; while :; do sleep 0.05; done",
            heard.display(),
            ready.display()
        );
        let mut holder = Holding::of(servers, &name, &["--lease", "60"], &["sh", "-c", &script]);
        eventually("it runs", async || number(&ready).is_some()).await;
        holder.signal(signal);
        assert_eq!((holder.ends(), number(&heard)), (Some(9), Some(1)));
        becomes_free(servers, &name).await;
        // One that does not.
        let script = format!("echo 2 >'{}'; exec sleep 60", ready.display());
        let mut holder = Holding::of(servers, &name, &["--lease", "60"], &["sh", "-c", &script]);
        eventually("it runs", async || number(&ready) == Some(2)).await;
        holder.signal(signal);
        assert_eq!(holder.ends(), Some(expected));
        becomes_free(servers, &name).await;
    }
}

#[tokio::test]
async fn a_waiting_run_ends_on_a_signal() {
    let (servers, name) = (five().await, name("impatience"));
    let _holder = Holding::of(servers, &name, &[], &["sleep", "60"]);
    eventually("it is held", async || holding(servers, &name).await >= 3).await;
    let mut waiter =
        Holding::start(lock_run(servers, &name, &[], &["true"]).stderr(Stdio::piped()));
    let mut output = std::io::BufReader::new(waiter.0.stderr.take().unwrap());
    let mut line = String::new();
    std::io::BufRead::read_line(&mut output, &mut line).unwrap();
    assert!(
        line.contains("waiting for lock") && line.contains(&name),
        "{line}"
    );
    waiter.signal(Signal::SIGTERM);
    assert_eq!(waiter.ends(), Some(143));
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn whoever_is_killed_takes_the_command_along_and_frees_the_lock_after_its_lease() {
    let (servers, name) = (five().await, name("killed"));
    let folder = tempfile::tempdir().unwrap();
    let pid = folder.path().join("pid");
    let script = format!(
        "echo $$ >'{0}.new'; mv '{0}.new' '{0}'; exec sleep 60",
        pid.display()
    );
    let mut holder = Holding::of(servers, &name, &["--lease", "60"], &["sh", "-c", &script]);
    eventually("it runs", async || number(&pid).is_some()).await;
    holder.signal(Signal::SIGKILL);
    assert_eq!(holder.ends(), None);
    eventually("the command is gone", async || {
        !is_alive(number(&pid).unwrap())
    })
    .await;
    assert!(
        holding(servers, &name).await >= 3,
        "the lock was not released"
    );
    // Each node ends it by itself, after the rest of the lease, which is cut short here.
    for server in servers {
        let left: i64 = redis(server, &["PTTL", &name]).await;
        assert!(left == NO_KEY || (1..=60_000).contains(&left), "{left}");
        redis::<i64>(server, &["PEXPIRE", &name, "1"]).await;
    }
    assert_eq!(
        exit_code(servers, &name, &["--wait", LONG_WAIT], &["true"]),
        0
    );
}

#[tokio::test]
async fn servers_that_are_away_are_69_or_with_a_wait_75() {
    let dead = "redis://127.0.0.1:1,redis://127.0.0.1:2,redis://127.0.0.1:3";
    for (options, expected) in [
        (&[][..], 69),
        (&["--wait", "0"], 75),
        (&["--wait", "0.5"], 75),
    ] {
        let output = run(stockade()
            .args(["lock", "run", "x", "--nodes", dead])
            .args(options)
            .args(["--", "true"]));
        assert_eq!(code(&output), expected, "{}", stderr(&output));
        assert!(
            stderr(&output).contains("too few nodes can vote")
                && stderr(&output).contains("127.0.0.1:2"),
            "{}",
            stderr(&output)
        );
    }
    let (mut servers, name) = (start(3).await, name("one away"));
    servers[0].kill().await.unwrap();
    assert_eq!(
        exit_code(&servers, &name, &[], &["true"]),
        0,
        "a minority may be away"
    );
}

#[tokio::test]
async fn a_run_waits_for_new_nodes_and_reports_it() {
    let mut servers = Vec::new();
    for _ in 0..3 {
        servers.push(testbed::Redis::start().await.unwrap());
    }
    let nodes = urls(&servers);
    let attempt = |options: &[&str]| {
        run(stockade()
            .args(["lock", "run", "new", "--nodes", &nodes])
            .args(options)
            .args(["--", "true"]))
    };
    let output = attempt(&["--wait", "0"]);
    assert_eq!(code(&output), 75, "{}", stderr(&output));
    assert!(stderr(&output).contains("votes in"), "{}", stderr(&output));
    let output = lock_status(&servers, "new", &[]);
    assert_eq!(
        code(&output),
        69,
        "a status call neither waits nor makes a node vote"
    );
    let output = attempt(&["--lease", "2.5"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert!(
        stderr(&output).contains("waiting for nodes to vote: 127.0.0.1:"),
        "{}",
        stderr(&output)
    );
    let output = attempt(&["--wait", "0"]);
    assert_eq!((code(&output), &*stderr(&output)), (0, ""));
}
