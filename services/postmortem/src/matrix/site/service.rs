//! One etcd, or one ZooKeeper.

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use async_trait::async_trait;
use testbed::{Clock, Etcd, ZooKeeper};
use zookeeper_client::{Acls, Client, CreateMode};

use super::{AHEAD_MS, Fault, Site, clock};

/// One to be broken.
pub(super) struct Own {
    server: Server,
    clock: Option<Clock>,
}

enum Server {
    Etcd(Etcd),
    ZooKeeper(ZooKeeper),
}

impl Own {
    pub(super) async fn etcd() -> Result<Self> {
        Ok(Self {
            server: Server::Etcd(Etcd::start().await?),
            clock: None,
        })
    }

    pub(super) async fn zookeeper(fault: Fault) -> Result<Self> {
        let mut builder = ZooKeeper::builder();
        let clock = clock(fault).await?;
        if let Some(clock) = &clock {
            builder = builder.clock(clock).await?;
        }
        Ok(Self {
            server: Server::ZooKeeper(builder.start().await?),
            clock,
        })
    }
}

#[async_trait]
impl Site for Own {
    fn ports(&self) -> Vec<u16> {
        vec![match &self.server {
            Server::Etcd(server) => server.port(),
            Server::ZooKeeper(server) => server.port(),
        }]
    }

    fn url(&self, port: u16) -> String {
        match self.server {
            Server::Etcd(_) => of_etcd(port),
            Server::ZooKeeper(_) => of_zookeeper(port),
        }
    }

    async fn strike(&mut self, fault: Fault) -> Result<()> {
        match (&mut self.server, fault) {
            (Server::Etcd(server), Fault::Restart) => server.restart().await?,
            (Server::ZooKeeper(server), Fault::Restart) => server.restart().await?,
            (Server::ZooKeeper(server), Fault::Clock) => {
                self.clock.as_ref().context("a clock")?.set(AHEAD_MS)?;
                has_jumped(server).await?;
            }
            _ => {}
        }
        Ok(())
    }
}

/// That nothing happens proves something only if the server sees the jump: it notes the time with every node.
async fn has_jumped(server: &ZooKeeper) -> Result<()> {
    let client = Client::connect(&server.url()).await?;
    let (node, _) = client
        .create(
            "/noted",
            &[],
            &CreateMode::Persistent.with_acls(Acls::anyone_all()),
        )
        .await?;
    let now_ms = i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis())?;
    ensure!(
        node.ctime - now_ms > AHEAD_MS / 2,
        "ZooKeeper did not see its clock jump"
    );
    Ok(())
}

pub(super) fn of_etcd(port: u16) -> String {
    format!("http://127.0.0.1:{port}")
}

pub(super) fn of_zookeeper(port: u16) -> String {
    format!("127.0.0.1:{port}")
}
