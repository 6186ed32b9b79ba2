//! What an experiment needs of the servers of a lock.

use std::path::PathBuf;

use anyhow::Result;
use async_trait::async_trait;
use testbed::Clock;

use crate::{
    backend::Backend,
    client::{self, LockSettings},
    fault::Fault,
};

/// The servers that keep a lock.
#[async_trait]
pub(crate) trait Servers: Send + Sync {
    /// The ports that the servers listen on now. Empty for a database in a file.
    fn ports(&self) -> Vec<u16>;

    /// The address that a client uses for the server on this port.
    fn url(&self, port: u16) -> String;

    /// Prepares the fault, after the lock has been used once and before the experiment acquires it.
    async fn prepare(&mut self, _fault: Fault) -> Result<()> {
        Ok(())
    }

    /// Injects the fault.
    async fn inject(&mut self, _fault: Fault) -> Result<()> {
        Ok(())
    }

    /// Indexes of the servers that the holder cannot reach, so that its majority depends on the
    /// server that the fault hits.
    fn unreachable_for_holder(&self) -> &'static [usize] {
        &[]
    }

    /// Environment variables of the next contender's process, for a fault of its machine.
    async fn variables_of_next(&self) -> Result<Vec<(&'static str, PathBuf)>> {
        Ok(Vec::new())
    }
}

/// Jump of a clock in milliseconds, far beyond every lease.
pub(super) const CLOCK_JUMP_MS: i64 = 60_000;

/// The adjustable clock of the server that the fault hits; `None` if the fault is another one.
pub(super) async fn clock_for(fault: Fault) -> Result<Option<Clock>> {
    Ok(if fault == Fault::Clock {
        Some(Clock::new().await?)
    } else {
        None
    })
}

/// The addresses of all servers.
pub(crate) fn urls(servers: &dyn Servers) -> Vec<String> {
    let ports = servers.ports();
    if ports.is_empty() {
        vec![servers.url(0)]
    } else {
        ports.iter().map(|port| servers.url(*port)).collect()
    }
}

/// Creates the tables of these backends in the database at `url`.
pub(super) async fn create_tables(
    backends: impl IntoIterator<Item = Backend>,
    url: &str,
) -> Result<()> {
    for backend in backends {
        let settings = LockSettings::new(backend, vec![url.into()], Fault::Restart.lease());
        client::create_tables(&settings).await?;
    }
    Ok(())
}
