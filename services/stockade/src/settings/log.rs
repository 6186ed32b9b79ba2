//! The log.

use anyhow::Result;

use super::{
    Layers,
    declaration::settings,
    kinds::{read_by, text},
};
use crate::log::LogFormat;

settings! {
    /// The log, which every command has.
    Log {
        /// log filter, such as `info` or `stock=debug,info`
        log: String =
            "info,sqlx::postgres::notice=warn,async_nats=off,lapin=off,sqlx_core::pool=off",
            text();
        /// how the log is written to standard error: `text`, or `json` for one object a line
        log_format: LogFormat = "text", read_by(log_format);
    }
}

fn log_format(layers: &Layers, key: &str) -> Result<LogFormat> {
    match layers.text(key).as_deref() {
        Some("text") => Ok(LogFormat::Text),
        Some("json") => Ok(LogFormat::Json),
        _ => Err(layers.wrong(key, "text or json")),
    }
}
