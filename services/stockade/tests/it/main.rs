//! The binary as its users meet it: processes that are started, asked, stopped and killed.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod chaos;
mod command_line;
mod crashes;
mod item_locks;
mod lock;
mod operators;
mod payments;
mod plan;
mod process;
mod reconcile;
mod site;
mod up;
