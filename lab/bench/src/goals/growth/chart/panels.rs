//! The charts of a ledger, from the results of a run.

use super::panel::{Curve, Panel};
use crate::{
    goals::growth::{
        expiry::Expiry,
        results::{Expiries, Series},
        series::{Kind, Step},
    },
    options::LedgerKind,
};

/// Reads a figure of a step, if it was measured.
type Read<T> = fn(&T) -> Option<f64>;
/// Name of a curve, and its figures.
type Named<T> = (&'static str, Read<T>);

const CLASSES: [&str; 3] = ["one", "two", "three"];

const IDLE: [Named<Step>; 3] = [
    ("service", |step| Some(step.idle?.service)),
    ("Redis", |step| Some(step.idle?.redis)),
    ("ledger", |step| step.idle?.ledger),
];
const ORDERS: [Named<Step>; 2] = [
    ("p50", |step| Some(step.hot.p50_ms)),
    ("p99", |step| Some(step.hot.p99_ms)),
];
const AUDITS: [Named<Step>; 2] = [
    ("audit", |step| Some(step.calls.audit_ms)),
    ("full audit", |step| Some(step.calls.full_audit_ms)),
];
const EXPIRIES: [Named<Expiry>; 2] = [
    ("in quiet", |step| Some(step.quiet.p99_ms)),
    ("meanwhile", |step| Some(step.meanwhile.p99_ms)),
];

/// All charts that have something to show.
pub fn of(ledger: LedgerKind, series: &[Series], expiries: &[Expiries]) -> Vec<Panel> {
    let series = series.iter().filter(|series| series.ledger == ledger);
    let expiries = expiries.iter().filter(|expiries| expiries.ledger == ledger);
    let mut panels: Vec<_> = series.flat_map(of_series).collect();
    panels.extend(expiries.map(of_expiries));
    panels.retain(|panel| !panel.curves.is_empty());
    panels
}

fn of_series(series: &Series) -> Vec<Panel> {
    let grows = series.grows;
    let panel = |title, unit, named: &[Named<Step>]| Panel {
        title,
        unit,
        grows: grows.to_string(),
        curves: curves(&series.steps, |step| step.size(grows), named),
    };
    match grows {
        Kind::OpenItems | Kind::ClosedItems => {
            vec![panel("Idle processor time", "% of a core", &IDLE)]
        }
        Kind::Orders => vec![
            panel("Orders of the hot item", "ms", &ORDERS),
            panel("Audits of the hot item", "ms", &AUDITS),
        ],
    }
}

fn of_expiries(expiries: &Expiries) -> Panel {
    Panel {
        title: "p99 of orders elsewhere",
        unit: "ms",
        grows: "holds that expire together".to_owned(),
        curves: curves(&expiries.steps, |step| step.holds, &EXPIRIES),
    }
}

/// The curves of figures that were measured. Each keeps its colour if others were not.
fn curves<T>(steps: &[T], size: impl Fn(&T) -> u64, named: &[Named<T>]) -> Vec<Curve> {
    let curve = |(class, &(name, read)): (&'static str, &Named<T>)| {
        let points = steps.iter().filter_map(|step| {
            let figure = read(step).filter(|figure| figure.is_finite())?;
            Some((size(step) as f64, figure))
        });
        Curve {
            class,
            name,
            points: points.collect(),
        }
    };
    let curves = CLASSES.into_iter().zip(named).map(curve);
    curves.filter(|curve| !curve.points.is_empty()).collect()
}
