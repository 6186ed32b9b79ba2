//! What one way of a case is played on: a clock, a picture, and real servers of its own, which end with it.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use anyhow::{Context, Result};
use redis::aio::MultiplexedConnection;
use testbed::{Etcd, Postgres, Redis, RedisBuilder, ZooKeeper};
use tokio::sync::{Mutex, OnceCell};

use crate::{actor::Program, pace::Pace, timeline::Timeline, what_if::WhatIf};

/// A way's own stage. Every way has a new one, so that none finds what another has left.
pub struct Stage {
    /// How fast the story is told.
    pub pace: Pace,
    /// What happens.
    pub timeline: Timeline,
    /// What a reader has changed.
    pub what_if: WhatIf,
    /// How this program is started again as an actor that can be stopped and killed.
    pub program: Program,
    /// The `stockade` binary.
    pub engine: PathBuf,
    props: Arc<Props>,
    folder: tempfile::TempDir,
}

/// What takes long to start and is shared by all cases of a run.
#[derive(Default)]
pub struct Props {
    postgres: OnceCell<Postgres>,
    databases: Mutex<usize>,
    zookeeper: OnceCell<ZooKeeper>,
    etcd: OnceCell<Etcd>,
    /// Ways that have had a place of their own in one of them.
    places: AtomicUsize,
}

impl Stage {
    /// An empty stage whose clock begins now.
    pub fn new(
        pace: Pace,
        what_if: WhatIf,
        program: Program,
        engine: PathBuf,
        props: Arc<Props>,
    ) -> Result<Self> {
        let folder = tempfile::tempdir().context("a folder for the servers")?;
        Ok(Self {
            pace,
            timeline: Timeline::begin(pace),
            what_if,
            program,
            engine,
            props,
            folder,
        })
    }

    /// A folder of its own, removed afterwards.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// A Redis server that keeps everything it says it has written.
    pub async fn redis(&self) -> Result<Redis> {
        Ok(Redis::start().await?)
    }

    /// One that is set up otherwise.
    pub fn redis_builder(&self) -> RedisBuilder {
        Redis::builder()
    }

    /// The address of an empty PostgreSQL database. The server is shared, so it must not be broken.
    pub async fn database(&self) -> Result<String> {
        let server = self.props.postgres.get_or_try_init(Postgres::start).await?;
        let mut databases = self.props.databases.lock().await;
        *databases += 1;
        Ok(server.create_database(&format!("way_{databases}")).await?)
    }

    /// The address of a ZooKeeper server, and a path that is this way's own. The server is shared, so it must not be broken.
    pub async fn zookeeper(&self) -> Result<(String, String)> {
        let server = self
            .props
            .zookeeper
            .get_or_try_init(ZooKeeper::start)
            .await?;
        Ok((server.url(), format!("/{}", self.place())))
    }

    /// The address of an etcd server, and a prefix that is this way's own. The server is shared, so it must not be broken.
    pub async fn etcd(&self) -> Result<(String, String)> {
        let server = self.props.etcd.get_or_try_init(Etcd::start).await?;
        Ok((server.url(), self.place()))
    }

    fn place(&self) -> String {
        format!("way-{}", self.props.places.fetch_add(1, Ordering::Relaxed))
    }

    /// A connection to a Redis server, with patience enough for a server that is stopped for a while.
    pub async fn connect(&self, redis: &Redis) -> Result<MultiplexedConnection> {
        connect(&redis.url()).await
    }
}

/// A connection to a Redis server, with patience enough for a server that is stopped for a while.
pub async fn connect(url: &str) -> Result<MultiplexedConnection> {
    let config = redis::AsyncConnectionConfig::new()
        .set_connection_timeout(Some(Duration::from_secs(5)))
        .set_response_timeout(Some(Duration::from_secs(30)));
    let client = redis::Client::open(url)?;
    Ok(client
        .get_multiplexed_async_connection_with_config(&config)
        .await?)
}
