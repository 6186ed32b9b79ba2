//! What all experiments of a run share: the servers that no fault breaks, the store, and the way to
//! start contenders.

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
};

use anyhow::Result;
use postmortem::{pace::Pace, program::Program, test_env, what_if::WhatIf};
use testbed::Postgres;

use crate::{servers::SharedServers, store::Store};

/// `max_connections` of the store: enough for the contenders of all concurrent experiments.
const STORE_CONNECTIONS_MAX: &str = "100";

pub(crate) struct TestEnv {
    pub(crate) servers: SharedServers,
    pub(crate) store: Store,
    /// Address of the store.
    pub(crate) store_url: String,
    program: Program,
    actor_servers: Arc<test_env::SharedServers>,
    next_experiment: AtomicI64,
    _server: Postgres,
}

impl TestEnv {
    /// Starts the store.
    pub(crate) async fn start(program: Program) -> Result<Self> {
        let server = Postgres::builder()
            .config("max_connections", STORE_CONNECTIONS_MAX)
            .start()
            .await?;
        let store_url = server.create_database("store").await?;
        let store = Store::create(&store_url).await?;
        Ok(Self {
            servers: SharedServers::default(),
            store,
            store_url,
            program,
            actor_servers: Arc::default(),
            next_experiment: AtomicI64::new(1),
            _server: server,
        })
    }

    /// Creates an environment in which contenders run in real time, with a private folder and
    /// without an engine.
    pub(crate) fn actor_env(&self) -> Result<test_env::TestEnv> {
        let pace = Pace::new(1.0).unwrap_or_else(|| unreachable!("1 is a valid pace"));
        test_env::TestEnv::new(
            pace,
            WhatIf::default(),
            self.program.clone(),
            PathBuf::new(),
            Arc::clone(&self.actor_servers),
        )
    }

    /// Numbers a new experiment, and creates its rows in the store.
    pub(crate) async fn begin_experiment(&self) -> Result<i64> {
        let experiment = self.next_experiment.fetch_add(1, Ordering::Relaxed);
        self.store.begin(experiment).await?;
        Ok(experiment)
    }

    /// The name of a lock in one experiment. Experiments share servers, but no lock names.
    pub(crate) fn lock_name(&self, name: &str, experiment: i64) -> String {
        format!("{name}/{experiment}")
    }
}
