//! Load tests: virtual users buy from a running service, and a verdict says whether it kept its
//! promises.
//!
//! A scenario (`scenarios/`) is a mix of behaviors (`behaviors/`), each in its own file. The load
//! tests use only the HTTP API. They record the history of all acknowledgements, and compare it
//! with the service's audit.
//!
//! Exit status: 0 the verdict is good; 1 it is not; 2 there is none.

mod action;
mod admin;
mod attack;
mod behaviors;
mod budget;
mod buyers;
mod capacity;
mod cart;
mod claims;
mod cli;
mod closing;
mod crowd;
mod history;
mod hostile;
mod items;
mod judge;
mod life;
mod mix;
mod options;
mod outcome;
mod progress;
mod return_policy;
mod run;
mod sale;
mod scenario;
mod scenarios;
mod session;
mod skew;
mod storm;
mod target;
mod verdict;
mod violation;

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
