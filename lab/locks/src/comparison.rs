//! Runs every fault on every backend, and then measures each backend under load.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use futures::{StreamExt, TryStreamExt, stream};
use postmortem::program::Program;
use reporting::machine::Machine;

use crate::{
    backend::Backend,
    env::TestEnv,
    experiment,
    fault::Fault,
    load::{self, Load, LoadFigures},
    verdict::{Cell, Outcome},
};

/// Concurrent experiments. They spend most of their time waiting.
const EXPERIMENT_CONCURRENCY: usize = 4;

/// What to compare.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The locks.
    pub backends: Vec<Backend>,
    /// The faults.
    pub faults: Vec<Fault>,
    /// The loads.
    pub loads: Vec<Load>,
    /// How long each lock is measured alone, and again contended.
    pub load_duration: Duration,
    /// How to start this program again as a contender.
    pub program: Program,
}

/// Results of a run.
#[derive(Debug, Clone)]
pub struct Comparison {
    /// The locks that took part, in the order of the rows.
    pub backends: Vec<Backend>,
    /// The locks that did not take part, and why.
    pub absent: Vec<(Backend, &'static str)>,
    /// The faults, in the order of the columns.
    pub faults: Vec<Fault>,
    /// The loads.
    pub loads: Vec<Load>,
    /// Result of each experiment, by lock and then by fault.
    pub cells: Vec<Cell>,
    /// Figures of each lock. Empty if there was no load.
    pub figures: Vec<LoadFigures>,
    /// Description of the machine.
    pub machine: String,
    /// Duration of the run.
    pub took: Duration,
}

/// Receives the progress of a run.
pub trait Progress: Send + Sync {
    /// Reports that `done` of `total` experiments have ended.
    fn experiments(&self, done: usize, total: usize);
    /// Reports what runs now.
    fn now(&self, what: &str);
}

/// Compares locks.
pub async fn compare(plan: Plan, progress: &dyn Progress) -> Result<Comparison> {
    let began = Instant::now();
    let absent: Vec<_> = plan
        .backends
        .iter()
        .filter_map(|backend| Some((*backend, backend.absence_reason()?)))
        .collect();
    let mut backends = plan.backends;
    backends.retain(|backend| backend.absence_reason().is_none());
    let env = TestEnv::start(plan.program).await?;
    let cells = run_experiments(&env, &backends, &plan.faults, progress).await?;
    let figures = if plan.loads.is_empty() {
        Vec::new()
    } else {
        load::measure(&env, &backends, &plan.loads, plan.load_duration, |what| {
            progress.now(what)
        })
        .await?
    };
    Ok(Comparison {
        backends,
        absent,
        faults: plan.faults,
        loads: plan.loads,
        cells,
        figures,
        machine: Machine::detect().to_string(),
        took: began.elapsed(),
    })
}

async fn run_experiments(
    env: &TestEnv,
    backends: &[Backend],
    faults: &[Fault],
    progress: &dyn Progress,
) -> Result<Vec<Cell>> {
    let pairs: Vec<_> = backends
        .iter()
        .flat_map(|backend| faults.iter().map(|fault| (*backend, *fault)))
        .collect();
    let (total, done) = (pairs.len(), AtomicUsize::new(0));
    progress.experiments(0, total);
    let cells = stream::iter(pairs).map(|(backend, fault)| {
        let done = &done;
        async move {
            progress.now(&format!("{backend}: {fault}"));
            let cell = run_experiment(env, backend, fault).await;
            progress.experiments(1 + done.fetch_add(1, Ordering::Relaxed), total);
            cell
        }
    });
    cells.buffered(EXPERIMENT_CONCURRENCY).try_collect().await
}

async fn run_experiment(env: &TestEnv, backend: Backend, fault: Fault) -> Result<Cell> {
    let outcome = match experiment::not_applicable(backend, fault) {
        Some(reason) => Outcome::NotApplicable(reason),
        None => {
            let counts = experiment::run(env, backend, fault)
                .await
                .with_context(|| format!("{backend}, {fault}"))?;
            Outcome::Counted(Box::new(counts))
        }
    };
    Ok(Cell {
        backend,
        fault,
        outcome,
    })
}

impl Comparison {
    /// Every broken promise, with backend and fault. Empty if every lock kept its promises.
    pub fn broken_promises(&self) -> Vec<String> {
        let under_faults = self.cells.iter().flat_map(|cell| {
            cell.broken_promises()
                .into_iter()
                .map(|broken| format!("{}, {}: {broken}", cell.backend, cell.fault))
        });
        let under_load = self
            .figures
            .iter()
            .filter(|figures| figures.double_grants > 0)
            .map(|figures| {
                format!(
                    "{}, load: the lock had two holders {} times",
                    figures.backend, figures.double_grants
                )
            });
        under_faults.chain(under_load).collect()
    }

    /// Result of the experiment with this backend and fault.
    pub fn cell(&self, backend: Backend, fault: Fault) -> Option<&Cell> {
        self.cells
            .iter()
            .find(|cell| cell.backend == backend && cell.fault == fault)
    }
}
