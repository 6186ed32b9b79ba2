//! The environment of one variant's run: a clock, a timeline, and private servers that end with it.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use anyhow::{Context, Result};
use redis::aio::MultiplexedConnection;
use testbed::{Etcd, Postgres, Redis, RedisBuilder, ZooKeeper};
use tokio::sync::{Mutex, OnceCell};

use crate::{
    cases::real_shop::Trial, pace::Pace, program::Program, timeline::Timeline, what_if::WhatIf,
};

/// Environment of one run. Every run has a new one, so no variant sees the state of another.
pub struct TestEnv {
    /// Ratio of scenario time to real time.
    pub pace: Pace,
    /// Timeline of the run.
    pub timeline: Timeline,
    /// Parameters that a reader has changed.
    pub what_if: WhatIf,
    /// Command that starts this program as an actor, which can be stopped and killed.
    pub program: Program,
    /// Path of the `stockade` binary.
    pub engine: PathBuf,
    servers: Arc<SharedServers>,
    folder: tempfile::TempDir,
}

/// Servers that are slow to start and shared by all cases of a run.
#[derive(Default)]
pub struct SharedServers {
    postgres: OnceCell<Postgres>,
    databases: Mutex<usize>,
    zookeeper: OnceCell<ZooKeeper>,
    etcd: OnceCell<Etcd>,
    real_shop: OnceCell<Trial>,
    /// Number of namespaces that were given out.
    namespaces: AtomicUsize,
}

impl TestEnv {
    /// Creates an empty environment whose clock starts now.
    pub fn new(
        pace: Pace,
        what_if: WhatIf,
        program: Program,
        engine: PathBuf,
        servers: Arc<SharedServers>,
    ) -> Result<Self> {
        let folder =
            tempfile::tempdir().context("cannot create the working directory of the servers")?;
        Ok(Self {
            pace,
            timeline: Timeline::begin(pace),
            what_if,
            program,
            engine,
            servers,
            folder,
        })
    }

    /// Returns a private folder, which is removed afterwards.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Starts a Redis server that keeps every write that it has acknowledged.
    pub async fn redis(&self) -> Result<Redis> {
        Ok(Redis::start().await?)
    }

    /// Returns a builder for a Redis server with other settings.
    pub fn redis_builder(&self) -> RedisBuilder {
        Redis::builder()
    }

    /// Returns the address of an empty PostgreSQL database. The server is shared, so a case must
    /// not break it.
    pub async fn database(&self) -> Result<String> {
        let server = self
            .servers
            .postgres
            .get_or_try_init(Postgres::start)
            .await?;
        let mut databases = self.servers.databases.lock().await;
        *databases += 1;
        Ok(server
            .create_database(&format!("variant_{databases}"))
            .await?)
    }

    /// Returns the address of a ZooKeeper server and a private path. The server is shared, so a
    /// case must not break it.
    pub async fn zookeeper(&self) -> Result<(String, String)> {
        let server = self
            .servers
            .zookeeper
            .get_or_try_init(ZooKeeper::start)
            .await?;
        Ok((server.url(), format!("/{}", self.namespace())))
    }

    /// Returns the address of an etcd server and a private prefix. The server is shared, so a case
    /// must not break it.
    pub async fn etcd(&self) -> Result<(String, String)> {
        let server = self.servers.etcd.get_or_try_init(Etcd::start).await?;
        Ok((server.url(), self.namespace()))
    }

    /// Returns the trial of the real shop. It has every variant and is run once, because most of
    /// its time goes into the tables of the shop.
    pub(crate) async fn real_shop(&self) -> Result<&Trial> {
        let run = || Trial::run(&self.engine, self.folder());
        self.servers.real_shop.get_or_try_init(run).await
    }

    fn namespace(&self) -> String {
        format!(
            "variant-{}",
            self.servers.namespaces.fetch_add(1, Ordering::Relaxed)
        )
    }

    /// Connects to a Redis server with time-outs that outlast a stopped server.
    pub async fn connect(&self, redis: &Redis) -> Result<MultiplexedConnection> {
        connect(&redis.url()).await
    }
}

/// Connects to a Redis server with time-outs that outlast a stopped server.
pub async fn connect(url: &str) -> Result<MultiplexedConnection> {
    Ok(testbed::patient_connection(url).await?)
}
