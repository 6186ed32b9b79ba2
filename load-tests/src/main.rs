//! Load tests: crowds of buyers against a running service, and a verdict on what it promised them.
//!
//! A scenario (`scenarios/`) is a mix of kinds of buyers (`buyers/`), each in its own file. Nothing here knows how the service works: it
//! speaks HTTP, keeps its own books of what was acknowledged, and holds them against the service's audit.
//!
//! Exit status: 0 the verdict is good; 1 it is not; 2 there is none.

mod admin;
mod answer;
mod attack;
mod budget;
mod buyers;
mod capacity;
mod cli;
mod closing;
mod crowd;
mod items;
mod judge;
mod life;
mod mix;
mod progress;
mod run;
mod sale;
mod scenario;
mod scenarios;
mod signature;
mod skew;
mod tally;
mod target;
mod verdict;
mod visit;
mod wish;

use std::process::ExitCode;

#[tokio::main]
async fn main() -> ExitCode {
    match cli::run().await {
        Ok(code) => code,
        Err(error) => {
            eprintln!("load-tests: {error:#}");
            ExitCode::from(2)
        }
    }
}
