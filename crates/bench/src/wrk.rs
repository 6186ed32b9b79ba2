//! wrk: a closed loop of orders over HTTP, and what came of it.
//!
//! What a reader could get wrong: wrk tells answers apart only by whether their status is 400 or higher, because a script that looks at each answer takes a
//! share of its core. The warm-up counts every status; of the measured run the service's own counters and the ledger tell the rest (`sale`).

use std::{collections::BTreeMap, path::Path, process::Stdio};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use tokio::process::Command;

const SCRIPT: &str = include_str!("../wrk/order.lua");

/// A load.
#[derive(Debug, Clone, Copy)]
pub struct Load<'a> {
    /// `http://HOST:PORT`
    pub url: &'a str,
    /// What is ordered.
    pub item: &'a str,
    /// A file with a buyer's token a line.
    pub tokens: &'a Path,
    /// What the idempotency keys begin with: no other load of the item has it.
    pub run: &'a str,
    /// Orders at once.
    pub connections: u32,
    /// How long.
    pub seconds: u64,
    /// Ends before that, after so many.
    pub requests: Option<usize>,
    /// Counts every status, which makes it slower.
    pub statuses: bool,
}

impl<'a> Load<'a> {
    /// The warm-up before a measurement: every status is counted. The measurement differs in `run`, `seconds` and `statuses`.
    pub fn warm(
        url: &'a str,
        item: &'a str,
        tokens: &'a Path,
        connections: u32,
        seconds: u64,
    ) -> Self {
        Self {
            url,
            item,
            tokens,
            run: "warm",
            connections,
            seconds,
            requests: None,
            statuses: true,
        }
    }
}

/// What came of a load.
#[derive(Debug, Clone, Deserialize)]
pub struct Answered {
    /// Answers.
    pub answers: u64,
    micros: u64,
    /// Of these, those with a status of 400 or higher.
    pub refused: u64,
    broken: u64,
    timeouts: u64,
    /// Half of the answers took no longer.
    pub p50_ms: f64,
    /// 99 of 100 took no longer.
    pub p99_ms: f64,
    /// How often each status came, if it was counted.
    pub statuses: BTreeMap<u16, u64>,
}

impl Answered {
    /// Answers a second.
    pub fn per_second(&self) -> f64 {
        self.answers as f64 * 1e6 / self.micros as f64
    }
}

/// Makes the load. An error if a connection broke or an answer did not come.
pub async fn load(load: Load<'_>) -> Result<Answered> {
    let folder = tempfile::tempdir()?;
    let script = folder.path().join("order.lua");
    std::fs::write(&script, SCRIPT)?;
    let mut command = Command::new("wrk");
    let Load {
        connections,
        seconds,
        ..
    } = load;
    command
        .args([
            "-t1",
            &format!("-c{connections}"),
            &format!("-d{seconds}s"),
            "--timeout",
            "10s",
            "-s",
        ])
        .arg(&script)
        .arg(load.url);
    command
        .env("ITEM", load.item)
        .env("TOKENS", load.tokens)
        .env("RUN", load.run)
        .env_remove("REQUESTS")
        .env_remove("STATUSES");
    if let Some(requests) = load.requests {
        command.env("REQUESTS", requests.to_string());
    }
    if load.statuses {
        command.env("STATUSES", "1");
    }
    testbed::die_with_us(command.as_std_mut());
    let output = command
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .context("wrk: `scripts/setup.sh bench` installs it")?;
    let (text, complaint) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    ensure!(
        output.status.success(),
        "wrk: {}: {complaint}{text}",
        output.status
    );
    let answered = read(&text)
        .with_context(|| format!("wrk said something else than expected: {complaint}{text}"))?;
    ensure!(answered.answers > 0, "wrk: nothing was answered: {text}");
    eprintln!(
        "  {} {}: {:.0} answers/s, p50 {:.1} ms, p99 {:.1} ms",
        load.item,
        load.run,
        answered.per_second(),
        answered.p50_ms,
        answered.p99_ms
    );
    ensure!(
        answered.broken == 0 && answered.timeouts == 0,
        "wrk: connections broke or answers did not come: {text}"
    );
    Ok(answered)
}

/// The last line that is JSON.
fn read(text: &str) -> Result<Answered> {
    let line = text
        .lines()
        .rev()
        .find(|line| line.starts_with('{'))
        .context("no result")?;
    Ok(serde_json::from_str(line)?)
}

#[cfg(test)]
mod tests {
    use super::read;

    #[test]
    fn the_result_is_the_last_line_whatever_wrk_prints_before() {
        let text = "Running 5s test @ http://127.0.0.1:1\n  1 threads and 2 connections\n\n\
            {\"answers\":200,\"micros\":2000000,\"refused\":3,\"broken\":0,\"timeouts\":0,\"p50_ms\":1.500,\"p99_ms\":9.000,\"statuses\":{\"201\":197,\"409\":3}}\n";
        let answered = read(text).unwrap();
        assert_eq!(
            (answered.per_second(), answered.refused, answered.p99_ms),
            (100.0, 3, 9.0)
        );
        assert_eq!((answered.statuses[&201], answered.statuses[&409]), (197, 3));
        assert!(read("unable to connect to 127.0.0.1:1 Connection refused\n").is_err());
    }
}
