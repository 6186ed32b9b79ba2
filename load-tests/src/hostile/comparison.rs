//! The same rush without hostile clients and beside each kind of attack, alternately: what each
//! costs the buyers.

use std::{fs, path::Path, path::PathBuf};

use anyhow::{Context, Result, ensure};
use clap::Args;
use comfy_table::{Table, presets::UTF8_FULL_CONDENSED};
use serde_json::Value;
use tokio::process::Command;

use super::chosen;
use crate::options::CONNECTIONS;

/// Names of rushes without an attack.
pub const WARM_UP: &str = "warm-up";
pub const ALONE: &str = "alone";

/// The options of the comparison.
#[derive(Debug, Clone, Args)]
pub struct ComparisonOptions {
    /// Address of the service, as for `rush`.
    #[arg(long, env = "HOST", value_name = "URL")]
    host: Option<String>,
    /// Folder of `stockade up`, as for `rush`.
    #[arg(long, value_name = "D", default_value = ".stockade")]
    dir: PathBuf,
    /// Requests of each rush.
    #[arg(long, value_name = "N", default_value_t = 60_000, value_parser = clap::value_parser!(u64).range(1..))]
    requests: u64,
    /// Units of each rush.
    #[arg(long, value_name = "N", default_value_t = 30_000)]
    stock: u64,
    /// Number of rushes of each kind.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// A kind of attack; several times for several. Default: each of them.
    #[arg(long, value_name = "NAME")]
    attack: Vec<String>,
    /// Connections of an attack that is a crowd: as many as the service admits.
    #[arg(long, value_name = "N", default_value_t = CONNECTIONS, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    connections: u32,
    /// Number of hostile clients.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    hostile: u32,
    /// The lowest share of their rate that buyers must keep.
    #[arg(long, value_name = "RATIO", default_value_t = 0.9)]
    keep: f64,
}

impl ComparisonOptions {
    /// The address of the service, if it was named.
    pub fn host(&self) -> Option<&str> {
        self.host.as_deref()
    }

    /// The folder of `stockade up`.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Number of rushes of each kind.
    pub fn rounds(&self) -> u32 {
        self.rounds
    }

    /// Number of hostile clients.
    pub fn hostile(&self) -> u32 {
        self.hostile
    }

    /// The lowest share of their rate that buyers must keep.
    pub fn keep(&self) -> f64 {
        self.keep
    }
}

/// One rush.
pub struct Rush {
    pub is_good: bool,
    pub answers_per_second: f64,
    pub latency_ms_p99: f64,
    held: u64,
}

/// Compares, and prints a table. Returns whether every verdict is good and the buyers kept enough.
pub async fn compare(options: &ComparisonOptions) -> Result<bool> {
    // The program warms up first: connections, plans of the ledger, the clock of the processor.
    rush(options, WARM_UP, None).await?;
    let mut alone = Vec::new();
    let mut attacks = attacks(&options.attack)?;
    for _ in 0..options.rounds {
        alone.push(rush(options, ALONE, None).await?);
        for (attack, beside) in &mut attacks {
            beside.push(rush(options, attack, Some(attack)).await?);
        }
    }
    print(options, &alone, &attacks);
    let beside = attacks.iter().flat_map(|(_, beside)| beside);
    let is_good = alone.iter().chain(beside).all(|rush| rush.is_good);
    let kept = |(_, beside): &(_, Vec<Rush>)| kept(&alone, beside) >= options.keep;
    Ok(is_good && attacks.iter().all(kept))
}

/// The kinds of attack, each without a rush beside it yet.
fn attacks(names: &[String]) -> Result<Vec<(&'static str, Vec<Rush>)>> {
    let mut attacks = Vec::new();
    let names = names.iter().map(|name| Some(name.as_str()));
    let mut names: Vec<_> = names.collect();
    if names.is_empty() {
        names.push(None);
    }
    for name in names {
        let chosen = chosen(name)?.into_iter();
        attacks.extend(chosen.map(|attack| (attack.name, Vec::new())));
    }
    Ok(attacks)
}

/// The share of their rate that buyers keep.
fn kept(alone: &[Rush], beside: &[Rush]) -> f64 {
    let rate = |rushes| median(rushes, |rush| rush.answers_per_second);
    rate(beside) / rate(alone)
}

