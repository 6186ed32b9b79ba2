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
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
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

/// A rush without an attack, and the next one beside it. Both are seconds apart, so what else the
/// machine does hits both alike.
pub struct Pair {
    pub alone: Rush,
    pub beside: Rush,
}

/// Compares, and prints a table. Returns whether every verdict is good and the buyers kept enough.
pub async fn compare(options: &ComparisonOptions) -> Result<bool> {
    // The program warms up first: connections, plans of the ledger, the clock of the processor.
    rush(options, WARM_UP, None).await?;
    let mut attacks = attacks(&options.attack)?;
    for _ in 0..options.rounds {
        for (attack, pairs) in &mut attacks {
            pairs.push(Pair {
                alone: rush(options, ALONE, None).await?,
                beside: rush(options, attack, Some(attack)).await?,
            });
        }
    }
    print(options, &attacks);
    let mut pairs = attacks.iter().flat_map(|(_, pairs)| pairs);
    let is_good = pairs.all(|pair| pair.alone.is_good && pair.beside.is_good);
    let kept = |(_, pairs): &(_, Vec<Pair>)| kept(pairs) >= options.keep;
    Ok(is_good && attacks.iter().all(kept))
}

/// The kinds of attack, each without a rush beside it yet.
fn attacks(names: &[String]) -> Result<Vec<(&'static str, Vec<Pair>)>> {
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

/// The share of their rate that buyers keep: the median of all pairs.
pub fn kept(pairs: &[Pair]) -> f64 {
    let rate = |rush: &Rush| rush.answers_per_second;
    median(pairs, |pair| rate(&pair.beside) / rate(&pair.alone))
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

/// The median of a value of all rounds.
pub fn median<T>(rounds: &[T], value: impl Fn(&T) -> f64) -> f64 {
    let mut values: Vec<_> = rounds.iter().map(value).collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

#[expect(clippy::print_stdout, reason = "the table goes to standard output")]
fn print(options: &ComparisonOptions, attacks: &[(&str, Vec<Pair>)]) {
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED);
    table.set_header([
        "beside",
        "answers/s",
        "alone",
        "kept",
        "p99 ms",
        "alone",
        "orders held",
        "good verdicts",
    ]);
    for (attack, pairs) in attacks {
        let beside = |value: fn(&Rush) -> f64| median(pairs, |pair| value(&pair.beside));
        let alone = |value: fn(&Rush) -> f64| median(pairs, |pair| value(&pair.alone));
        let good = pairs.iter().filter(|pair| pair.beside.is_good).count();
        let held = pairs.iter().map(|pair| pair.beside.held).sum::<u64>();
        table.add_row([
            (*attack).to_owned(),
            format!("{:.0}", beside(|rush| rush.answers_per_second)),
            format!("{:.0}", alone(|rush| rush.answers_per_second)),
            format!("{:.0} %", kept(pairs) * 100.0),
            format!("{:.1}", beside(|rush| rush.latency_ms_p99)),
            format!("{:.1}", alone(|rush| rush.latency_ms_p99)),
            held.to_string(),
            format!("{good} of {}", pairs.len()),
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
    use super::{Pair, Rush, attacks, kept};

    #[test]
    fn each_attack_has_a_row_unless_some_are_named() {
        let all = attacks(&[]).unwrap();
        assert!(all.iter().any(|(name, _)| *name == "half bodies"));
        let named = attacks(&["slow readers".to_owned()]).unwrap();
        assert!(named.len() == 1 && named[0].0 == "slow readers");
        assert!(attacks(&["none".to_owned()]).is_err());
    }

    #[test]
    fn what_buyers_keep_is_the_median_of_rushes_beside_each_other() {
        let rush = |rate| Rush {
            is_good: true,
            answers_per_second: rate,
            latency_ms_p99: 1.0,
            held: 1,
        };
        let pairs = [(30.0, 27.0), (10.0, 2.0), (20.0, 19.0)];
        let pairs = pairs.map(|(alone, beside)| Pair {
            alone: rush(alone),
            beside: rush(beside),
        });
        assert!((kept(&pairs) - 0.9).abs() < f64::EPSILON);
    }
}
