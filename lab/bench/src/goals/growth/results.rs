//! Every step, as JSON, as tables in Markdown, and as a chart.

use std::{fmt::Write as _, path::PathBuf};

use anyhow::Result;
use reporting::{
    files::{command, json, write},
    table::markdown_row,
};
use serde::Serialize;

use super::{calls::Orders, chart, expiry::Expiry, series::Step, waves::Waves};
use crate::{
    machine::Machine,
    options::{LedgerKind, Options, SeriesKind},
};

const JSON: &str = "growth.json";
const MARKDOWN: &str = "growth.md";
const CHART: &str = "growth.svg";

const STEPS: &str = "\
| ledger | open items | closed items | orders of the hot item | start to ready, ms | until audited, ms of a core for each new item | idle: service, % of a core | Redis, % | ledger, % | \
order p50, ms | p99, ms | on an empty ledger: p50, ms | p99, ms | audit, ms | full audit, ms | `/metrics`, KB | ms | page of items, ms | page of orders, ms |
|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|
";
const EXPIRIES: &str = "\
| ledger | holds that expire together | in carts | all units back, s | orders elsewhere: p50 in quiet, ms | meanwhile, ms | p99 in quiet, ms | meanwhile, ms |
|---|--:|--:|--:|--:|--:|--:|--:|
";

const WAVES: &str = "\
| ledger | waves of one moment | all units added, s | orders elsewhere: p50 in quiet, ms | meanwhile, ms | p99 in quiet, ms | meanwhile, ms |
|---|--:|--:|--:|--:|--:|--:|
";

/// Results of a run. They are written after every step, so that an interrupted run keeps them.
#[derive(Debug, Serialize)]
pub struct Results {
    /// Machine that produced the figures.
    machine: Machine,
    command: String,
    idle_seconds: u64,
    settle_seconds: u64,
    /// Orders per second of the open loops.
    rate: u64,
    /// Seconds of an open loop, unless the expiry of holds ends it.
    seconds: u64,
    /// All series but those of expiry.
    pub series: Vec<Series>,
    /// The series of expiry, by ledger.
    pub expiries: Vec<Expiries>,
    /// Waves, by ledger.
    pub waves: Vec<WavesOf>,
    #[serde(skip)]
    folder: PathBuf,
}

/// The steps of a series.
#[derive(Debug, Serialize)]
pub struct Series {
    /// Where the orders are recorded.
    pub ledger: LedgerKind,
    /// What becomes more.
    pub grows: SeriesKind,
    /// The first has nothing of it.
    pub steps: Vec<Step>,
}

/// The steps of expiry on a ledger.
#[derive(Debug, Serialize)]
pub struct Expiries {
    /// Where the orders are recorded.
    pub ledger: LedgerKind,
    /// Each with its own baseline in quiet.
    pub steps: Vec<Expiry>,
}

/// Waves of one moment on a ledger.
#[derive(Debug, Serialize)]
pub struct WavesOf {
    /// Where the orders are recorded.
    pub ledger: LedgerKind,
    /// What was measured.
    #[serde(flatten)]
    pub waves: Waves,
}

impl Results {
    /// No result yet.
    pub async fn new(options: &Options) -> Self {
        Self {
            machine: Machine::detect().await,
            command: command(std::env::args().skip(1)),
            idle_seconds: options.growth.idle_seconds,
            settle_seconds: options.growth.settle_seconds,
            rate: options.growth.rate,
            seconds: options.seconds,
            series: Vec::new(),
            expiries: Vec::new(),
            waves: Vec::new(),
            folder: options.out.clone(),
        }
    }

    /// Adds a step to its series, and writes all files.
    pub fn add(&mut self, ledger: LedgerKind, grows: SeriesKind, step: Step) -> Result<()> {
        let is_same = |series: &&mut Series| series.ledger == ledger && series.grows == grows;
        match self.series.iter_mut().find(is_same) {
            Some(series) => series.steps.push(step),
            None => self.series.push(Series {
                ledger,
                grows,
                steps: vec![step],
            }),
        }
        self.write()
    }

    /// The same for a step of expiry.
    pub fn add_expiry(&mut self, ledger: LedgerKind, step: Expiry) -> Result<()> {
        let mut expiries = self.expiries.iter_mut();
        match expiries.find(|expiries| expiries.ledger == ledger) {
            Some(expiries) => expiries.steps.push(step),
            None => self.expiries.push(Expiries {
                ledger,
                steps: vec![step],
            }),
        }
        self.write()
    }

    /// The same for waves.
    pub fn add_waves(&mut self, ledger: LedgerKind, waves: Waves) -> Result<()> {
        self.waves.push(WavesOf { ledger, waves });
        self.write()
    }

    fn write(&self) -> Result<()> {
        let files = [
            (JSON, json(self)?),
            (MARKDOWN, self.markdown()),
            (CHART, chart::draw(&self.series, &self.expiries)),
        ];
        files
            .iter()
            .try_for_each(|(file, text)| write("--out", &self.folder.join(file), text))
    }

