//! The log of the program, on standard error: text for people, or one JSON object a line for
//! programs that collect logs.

use std::io::IsTerminal;

use anyhow::{Context, Result};
use tracing_subscriber::EnvFilter;

/// How the lines of the log are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    Text,
    Json,
}

/// Starts the log of this process. Fails on an invalid filter.
pub fn start(filter: &str, format: LogFormat) -> Result<()> {
    let filter = EnvFilter::try_new(filter)
        .context("STOCKADE_LOG: expected a filter such as `info` or `stock=debug,info`")?;
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr);
    match format {
        LogFormat::Text => log.with_ansi(std::io::stderr().is_terminal()).init(),
        // Fields stand next to the message: a query for an item needs no path into the object.
        LogFormat::Json => log.json().flatten_event(true).with_span_list(false).init(),
    }
    Ok(())
}
