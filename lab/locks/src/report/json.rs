//! The results as JSON.

use serde::Serialize;

use crate::{
    comparison::Comparison,
    experiment::Counts,
    fault::Fault,
    load::{LoadFigures, Timings},
    verdict::{Cell, Integrity, Outcome},
};

#[derive(Serialize)]
struct ComparisonJson<'a> {
    as_promised: bool,
    broken_promises: Vec<String>,
    machine: &'a str,
    took_seconds: f64,
    safety: Vec<CellJson<'a>>,
    load: Vec<LoadJson>,
    not_compared: Vec<AbsentJson>,
}

#[derive(Serialize)]
struct CellJson<'a> {
    backend: &'static str,
    fault: Fault,
    /// The reason why the fields below are missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    not_applicable: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    without_fence: Option<Integrity>,
    #[serde(skip_serializing_if = "Option::is_none")]
    with_fence: Option<Integrity>,
    #[serde(flatten)]
    counts: Option<&'a Counts>,
    broken_promises: Vec<&'static str>,
}

#[derive(Serialize)]
struct LoadJson {
    backend: &'static str,
    on: &'static str,
    alone: TimingsJson,
    contended: TimingsJson,
    messages: Option<f64>,
    woken_of_8: Option<f64>,
    /// Whether waiters poll instead of being notified.
    polls: bool,
    #[serde(rename = "given_twice")]
    double_grants: u64,
}

#[derive(Serialize)]
struct TimingsJson {
    acquire_ms_p50: Option<f64>,
    acquire_ms_p99: Option<f64>,
    per_second: Option<f64>,
}

#[derive(Serialize)]
struct AbsentJson {
    backend: &'static str,
    because: &'static str,
}

/// The results as one JSON object.
pub fn json(comparison: &Comparison) -> serde_json::Result<String> {
    let broken_promises = comparison.broken_promises();
    serde_json::to_string_pretty(&ComparisonJson {
        as_promised: broken_promises.is_empty(),
        broken_promises,
        machine: &comparison.machine,
        took_seconds: comparison.took.as_secs_f64(),
        safety: comparison.cells.iter().map(cell).collect(),
        load: comparison.figures.iter().map(load).collect(),
        not_compared: comparison
            .absent
            .iter()
            .map(|(backend, because)| AbsentJson {
                backend: backend.name(),
                because,
            })
            .collect(),
    })
}

fn cell(cell: &Cell) -> CellJson<'_> {
    let (counts, not_applicable) = match &cell.outcome {
        Outcome::Counted(counts) => (Some(counts.as_ref()), None),
        Outcome::NotApplicable(reason) => (None, Some(*reason)),
    };
    CellJson {
        backend: cell.backend.name(),
        fault: cell.fault,
        not_applicable,
        without_fence: counts.map(Counts::without_fence),
        with_fence: counts.map(Counts::with_fence),
        counts,
        broken_promises: cell.broken_promises(),
    }
}

fn load(figures: &LoadFigures) -> LoadJson {
    LoadJson {
        backend: figures.backend.name(),
        on: figures.backend.deployment(),
        alone: timings(&figures.alone),
        contended: timings(&figures.contended),
        messages: figures.messages,
        woken_of_8: figures.woken,
        polls: figures.backend.polls(),
        double_grants: figures.double_grants,
    }
}

fn timings(timings: &Timings) -> TimingsJson {
    TimingsJson {
        acquire_ms_p50: timings.acquire_ms(0.5),
        acquire_ms_p99: timings.acquire_ms(0.99),
        per_second: timings.per_second(),
    }
}
