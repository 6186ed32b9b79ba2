//! What was measured, and the table.

use std::time::Duration;

use comfy_table::{Cell, CellAlignment, Table, presets::ASCII_MARKDOWN};
use hdrhistogram::Histogram;

use crate::contestants::Contestant;

pub struct Figures {
    /// In nanoseconds.
    pub acquire: Histogram<u64>,
    /// Acquire and release, in nanoseconds.
    pub both: Histogram<u64>,
    pub alone: Duration,
    pub contended: u64,
    pub contended_for: Duration,
    /// `None` for a backend without a network.
    pub messages: Option<f64>,
}

impl Default for Figures {
    fn default() -> Self {
        let histogram = || Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("up to a minute, three digits");
        let nothing = Duration::ZERO;
        Self { acquire: histogram(), both: histogram(), alone: nothing, contended: 0, contended_for: nothing, messages: None }
    }
}

pub fn print(contestants: &[Box<dyn Contestant>], figures: &[Figures]) {
    let mut table = Table::new();
    table.load_style(ASCII_MARKDOWN);
    table.set_header([
        "backend",
        "acquire p50 us",
        "p99 us",
        "acquire+release p50 us",
        "p99 us",
        "per second",
        "16 holders, per second",
        "messages",
        "on",
    ]);
    for (contestant, figures) in contestants.iter().zip(figures) {
        table.add_row(row(contestant.as_ref(), figures));
    }
    for column in 1..=7 {
        table.column_mut(column).expect("it is there").set_cell_alignment(CellAlignment::Right);
    }
    println!("{table}");
    println!("\nmessages: sent by one client for one acquire and release, of a lock that nobody else wants");
    compare(contestants, figures);
}

fn row(contestant: &dyn Contestant, figures: &Figures) -> Vec<Cell> {
    let us = |histogram: &Histogram<u64>, quantile| format!("{:.0}", histogram.value_at_quantile(quantile) as f64 / 1000.0);
    let rate = |count: u64, time: Duration| format!("{:.0}", count as f64 / time.as_secs_f64());
    vec![
        Cell::new(contestant.label()),
        Cell::new(us(&figures.acquire, 0.5)),
        Cell::new(us(&figures.acquire, 0.99)),
        Cell::new(us(&figures.both, 0.5)),
        Cell::new(us(&figures.both, 0.99)),
        Cell::new(rate(figures.both.len(), figures.alone)),
        Cell::new(rate(figures.contended, figures.contended_for)),
        Cell::new(figures.messages.map_or("-".into(), |messages| format!("{messages:.1}"))),
        Cell::new(contestant.on()),
    ]
}

fn compare(contestants: &[Box<dyn Contestant>], figures: &[Figures]) {
    let find = |label| contestants.iter().position(|contestant| contestant.label() == label).map(|index| &figures[index]);
    if let (Some(redlock), Some(rslock)) = (find("redlock"), find("rslock")) {
        let ratio = |quantile| redlock.acquire.value_at_quantile(quantile) as f64 / rslock.acquire.value_at_quantile(quantile) as f64;
        println!("redlock / rslock, acquire: {:.2} at p50, {:.2} at p99", ratio(0.5), ratio(0.99));
    }
}
