//! Plays every fault on every lock, and then measures each.

use std::{
    fs,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use futures::{StreamExt, TryStreamExt, stream};

use super::{
    contestant::Contestant,
    fault::Fault,
    load::{self, Figures, Load},
    trial,
    verdict::{Cell, Outcome},
    world::World,
};
use crate::actor::Program;

/// Trials that are played side by side. They wait for most of their time.
const SIDE_BY_SIDE: usize = 4;

/// What is compared.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Which locks.
    pub contestants: Vec<Contestant>,
    /// Under which faults.
    pub faults: Vec<Fault>,
    /// Under which loads.
    pub loads: Vec<Load>,
    /// For how long each lock is measured, alone and contended.
    pub each: Duration,
    /// How this program is started again as a contender.
    pub program: Program,
}

/// What was seen.
#[derive(Debug, Clone)]
pub struct Matrix {
    /// Who took part, in the order of the rows.
    pub contestants: Vec<Contestant>,
    /// Who did not, and why.
    pub absent: Vec<(Contestant, &'static str)>,
    /// What was done, in the order of the columns.
    pub faults: Vec<Fault>,
    /// What was measured.
    pub loads: Vec<Load>,
    /// Lock by lock, fault by fault.
    pub cells: Vec<Cell>,
    /// Lock by lock; empty if nothing was measured.
    pub figures: Vec<Figures>,
    /// What it ran on.
    pub machine: String,
    /// From the first server to the last.
    pub took: Duration,
}

/// What is told while it runs.
pub trait Audience: Send + Sync {
    /// So much of so much is done.
    fn done(&self, trials: usize, of: usize);
    /// What is done now.
    fn now(&self, what: &str);
}

/// Compares.
pub async fn compare(plan: Plan, audience: &dyn Audience) -> Result<Matrix> {
    let began = Instant::now();
    let (contestants, absent) = who_takes_part(&plan.contestants);
    let world = World::begin(plan.program).await?;
    let cells = play(&world, &contestants, &plan.faults, audience).await?;
    let figures = if plan.loads.is_empty() {
        Vec::new()
    } else {
        load::measure(&world, &contestants, &plan.loads, plan.each, |what| {
            audience.now(what)
        })
        .await?
    };
    let (faults, loads, machine, took) = (plan.faults, plan.loads, machine(), began.elapsed());
    Ok(Matrix {
        contestants,
        absent,
        faults,
        loads,
        cells,
        figures,
        machine,
        took,
    })
}

fn who_takes_part(wanted: &[Contestant]) -> (Vec<Contestant>, Vec<(Contestant, &'static str)>) {
    let absent: Vec<_> = wanted
        .iter()
        .filter_map(|contestant| Some((*contestant, contestant.absent_because()?)))
        .collect();
    let present = wanted
        .iter()
        .copied()
        .filter(|contestant| contestant.absent_because().is_none())
        .collect();
    (present, absent)
}

async fn play(
    world: &World,
    contestants: &[Contestant],
    faults: &[Fault],
    audience: &dyn Audience,
) -> Result<Vec<Cell>> {
    let pairs: Vec<_> = contestants
        .iter()
        .flat_map(|contestant| faults.iter().map(|fault| (*contestant, *fault)))
        .collect();
    let (of, done) = (pairs.len(), std::sync::atomic::AtomicUsize::new(0));
    audience.done(0, of);
    let cells = stream::iter(pairs).map(|(contestant, fault)| {
        let done = &done;
        async move {
            audience.now(&format!("{contestant}: {fault}"));
            let cell = cell(world, contestant, fault).await;
            audience.done(
                1 + done.fetch_add(1, std::sync::atomic::Ordering::Relaxed),
                of,
            );
            cell
        }
    });
    cells.buffered(SIDE_BY_SIDE).try_collect().await
}

async fn cell(world: &World, contestant: Contestant, fault: Fault) -> Result<Cell> {
    let outcome = match trial::not_applicable(contestant, fault) {
        Some(why) => Outcome::NotApplicable(why),
        None => {
            let counts = trial::play(world, contestant, fault)
                .await
                .with_context(|| format!("{contestant}, {fault}"))?;
            Outcome::Counted(Box::new(counts))
        }
    };
    Ok(Cell {
        contestant,
        fault,
        outcome,
    })
}

impl Matrix {
    /// What was promised and not kept, by whom and when. Empty if all is well.
    pub fn broken_promises(&self) -> Vec<String> {
        let of_cells = self.cells.iter().flat_map(|cell| {
            cell.broken_promises()
                .into_iter()
                .map(|broken| format!("{}, {}: {broken}", cell.contestant, cell.fault))
        });
        let of_load = self
            .figures
            .iter()
            .filter(|figures| figures.given_twice > 0);
        let of_load = of_load.map(|figures| {
            format!(
                "{}, load: two had it at once, {} times",
                figures.contestant, figures.given_twice
            )
        });
        of_cells.chain(of_load).collect()
    }

    /// What one lock did under one fault.
    pub fn cell(&self, contestant: Contestant, fault: Fault) -> Option<&Cell> {
        self.cells
            .iter()
            .find(|cell| cell.contestant == contestant && cell.fault == fault)
    }
}

/// For whoever reads figures.
fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let model =
        first_value("/proc/cpuinfo", "model name").unwrap_or_else(|| std::env::consts::ARCH.into());
    let system = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let plural = if cores == 1 { "core" } else { "cores" };
    format!(
        "{cores} {plural} ({model}), {} {}",
        std::env::consts::OS,
        system.trim()
    )
    .trim_end()
    .to_owned()
}

fn first_value(file: &str, key: &str) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    let line = text.lines().find(|line| line.starts_with(key))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}
