//! A lock under load, with its servers.

use std::time::Duration;

use anyhow::{Context, Result};

use super::counting::Counter;
use crate::{
    backend::Backend,
    client::{self, Client, HeldLock, LockSettings},
    env::TestEnv,
    fault::Fault,
    servers::{self, Servers},
};

/// Long enough that no lease ends during a measurement.
const LEASE: Duration = Duration::from_secs(5);
/// Longest wait for a lock under load.
pub(super) const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(60);

pub(super) struct Target<'a> {
    pub(super) backend: Backend,
    servers: Box<dyn Servers + 'a>,
    /// The first client. The nodes of a Redlock vote since it opened.
    pub(super) client: Box<dyn Client>,
}

impl<'a> Target<'a> {
    /// Starts the servers and waits until the lock can be acquired.
    pub(super) async fn open(env: &'a TestEnv, backend: Backend) -> Result<Self> {
        // Under load nothing breaks; `Pause` stands for a fault that leaves servers intact.
        let servers = env.servers.servers(backend, Fault::Pause).await?;
        let client = open_client(backend, servers::urls(servers.as_ref())).await?;
        acquire(client.as_ref(), "first")
            .await
            .with_context(|| backend.to_string())?
            .release()
            .await;
        Ok(Self {
            backend,
            servers,
            client,
        })
    }

    /// Opens one more client.
    pub(super) async fn new_client(&self) -> Result<Box<dyn Client>> {
        open_client(self.backend, servers::urls(self.servers.as_ref())).await
    }

    /// Opens a client whose messages are counted. `None`: the lock sends no messages.
    pub(super) async fn counted_client(&self) -> Result<Option<(Box<dyn Client>, Vec<Counter>)>> {
        let mut counters = Vec::new();
        for port in self.servers.ports() {
            counters.push(Counter::start(port).await?);
        }
        if counters.is_empty() {
            return Ok(None);
        }
        let urls = counters
            .iter()
            .map(|counter| self.servers.url(counter.port))
            .collect();
        Ok(Some((open_client(self.backend, urls).await?, counters)))
    }
}

async fn open_client(backend: Backend, urls: Vec<String>) -> Result<Box<dyn Client>> {
    client::open(&LockSettings::new(backend, urls, LEASE), None).await
}

/// Acquires a lock that every client gets sooner or later.
pub(super) async fn acquire(client: &dyn Client, name: &str) -> Result<Box<dyn HeldLock>> {
    client
        .acquire(name, ACQUIRE_TIMEOUT)
        .await?
        .with_context(|| format!("lock `{name}` not acquired within {ACQUIRE_TIMEOUT:?}"))
}
