//! One etcd server, or one ZooKeeper server.

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use async_trait::async_trait;
use testbed::{Clock, Etcd, ZooKeeper};
use zookeeper_client::{Acls, Client, CreateMode};

use super::api::{CLOCK_JUMP_MS, Servers, clock_for};
use crate::fault::Fault;

/// A private server that the fault may break.
pub(super) struct CoordinationServer {
    server: Server,
    clock: Option<Clock>,
}

enum Server {
    Etcd(Etcd),
    ZooKeeper(ZooKeeper),
}

impl CoordinationServer {
    pub(super) async fn etcd() -> Result<Self> {
        Ok(Self {
            server: Server::Etcd(Etcd::start().await?),
            clock: None,
        })
    }

    pub(super) async fn zookeeper(fault: Fault) -> Result<Self> {
        let mut builder = ZooKeeper::builder();
        let clock = clock_for(fault).await?;
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
impl Servers for CoordinationServer {
    fn ports(&self) -> Vec<u16> {
        vec![match &self.server {
            Server::Etcd(server) => server.port(),
            Server::ZooKeeper(server) => server.port(),
        }]
    }

    fn url(&self, port: u16) -> String {
        match self.server {
            Server::Etcd(_) => etcd_url(port),
            Server::ZooKeeper(_) => zookeeper_url(port),
        }
    }

    async fn inject(&mut self, fault: Fault) -> Result<()> {
        match (&mut self.server, fault) {
            (Server::Etcd(server), Fault::Restart) => server.restart().await?,
            (Server::ZooKeeper(server), Fault::Restart) => server.restart().await?,
            (Server::ZooKeeper(server), Fault::Clock) => {
                let clock = self.clock.as_ref().context("clock jump needs a clock")?;
                clock.set(CLOCK_JUMP_MS)?;
                verify_clock_jump(server).await?;
            }
            _ => {}
        }
        Ok(())
    }
}

/// Checks that the server sees the jump. Without this check, an unchanged lock would prove nothing.
/// ZooKeeper records the time with every node.
async fn verify_clock_jump(server: &ZooKeeper) -> Result<()> {
    let client = Client::connect(&server.url()).await?;
    let (node, _) = client
        .create(
            "/clock-probe",
            &[],
            &CreateMode::Persistent.with_acls(Acls::anyone_all()),
        )
        .await?;
    let now_ms = i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis())?;
    ensure!(
        node.ctime - now_ms > CLOCK_JUMP_MS / 2,
        "ZooKeeper did not see its clock jump: ctime is {} ms ahead, expected about {CLOCK_JUMP_MS}",
        node.ctime - now_ms
    );
    Ok(())
}

pub(super) fn etcd_url(port: u16) -> String {
    format!("http://127.0.0.1:{port}")
}

pub(super) fn zookeeper_url(port: u16) -> String {
    format!("127.0.0.1:{port}")
}
