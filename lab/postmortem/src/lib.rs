#![doc = include_str!("../README.md")]

// Cases and how they run.
pub mod case;
pub mod measurements;
pub mod pace;
pub mod run;
pub mod what_if;

// The environment of a run.
pub mod actor;
pub mod engine;
pub mod point;
pub mod program;
pub mod test_env;
pub mod timeline;

// The catalogue, and the reports.
mod cases;
pub mod catalogue;
pub mod cli;
pub mod report;
