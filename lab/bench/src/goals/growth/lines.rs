//! The lines of the report: the last step of each series against the first. Its orders stand against those
//! of an empty ledger that took turns with it. No line has a bound.

use super::{
    calls::Orders,
    expiry::Expiry,
    results::{Results, Series, WavesOf},
    series::Step,
};
use crate::{
    goal::{Bound, Line, Sample},
    goals::servers::{POSTGRES, REDIS},
    options::{LedgerKind, Options},
};

const PERCENT: &str = "% of a core";

/// Reads a figure of a step, if it was measured.
type Read = fn(&Step) -> Option<f64>;

/// Reads a figure of orders.
type ReadOrders = fn(&Orders) -> f64;

/// Name of each figure of orders.
const OF_ORDERS: [(&str, ReadOrders); 2] = [
    ("p99 of an order", |orders| orders.p99_ms),
    ("p50 of an order", |orders| orders.p50_ms),
];

/// Name and unit of each other figure.
const FIGURES: [(&str, &str, Read); 11] = [
    ("idle service", PERCENT, |step| Some(step.idle?.service)),
    ("idle Redis", PERCENT, |step| Some(step.idle?.redis)),
    ("idle ledger", PERCENT, |step| step.idle?.ledger),
    ("start to ready", "ms", |step| Some(step.start_ms)),
    ("audit", "ms", |step| Some(step.calls.audit_ms)),
    ("full audit", "ms", |step| Some(step.calls.full_audit_ms)),
    ("/metrics", "bytes", |step| {
        Some(step.calls.metrics_bytes as f64)
    }),
    ("/metrics, time", "ms", |step| Some(step.calls.metrics_ms)),
    ("page of items", "ms", |step| Some(step.calls.items_page_ms)),
    ("page of orders", "ms", |step| {
        Some(step.calls.orders_page_ms)
    }),
    ("orders present", "orders", |step| Some(step.orders as f64)),
];

/// All lines of a run.
pub fn of(options: &Options, results: &Results) -> Vec<Line> {
    let series = results.series.iter();
    let mut lines: Vec<_> = series
        .flat_map(|series| of_series(options, series))
        .collect();
    for expiries in &results.expiries {
        for is_in_carts in [false, true] {
            let mut latest = expiries.steps.iter().rev();
            let last = latest.find(|step| (step.carts > 0) == is_in_carts);
            lines.extend(last.map(|step| of_expiry(options, expiries.ledger, step)));
        }
    }
    lines.extend(results.waves.iter().map(|waves| of_waves(options, waves)));
    lines
}

fn of_series(options: &Options, series: &Series) -> Vec<Line> {
    let (Some(first), Some(last)) = (series.steps.first(), series.steps.last()) else {
        return Vec::new();
    };
    let (ledger, grows) = (series.ledger, series.grows);
    let line = |name: &str, unit, figure, (baseline, of): (f64, String)| Line {
        figure: format!("{name}: {ledger}, {} {grows}", last.size(grows)),
        baseline: of,
        unit,
        bound: Bound::None,
        setting: setting(options, ledger),
        samples: vec![Sample {
            figure,
            baseline,
            accepted: last.hot.measured,
            drift: total(&series.steps),
            oversold: series.steps.iter().map(|step| step.oversold).sum(),
            ..Sample::default()
        }],
    };
    let of_orders = OF_ORDERS.into_iter().map(|(name, read)| {
        let empty = (read(&last.empty), "an empty ledger".to_owned());
        line(name, "ms", read(&last.hot), empty)
    });
    let of_others = FIGURES.into_iter().filter_map(|(name, unit, read)| {
        let first_step = format!("{} {grows}", first.size(grows));
        Some(line(name, unit, read(last)?, (read(first)?, first_step)))
    });
    of_orders.chain(of_others).collect()
}

fn of_expiry(options: &Options, ledger: LedgerKind, step: &Expiry) -> Line {
    let Expiry { holds, carts, .. } = step;
    let in_carts = if *carts > 0 { ", in carts" } else { "" };
    let what = format!("while {holds} holds of another item expire together{in_carts}");
    let units = [step.drift, step.oversold];
    beside(
        options,
        ledger,
        &what,
        [&step.quiet, &step.meanwhile],
        units,
    )
}

fn of_waves(options: &Options, WavesOf { ledger, waves }: &WavesOf) -> Line {
    let what = format!("while {} waves of other items are added", waves.waves);
    let units = [waves.drift, waves.oversold];
    beside(
        options,
        *ledger,
        &what,
        [&waves.quiet, &waves.meanwhile],
        units,
    )
}

/// Orders in quiet, and beside other work.
fn beside(
    options: &Options,
    ledger: LedgerKind,
    what: &str,
    [quiet, meanwhile]: [&Orders; 2],
    [drift, oversold]: [u64; 2],
) -> Line {
    let sample = Sample {
        figure: meanwhile.p99_ms,
        baseline: quiet.p99_ms,
        accepted: meanwhile.measured,
        drift: i64::try_from(drift).unwrap_or(i64::MAX),
        oversold,
        ..Sample::default()
    };
    Line {
        figure: format!("p99 of an order: {ledger}, {what}"),
        baseline: "in quiet".into(),
        unit: "ms",
        bound: Bound::None,
        setting: setting(options, ledger),
        samples: vec![sample],
    }
}

/// Sum over the steps. A drift that no number of the report can hold stays a drift.
fn total(steps: &[Step]) -> i64 {
    let sum = steps.iter().map(|step| step.drift).sum::<u64>();
    i64::try_from(sum).unwrap_or(i64::MAX)
}

fn setting(options: &Options, ledger: LedgerKind) -> String {
    let ledger = match ledger {
        LedgerKind::Postgres => POSTGRES,
        LedgerKind::Sqlite => "SQLite, part of the service's process",
    };
    let growth = &options.growth;
    format!(
        "every role in one process, {ledger}, {REDIS}; idle time over {} s, open loop at {} orders/s for {} s, one segment; all steps in growth.md",
        growth.idle_seconds, growth.rate, options.seconds
    )
}
