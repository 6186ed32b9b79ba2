//! `make bench`: every goal of `docs/performance.md`, each beside a baseline that is measured in the same run on the same machine.
//!
//! Absolute figures drift from machine to machine and from hour to hour; ratios of two things measured in turn do so much less.
//!
//! | module | is |
//! |---|---|
//! | `cli` | the command line, and one run from its first goal to its exit status |
//! | `goals` | the goals, a file each |
//! | `goal` | what a goal, a line and a sample are |
//! | `summary` | what the samples of a line come to: medians, spread, met or not |
//! | `report` | the table and the JSON |
//! | `machine` | what the figures were taken on |
//! | `site` | Stockade on servers of its own |
//! | `rival` | what it is measured beside over HTTP, each a process of its own |
//! | `sale`, `wrk`, `buyers` | a closed loop of orders, with books that are held against the audit |
//! | `open_loop` | orders at a fixed rate, for latency |
//! | `connection` | a connection that costs next to nothing, for many of them |
//! | `programs` | the programs that are started |

mod buyers;
mod cli;
mod connection;
mod costs;
mod cpu;
mod goal;
mod goals;
mod machine;
mod open_loop;
mod programs;
mod report;
mod rival;
mod sale;
mod site;
mod summary;
mod wrk;

use std::process::ExitCode;

// As the service has it: what is measured beside it must not be slower for its allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[tokio::main]
async fn main() -> ExitCode {
    // So has it this.
    #[cfg(target_os = "linux")]
    let _ = nix::sys::prctl::set_thp_disable(true);
    match cli::run().await {
        Ok(code) => code,
        Err(error) => {
            eprintln!("bench: {error:#}");
            ExitCode::from(2)
        }
    }
}
