//! `stockade events`.

use anyhow::Result;
use clap::Subcommand;
use client::Request;
use serde::Deserialize;
use serde_json::Value;

use super::service::Service;
use crate::output::write_out;

/// Seconds that the service waits for an event before it answers that there is none.
const WAIT_SECONDS: u8 = 5;

#[derive(Subcommand)]
pub enum EventsCommand {
    /// Prints events as they happen, a CloudEvents object a line, until Ctrl-C.
    Tail {
        /// Start behind this event or cursor; `now`: only with events to come. Default: with the
        /// oldest event that is kept.
        #[arg(long, value_name = "CURSOR")]
        after: Option<String>,
        /// End once there is no further event.
        #[arg(long)]
        no_wait: bool,
    },
}

#[derive(Deserialize)]
struct Events {
    data: Vec<Value>,
    next: String,
}

impl EventsCommand {
    pub async fn run(self, service: &Service) -> Result<()> {
        let Self::Tail { mut after, no_wait } = self;
        let wait = if no_wait { 0 } else { WAIT_SECONDS };
        loop {
            let request = Request::events(&service.token, after.as_deref(), wait);
            let events: Events = service.call(&request).await?.json()?;
            if no_wait && events.data.is_empty() {
                return Ok(());
            }
            let lines = events.data.iter().map(|event| format!("{event}\n"));
            write_out(&lines.collect::<String>())?;
            after = Some(events.next);
        }
    }
}
