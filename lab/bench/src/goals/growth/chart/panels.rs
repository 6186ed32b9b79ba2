//! The charts of a ledger, from the results of a run.

use reporting::chart::{Named, Panel, curves};

use crate::{
    goals::growth::{
        expiry::Expiry,
        results::{Expiries, Series},
        series::Step,
    },
    options::{LedgerKind, SeriesKind},
};

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
    let panel = |title, unit, named: &[Named<Step>]| {
        let curves = curves(series.steps.iter(), |step| step.size(grows), named);
        let grows = grows.to_string();
        Panel {
            title,
            unit,
            grows,
            curves,
            ..Panel::default()
        }
    };
    match grows {
        SeriesKind::OpenItems | SeriesKind::ClosedItems => {
            vec![panel("Idle processor time", "% of a core", &IDLE)]
        }
        SeriesKind::Orders => vec![
            panel("Orders of the hot item", "ms", &ORDERS),
            panel("Audits of the hot item", "ms", &AUDITS),
        ],
        SeriesKind::OrdersAndItems => Vec::new(),
    }
}

fn of_expiries(expiries: &Expiries) -> Panel {
    let alone = expiries.steps.iter().filter(|step| step.carts == 0);
    Panel {
        title: "p99 of orders elsewhere",
        unit: "ms",
        grows: "holds that expire together".to_owned(),
        curves: curves(alone, |step| step.holds, &EXPIRIES),
        ..Panel::default()
    }
}
