//! The same rush without hostile clients, beside each kind of attack, and beside the same attack on
//! a decoy: what each attack costs the buyers, and how much of that the attackers cost themselves.
//!
//! The three rushes of a round follow each other, and the one beside the attack is always between
//! the two that it is compared with. Each round has the order of the one before, reversed, so that
//! a machine that becomes slower or faster favours none of them.

use std::{fs, path::Path, path::PathBuf};

use anyhow::{Context, Result, ensure};
use clap::Args;
use reporting::{number::percent, statistics};
use serde_json::Value;
use tokio::process::Command;

use super::{
    chosen,
    rounds::{Compared, Round, findings, table},
};
use crate::options::{CONNECTIONS, above_zero};

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
    /// Number of rounds: a rush of each kind.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// A kind of attack; several times, or with commas, for several. Default: each of them.
    #[arg(
        long,
        visible_alias = "only",
        value_name = "NAME",
        value_delimiter = ','
    )]
    attack: Vec<String>,
    /// Connections of an attack that is a crowd: as many as the service admits.
    #[arg(long, value_name = "N", default_value_t = CONNECTIONS, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    connections: u32,
    /// Number of hostile clients.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    hostile: u32,
    /// The lowest share that buyers must keep of the rate that attackers leave them; in a storm, of
    /// the rate alone.
    #[arg(long, value_name = "RATIO", default_value_t = 0.9, value_parser = above_zero)]
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

    /// Number of rounds.
    pub fn rounds(&self) -> u32 {
        self.rounds
    }

    /// Number of hostile clients.
    pub fn hostile(&self) -> u32 {
        self.hostile
    }

    /// The lowest share that buyers must keep.
    pub fn keep(&self) -> f64 {
        self.keep
    }
}

/// One rush.
pub struct Rush {
    pub is_good: bool,
    pub answers_per_second: f64,
    pub latency_ms_p99: f64,
    pub held: u64,
    /// Connections that hostile clients opened, or requests that they sent. 0: there were none.
    pub attacks_per_second: f64,
}

#[cfg(test)]
impl Rush {
    /// A rush with these rates of buyers and attackers.
    pub fn for_tests(answers_per_second: f64, attacks_per_second: f64) -> Self {
        Self {
            is_good: true,
            answers_per_second,
            latency_ms_p99: 1.0,
            held: 1,
            attacks_per_second,
        }
    }
}

/// The hostile clients of a rush.
#[derive(Debug, Clone, Copy)]
pub struct Hostility {
    attack: &'static str,
    /// They attack a decoy, at this rate.
    decoy: Option<f64>,
}

/// A rush without an attack, and the next one beside it. Both are seconds apart, so what else the
/// machine does hits both alike.
pub struct Pair {
    pub alone: Rush,
    pub beside: Rush,
}

impl Pair {
    /// The share of their rate that buyers keep.
    pub fn kept(&self) -> f64 {
        self.beside.answers_per_second / self.alone.answers_per_second
    }
}

/// Compares, and prints a table. Returns whether every verdict is good and the buyers kept enough.
pub async fn compare(options: &ComparisonOptions) -> Result<bool> {
    let mut attacks = attacks(&options.attack)?;
    // The program warms up first: connections, plans of the ledger, the clock of the processor.
    rush(options, WARM_UP, None).await?;
    for number in 0..options.rounds {
        for compared in &mut attacks {
            let round = round(options, compared, number).await?;
            compared.rounds.push(round);
        }
    }
    print(options, &attacks);
    let findings = findings(&attacks, options.keep);
    for finding in &findings {
        eprintln!("hostile: {finding}");
    }
    let is_good = attacks.iter().all(Compared::is_good);
    Ok(is_good && findings.is_empty())
}

/// One round of an attack. The decoy is attacked at the rate of the latest rush beside the attack.
async fn round(options: &ComparisonOptions, compared: &Compared, number: u32) -> Result<Round> {
    let attack = compared.attack;
    let latest = compared.rounds.last();
    match latest.map(|round| round.pair.beside.attacks_per_second) {
        Some(rate) if number % 2 == 1 => {
            let decoy = beside_decoy(options, attack, rate).await?;
            let beside = beside(options, attack).await?;
            let alone = rush(options, ALONE, None).await?;
            let pair = Pair { alone, beside };
            Ok(Round { pair, decoy })
        }
        _ => {
            let alone = rush(options, ALONE, None).await?;
            let beside = beside(options, attack).await?;
            let decoy = beside_decoy(options, attack, beside.attacks_per_second).await?;
            let pair = Pair { alone, beside };
            Ok(Round { pair, decoy })
        }
    }
}

async fn beside(options: &ComparisonOptions, attack: &'static str) -> Result<Rush> {
    let decoy = None;
    let rush = rush(options, attack, Some(Hostility { attack, decoy })).await?;
    ensure!(
        rush.attacks_per_second > 0.0,
        "{attack}: the service was not attacked, so nothing is shown"
    );
    Ok(rush)
}

async fn beside_decoy(
    options: &ComparisonOptions,
    attack: &'static str,
    rate: f64,
) -> Result<Rush> {
    let name = format!("{attack}, at a decoy");
    let decoy = Some(rate);
    rush(options, &name, Some(Hostility { attack, decoy })).await
}

