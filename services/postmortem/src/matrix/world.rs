//! What all trials of a run share: servers that nobody breaks, the store, and how actors are started.

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
};

use anyhow::Result;
use testbed::Postgres;

use super::{site::Shared, store::Store};
use crate::{
    actor::Program,
    pace::Pace,
    stage::{Props, Stage},
    what_if::WhatIf,
};

/// Connections for the actors of all trials that run side by side.
const CONNECTIONS: &str = "100";

pub(super) struct World {
    pub shared: Shared,
    pub store: Store,
    /// Of the store.
    pub database: String,
    program: Program,
    props: Arc<Props>,
    trials: AtomicI64,
    _server: Postgres,
}

impl World {
    /// Starts the store.
    pub(super) async fn begin(program: Program) -> Result<Self> {
        let server = Postgres::builder()
            .config("max_connections", CONNECTIONS)
            .start()
            .await?;
        let database = server.create_database("store").await?;
        let store = Store::create(&database).await?;
        Ok(Self {
            shared: Shared::default(),
            store,
            database,
            program,
            props: Arc::default(),
            trials: AtomicI64::new(1),
            _server: server,
        })
    }

    /// Real time, and a folder of its own. No engine takes part.
    pub(super) fn stage(&self) -> Result<Stage> {
        let pace = Pace::new(1.0).unwrap_or_else(|| unreachable!("1 is a pace"));
        Stage::new(
            pace,
            WhatIf::default(),
            self.program.clone(),
            PathBuf::new(),
            Arc::clone(&self.props),
        )
    }

    /// One more trial, with rows of its own.
    pub(super) async fn begin_trial(&self) -> Result<i64> {
        let trial = self.trials.fetch_add(1, Ordering::Relaxed);
        self.store.begin(trial).await?;
        Ok(trial)
    }

    /// Trials share servers, but no names.
    pub(super) fn lock_name(&self, name: &str, trial: i64) -> String {
        format!("{name}/{trial}")
    }
}
