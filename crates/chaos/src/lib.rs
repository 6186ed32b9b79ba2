//! Breaks what Stockade runs on, in the middle of a rush, and proves that nothing was lost, oversold or stranded.
//!
//! A run is a [`Plan`] that a seed fixes: *legs*, each on a *stage* of real servers and processes of its own, and on each stage some
//! *rounds*. A round lets a crowd in, breaks one thing, measures how long it takes until everything is well, waits until all is quiet, and
//! holds what was acknowledged against what the ledger has.
//!
//! This crate knows Stockade from outside: the program, its HTTP API, and the names of the tables that the judge reads past it. It must not
//! use any other crate of the workspace but `testbed`: what it finds must not rest on what it judges.
//!
//! | module | is |
//! |---|---|
//! | [`plan`] | what is done to what, and when, from the seed |
//! | [`fault`] | what can be broken, and where |
//! | [`stage`] | servers and processes |
//! | [`inject`] | breaks something |
//! | [`shop`] | the service as its clients see it |
//! | [`crowd`] | the buyers |
//! | [`book`] | what was acknowledged, and what may therefore be |
//! | [`view`] | what the ledger says, past the service |
//! | [`watch`] | nothing may be sold twice even for a moment |
//! | [`heal`] | how long until all is well |
//! | [`judge`] | holds the books against the ledger |
//! | [`mod@run`] | legs and rounds |
//! | [`report`] | the table and `summary.json` |

pub mod book;
pub mod crowd;
pub mod fault;
pub mod heal;
pub mod inject;
pub mod judge;
pub mod plan;
pub mod report;
pub mod run;
pub mod shop;
pub mod stage;
pub mod view;
pub mod watch;

pub use fault::{Fault, StageKind};
pub use plan::Plan;
pub use report::Report;
pub use run::run;
pub use stage::Materials;