/// The kinds of attack, each without a round yet.
fn attacks(names: &[String]) -> Result<Vec<Compared>> {
    let mut attacks = Vec::new();
    let names = names.iter().map(|name| Some(name.trim()));
    let mut names: Vec<_> = names.collect();
    if names.is_empty() {
        names.push(None);
    }
    for name in names {
        let chosen = chosen(name)?.into_iter();
        attacks.extend(chosen.map(|attack| Compared {
            attack: attack.name,
            rounds: Vec::new(),
        }));
    }
    Ok(attacks)
}

/// The share of their rate that buyers keep: the median of all pairs.
pub fn kept(pairs: &[Pair]) -> f64 {
    median(pairs, Pair::kept)
}

/// One rush in a process of its own, beside these hostile clients. `name` is that of its verdict.
pub async fn rush(
    options: &ComparisonOptions,
    name: &str,
    hostility: Option<Hostility>,
) -> Result<Rush> {
    let folder = std::env::temp_dir().join(format!("stockade-hostile-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    let (json, report) = (folder.join("verdict.json"), folder.join("report.html"));
    let mut command = command(options, hostility)?;
    command
        .arg("--json")
        .arg(&json)
        .arg("--report")
        .arg(&report);
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
        attacks_per_second: verdict["attacks_per_second"].as_f64().unwrap_or_default(),
    };
    eprintln!(
        "{name}: {:.0} answers/s, p99 {:.1} ms, attacked {:.1} times/s, {}",
        rush.answers_per_second,
        rush.latency_ms_p99,
        rush.attacks_per_second,
        if rush.is_good {
            "good".to_owned()
        } else {
            format!("not good: {}", verdict["findings"])
        }
    );
    ensure!(rush.answers_per_second > 0.0, "a rush without answers");
    Ok(rush)
}

/// A rush with these hostile clients, without its files.
fn command(options: &ComparisonOptions, hostility: Option<Hostility>) -> Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command
        .args(["rush", "--requests", &options.requests.to_string()])
        .args(["--stock", &options.stock.to_string()])
        .args(["--hostile-connections", &options.connections.to_string()])
        .arg("--dir")
        .arg(&options.dir)
        .kill_on_drop(true);
    if let Some(Hostility { attack, decoy }) = hostility {
        let clients = options.hostile.to_string();
        command.args(["--hostile", &clients, "--attack", attack]);
        if let Some(rate) = decoy {
            command.args(["--decoy", &rate.to_string()]);
        }
    }
    if let Some(host) = &options.host {
        command.args(["--host", host]);
    }
    Ok(command)
}

fn read(json: &Path) -> Result<Value> {
    Ok(serde_json::from_str(&fs::read_to_string(json)?)?)
}

/// The median of a value of all rounds. There is at least one.
pub fn median<T>(rounds: &[T], value: impl Fn(&T) -> f64) -> f64 {
    statistics::median(&rounds.iter().map(value).collect::<Vec<_>>())
}

#[expect(clippy::print_stdout, reason = "the table goes to standard output")]
fn print(options: &ComparisonOptions, attacks: &[Compared]) {
    println!("{}", table(attacks));
    println!(
        "{} hostile clients, crowds of {} connections; medians of {} rounds, with the lowest and the highest; buyers must keep at least {} of what attackers leave",
        options.hostile,
        options.connections,
        options.rounds,
        percent(options.keep)
    );
}

#[cfg(test)]
mod tests {
    use clap::{Args, FromArgMatches};

    use super::{ComparisonOptions, Pair, Rush, attacks, kept, median};

    fn named(names: &[&str]) -> Vec<&'static str> {
        let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        let attacks = attacks(&names).unwrap();
        attacks.iter().map(|compared| compared.attack).collect()
    }

    #[test]
    fn each_attack_has_a_row_unless_some_are_named() {
        assert_eq!(
            named(&[]),
            [
                "silent connections",
                "half bodies",
                "slow readers",
                "unread answers",
                "huge signatures",
                "quantities above the limit",
                "returns to a sold-out item"
            ]
        );
        assert_eq!(named(&["slow readers"]), ["slow readers"]);
        assert!(attacks(&["none".to_owned()]).is_err());
    }

    #[test]
    fn attacks_are_named_one_by_one_or_in_a_list() {
        let command = ComparisonOptions::augment_args(clap::Command::new("hostile"));
        let matches = command.get_matches_from([
            "hostile",
            "--only",
            "half bodies, slow readers",
            "--attack",
            "huge signatures",
        ]);
        let options = ComparisonOptions::from_arg_matches(&matches).unwrap();
        let names: Vec<_> = options.attack.iter().map(String::as_str).collect();
        assert_eq!(
            named(&names),
            ["half bodies", "slow readers", "huge signatures"]
        );
    }

    #[test]
    fn what_buyers_keep_is_the_median_of_rushes_beside_each_other() {
        let pairs = [(30.0, 27.0), (10.0, 2.0), (20.0, 19.0)];
        let pairs = pairs.map(|(alone, beside)| Pair {
            alone: Rush::for_tests(alone, 0.0),
            beside: Rush::for_tests(beside, 0.0),
        });
        assert!((kept(&pairs) - 0.9).abs() < f64::EPSILON);
    }

    #[test]
    fn the_median_of_an_even_number_is_between_the_middle_ones() {
        let of = |values: &[f64]| median(values, |value| *value);
        assert!((of(&[8.0, 1.0, 2.0, 4.0]) - 3.0).abs() < f64::EPSILON);
        assert!((of(&[8.0, 1.0, 2.0]) - 2.0).abs() < f64::EPSILON);
    }
}