    fn markdown(&self) -> String {
        let mut text = format!("`{}` on {}.\n", self.command, self.machine);
        let _ = writeln!(
            text,
            "Idle processor time over {} s, {} s after a start, all items audited before; orders in an open loop at {}/s, for {} s.",
            self.idle_seconds, self.settle_seconds, self.rate, self.seconds
        );
        let rows = |text: &mut String, head: &str, rows: Vec<String>| {
            if !rows.is_empty() {
                let _ = write!(text, "\n{head}{}", rows.concat());
            }
        };
        let steps = self.series.iter().flat_map(Series::rows).collect();
        rows(&mut text, STEPS, steps);
        let expiries = self.expiries.iter().flat_map(Expiries::rows).collect();
        rows(&mut text, EXPIRIES, expiries);
        rows(
            &mut text,
            WAVES,
            self.waves.iter().map(WavesOf::row).collect(),
        );
        text
    }
}

impl Series {
    fn rows(&self) -> impl Iterator<Item = String> {
        self.steps.iter().map(|step| row(self.ledger, step))
    }
}

fn row(ledger: LedgerKind, step: &Step) -> String {
    let (hot, calls) = (&step.hot, &step.calls);
    let unknown = ["not reported"; 3].map(str::to_owned);
    let idle = step.idle.map_or(unknown, |idle| {
        let within = || "in the service's".to_owned();
        let server = idle.ledger.map_or_else(within, number);
        [number(idle.service), number(idle.redis), server]
    });
    let figures = [
        hot.p50_ms,
        hot.p99_ms,
        step.empty.p50_ms,
        step.empty.p99_ms,
        calls.audit_ms,
        calls.full_audit_ms,
        calls.metrics_bytes as f64 / 1000.0,
        calls.metrics_ms,
        calls.items_page_ms,
        calls.orders_page_ms,
    ];
    let counts = [step.open_items, step.closed_items, step.orders];
    let until_audited = step.until_audited_cpu_ms.map_or("none".to_owned(), number);
    let (name, start) = ([ledger.to_string()], [number(step.start_ms), until_audited]);
    let (counts, figures) = (counts.map(|count| count.to_string()), figures.map(number));
    markdown_row(&[&name[..], &counts, &start, &idle, &figures].concat())
}

impl Expiries {
    fn rows(&self) -> impl Iterator<Item = String> {
        self.steps.iter().map(|step| {
            let counts = [step.holds, step.carts];
            beside(
                self.ledger,
                &counts,
                step.back_s,
                &step.quiet,
                &step.meanwhile,
            )
        })
    }
}

impl WavesOf {
    fn row(&self) -> String {
        let waves = &self.waves;
        let counts = [waves.waves];
        beside(
            self.ledger,
            &counts,
            waves.added_s,
            &waves.quiet,
            &waves.meanwhile,
        )
    }
}

/// Work that took so many seconds, and orders before and beside it.
fn beside(
    ledger: LedgerKind,
    counts: &[u64],
    seconds: f64,
    quiet: &Orders,
    meanwhile: &Orders,
) -> String {
    let figures = [
        seconds,
        quiet.p50_ms,
        meanwhile.p50_ms,
        quiet.p99_ms,
        meanwhile.p99_ms,
    ];
    let counts: Vec<_> = counts.iter().map(ToString::to_string).collect();
    let (name, figures) = ([ledger.to_string()], figures.map(number));
    markdown_row(&[&name[..], &counts, &figures].concat())
}

fn number(value: f64) -> String {
    if value >= 100.0 {
        format!("{value:.0}")
    } else {
        format!("{value:.1}")
    }
}

#[cfg(test)]
mod tests {
    use super::row;
    use crate::{
        goals::growth::samples::{idle, step},
        options::LedgerKind,
    };

    #[test]
    fn a_row_has_the_figures_in_the_order_of_the_columns() {
        let columns = super::STEPS.lines().next().unwrap().matches('|').count();
        let row = row(LedgerKind::Postgres, &step(idle(Some(7.0))));
        assert_eq!(row.matches('|').count(), columns, "{row}");
        assert_eq!(
            row,
            "| PostgreSQL | 1 | 2 | 3 | 400 | 4.5 | 5.0 | 6.0 | 7.0 | 8.0 | 9.0 | 7.5 | 8.5 | 10.0 | 10.5 | 12.3 | 11.0 | 13.0 | 14.0 |\n"
        );
    }

    #[test]
    fn what_was_not_measured_is_named() {
        let sqlite = row(LedgerKind::Sqlite, &step(idle(None)));
        assert!(
            sqlite.contains("| 5.0 | 6.0 | in the service's |"),
            "{sqlite}"
        );
        let elsewhere = row(LedgerKind::Postgres, &step(None));
        assert_eq!(elsewhere.matches("not reported").count(), 3, "{elsewhere}");
    }
}
