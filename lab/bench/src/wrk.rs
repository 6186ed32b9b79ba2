//! wrk: a closed loop of orders over HTTP, and its result.
//!
//! wrk counts only whether a status is 400 or higher, because a script that inspects each answer
//! takes a share of its core. The warm-up counts every status. For the measured run, `sale` checks
//! the rest with the service's counters and the ledger.

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
    /// Item that the buyers order.
    pub item: &'a str,
    /// File with one buyer's token per line.
    pub tokens: &'a Path,
    /// Prefix of the idempotency keys, unique among the loads of the item.
    pub run: &'a str,
    /// Concurrent orders.
    pub connections: u32,
    /// Duration.
    pub seconds: u64,
    /// Number of requests after which the load ends earlier.
    pub requests: Option<usize>,
    /// Whether to count every status, which makes wrk slower.
    pub statuses: bool,
}

impl<'a> Load<'a> {
    /// The warm-up before a measurement, which counts every status. The measurement differs in
    /// `run`, `seconds` and `statuses`.
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

/// Result of a load.
#[derive(Debug, Clone, Deserialize)]
pub struct Answered {
    /// Number of answers.
    pub answers: u64,
    micros: u64,
    /// Number of answers with a status of 400 or higher.
    pub refused: u64,
    broken: u64,
    timeouts: u64,
    /// Median latency.
    pub p50_ms: f64,
    /// 99th percentile of the latency.
    pub p99_ms: f64,
    /// Number of answers by status, if they were counted.
    pub statuses: BTreeMap<u16, u64>,
}

impl Answered {
    /// Answers per second.
    pub fn per_second(&self) -> f64 {
        self.answers as f64 * 1e6 / self.micros as f64
    }
}

/// Runs the load. Fails if a connection broke or an answer did not arrive.
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
    testbed::kill_with_parent(command.as_std_mut());
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
    let answered =
        read(&text).with_context(|| format!("wrk printed no result: {complaint}{text}"))?;
    ensure!(answered.answers > 0, "wrk: no request was answered: {text}");
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
        "wrk: connections broke or answers did not arrive: {text}"
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
