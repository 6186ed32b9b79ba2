//! What commands print.

use std::io::Write;

use anyhow::Result;

/// Writes the output of a command. A closed pipe (`| head`) is no error.
pub fn write_out(text: &str) -> Result<()> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}
