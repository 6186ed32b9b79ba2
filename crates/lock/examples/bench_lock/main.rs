//! One table: what a lock costs on every backend, and on rslock beside the redlock. `make bench-lock` runs it.
//!
//! Everything runs on this machine, servers and clients alike, so only the ratios within one run say anything. The contestants take turns
//! every half second, so that whatever else the machine does hits all of them. Servers keep their promises on disk as in production.
//!
//! `cargo run --release -p lock --example bench_lock --features ... -- [SECONDS_EACH [BACKEND...]]`
#![allow(clippy::print_stdout, reason = "the table is what it is for")]

mod contestants;
mod counting;
mod figures;
mod measure;

use std::{env, time::Duration};

use contestants::Contestant;
use figures::Figures;

#[tokio::main]
async fn main() {
    let seconds = env::args().nth(1).map_or(5, |seconds| seconds.parse().expect("SECONDS_EACH: expected a whole number of seconds"));
    let wanted: Vec<_> = env::args().skip(2).collect();
    let mut contestants = contestants::all().await;
    contestants.retain(|contestant| wanted.is_empty() || wanted.iter().any(|label| label == contestant.label()));
    let figures = measure(&contestants, Duration::from_secs(seconds)).await;
    figures::print(&contestants, &figures);
}

async fn measure(contestants: &[Box<dyn Contestant>], each: Duration) -> Vec<Figures> {
    let mut figures: Vec<_> = contestants.iter().map(|_| Figures::default()).collect();
    measure::alone(contestants, each, &mut figures).await;
    measure::contended(contestants, each, &mut figures).await;
    for (contestant, figures) in contestants.iter().zip(&mut figures) {
        figures.messages = measure::messages(contestant.as_ref()).await;
    }
    figures
}
