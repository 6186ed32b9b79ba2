//! What was seen, for machines.

use serde::Serialize;

use crate::matrix::{
    fault::Fault,
    load::Figures,
    run::Matrix,
    trial::Counts,
    verdict::{Cell, Fate, Outcome},
};

#[derive(Serialize)]
struct MatrixJson<'a> {
    as_promised: bool,
    broken_promises: Vec<String>,
    machine: &'a str,
    took_seconds: f64,
    safety: Vec<CellJson<'a>>,
    load: Vec<FiguresJson>,
    not_compared: Vec<AbsentJson>,
}

#[derive(Serialize)]
struct CellJson<'a> {
    backend: &'static str,
    fault: Fault,
    /// Why there is nothing below.
    #[serde(skip_serializing_if = "Option::is_none")]
    not_applicable: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    without_fence: Option<Fate>,
    #[serde(skip_serializing_if = "Option::is_none")]
    with_fence: Option<Fate>,
    #[serde(flatten)]
    counts: Option<&'a Counts>,
    broken_promises: Vec<&'static str>,
}

#[derive(Serialize)]
struct FiguresJson {
    backend: &'static str,
    on: &'static str,
    alone: TimedJson,
    contended: TimedJson,
    messages: Option<f64>,
    woken_of_8: Option<f64>,
    /// Nobody is woken, and waiters ask again by themselves.
    polls: bool,
    given_twice: u64,
}

#[derive(Serialize)]
struct TimedJson {
    acquire_ms_p50: Option<f64>,
    acquire_ms_p99: Option<f64>,
    per_second: Option<f64>,
}

#[derive(Serialize)]
struct AbsentJson {
    backend: &'static str,
    because: &'static str,
}

/// The matrix as one object.
pub fn json(matrix: &Matrix) -> serde_json::Result<String> {
    let broken_promises = matrix.broken_promises();
    serde_json::to_string_pretty(&MatrixJson {
        as_promised: broken_promises.is_empty(),
        broken_promises,
        machine: &matrix.machine,
        took_seconds: matrix.took.as_secs_f64(),
        safety: matrix.cells.iter().map(cell).collect(),
        load: matrix.figures.iter().map(figures).collect(),
        not_compared: matrix
            .absent
            .iter()
            .map(|(who, because)| AbsentJson {
                backend: who.name(),
                because,
            })
            .collect(),
    })
}

fn cell(cell: &Cell) -> CellJson<'_> {
    let (counts, not_applicable) = match &cell.outcome {
        Outcome::Counted(counts) => (Some(counts.as_ref()), None),
        Outcome::NotApplicable(why) => (None, Some(*why)),
    };
    CellJson {
        backend: cell.contestant.name(),
        fault: cell.fault,
        not_applicable,
        without_fence: counts.map(Counts::without_fence),
        with_fence: counts.map(Counts::with_fence),
        counts,
        broken_promises: cell.broken_promises(),
    }
}

fn figures(figures: &Figures) -> FiguresJson {
    let timed = |timed: &crate::matrix::load::Timed| TimedJson {
        acquire_ms_p50: timed.acquire_ms(0.5),
        acquire_ms_p99: timed.acquire_ms(0.99),
        per_second: timed.per_second(),
    };
    FiguresJson {
        backend: figures.contestant.name(),
        on: figures.contestant.on(),
        alone: timed(&figures.alone),
        contended: timed(&figures.contended),
        messages: figures.messages,
        woken_of_8: figures.woken,
        polls: figures.contestant.is_asked_again(),
        given_twice: figures.given_twice,
    }
}