/// One rush in a process of its own, beside this kind of attack. `name` is that of its verdict.
pub async fn rush(options: &ComparisonOptions, name: &str, attack: Option<&str>) -> Result<Rush> {
    let folder = std::env::temp_dir().join(format!("stockade-hostile-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    let (json, report) = (folder.join("verdict.json"), folder.join("report.html"));
    let mut command = Command::new(std::env::current_exe()?);
    command
        .args(["rush", "--requests", &options.requests.to_string()])
        .args(["--stock", &options.stock.to_string()])
        .args(["--hostile-connections", &options.connections.to_string()])
        .arg("--dir")
        .arg(&options.dir)
        .arg("--json")
        .arg(&json)
        .arg("--report")
        .arg(&report)
        .kill_on_drop(true);
    if let Some(attack) = attack {
        let clients = options.hostile.to_string();
        command.args(["--hostile", &clients, "--attack", attack]);
    }
    if let Some(host) = &options.host {
        command.args(["--host", host]);
    }
    let output = command.output().await.context("a rush did not start")?;
    let verdict = read(&json);
    fs::remove_dir_all(&folder)?;
    let verdict = verdict
        .with_context(|| format!("no verdict: {}", String::from_utf8_lossy(&output.stderr)))?;
    let number = |name: &str| verdict[name].as_f64().context("a number in the verdict");
    let rush = Rush {
        is_good: verdict["good"] == true,
        answers_per_second: number("answers_per_second")?,
        latency_ms_p99: number("answer_latency_ms_p99")?,
        held: verdict["held"].as_u64().unwrap_or_default(),
    };
    eprintln!(
        "{name}: {:.0} answers/s, p99 {:.1} ms, {}",
        rush.answers_per_second,
        rush.latency_ms_p99,
        if rush.is_good {
            "good".to_owned()
        } else {
            format!("not good: {}", verdict["findings"])
        }
    );
    ensure!(rush.answers_per_second > 0.0, "a rush without answers");
    Ok(rush)
}

fn read(json: &Path) -> Result<Value> {
    Ok(serde_json::from_str(&fs::read_to_string(json)?)?)
}

/// The median of a value of all rushes.
pub fn median(rushes: &[Rush], value: impl Fn(&Rush) -> f64) -> f64 {
    let mut values: Vec<_> = rushes.iter().map(value).collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

#[expect(clippy::print_stdout, reason = "the table goes to standard output")]
fn print(options: &ComparisonOptions, alone: &[Rush], attacks: &[(&str, Vec<Rush>)]) {
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED);
    table.set_header([
        "",
        "answers/s",
        "kept",
        "p99 ms",
        "orders held",
        "good verdicts",
    ]);
    let beside = attacks
        .iter()
        .map(|(attack, beside)| (*attack, &beside[..]));
    for (name, rushes) in [(ALONE, alone)].into_iter().chain(beside) {
        table.add_row([
            name.to_owned(),
            format!("{:.0}", median(rushes, |rush| rush.answers_per_second)),
            format!("{:.0} %", kept(alone, rushes) * 100.0),
            format!("{:.1}", median(rushes, |rush| rush.latency_ms_p99)),
            rushes.iter().map(|rush| rush.held).sum::<u64>().to_string(),
            format!(
                "{} of {}",
                rushes.iter().filter(|rush| rush.is_good).count(),
                rushes.len()
            ),
        ]);
    }
    println!("{table}");
    println!(
        "{} hostile clients, crowds of {} connections; at least {:.0} % of the rate must be kept",
        options.hostile,
        options.connections,
        options.keep * 100.0
    );
}

#[cfg(test)]
mod tests {
    use super::{Rush, attacks, median};

    #[test]
    fn each_attack_has_a_row_unless_some_are_named() {
        let all = attacks(&[]).unwrap();
        assert!(all.iter().any(|(name, _)| *name == "half bodies"));
        let named = attacks(&["slow readers".to_owned()]).unwrap();
        assert!(named.len() == 1 && named[0].0 == "slow readers");
        assert!(attacks(&["none".to_owned()]).is_err());
    }

    #[test]
    fn the_median_is_the_middle_of_all_rounds() {
        let rush = |rate| Rush {
            is_good: true,
            answers_per_second: rate,
            latency_ms_p99: 1.0,
            held: 1,
        };
        let rounds = [rush(30.0), rush(10.0), rush(20.0)];
        assert!((median(&rounds, |rush| rush.answers_per_second) - 20.0).abs() < f64::EPSILON);
    }
}
