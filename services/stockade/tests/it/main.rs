//! The command line, as far as it needs no server. The rest is in `lab/acceptance`.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod command_line;
mod plan;
mod process;
