//! `make bench` measures every goal of `docs/performance.md`. Each goal is compared with a baseline
//! that the same run measures on the same machine.
//!
//! Absolute figures drift from machine to machine and from hour to hour. The ratio of two figures
//! that are measured alternately drifts much less.
//!
//! | module | content |
//! |---|---|
//! | `cli` | the command line, and one run from its first goal to its exit status |
//! | `options` | the options that every goal receives |
//! | `goals` | the goals, one file each |
//! | `goal` | types of a goal, a line and a sample |
//! | `summary` | the result of a line: medians, spread, met or not |
//! | `report` | the table and the JSON |
//! | `machine` | the machine that produced the figures |
//! | `test_env` | a running Stockade on private servers |
//! | `baseline` | the servers that Stockade is compared with over HTTP, one process each |
//! | `sale`, `wrk`, `buyers` | a closed loop of orders, whose history is compared with the audit |
//! | `open_loop` | orders at a fixed rate, for latency |
//! | `connection` | a cheap HTTP connection, for thousands of them |
//! | `programs` | the programs that a run starts |

mod baseline;
mod buyers;
mod cli;
mod connection;
mod costs;
mod cpu;
mod goal;
mod goals;
mod machine;
mod open_loop;
mod options;
mod programs;
mod report;
mod sale;
mod summary;
mod test_env;
mod wrk;

pub use cli::{BenchArguments, run};
