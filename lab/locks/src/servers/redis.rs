//! One Redis server, or five independent ones.

use anyhow::{Context, Result};
use async_trait::async_trait;
use testbed::{AppendFsync, Clock, Redis};

use super::api::{CLOCK_JUMP_MS, Servers, clock_for};
use crate::fault::Fault;

/// The last two of five servers. Without them, every majority includes the third.
const UNREACHABLE_FOR_HOLDER: &[usize] = &[3, 4];

pub(super) struct RedisServers {
    servers: Vec<Redis>,
    /// Index of the server that the fault hits: the third of five, which every other majority needs
    /// too, or the only one.
    target: usize,
    replica: Option<Redis>,
    clock: Option<Clock>,
    unreachable: &'static [usize],
}

impl RedisServers {
    pub(super) async fn start(count: usize, fault: Fault) -> Result<Self> {
        let target = count / 2;
        let clock = clock_for(fault).await?;
        let mut servers = Vec::new();
        for index in 0..count {
            let mut builder = Redis::builder();
            if index == target && fault == Fault::Restart {
                builder = builder.appendfsync(AppendFsync::No);
            }
            if let (true, Some(clock)) = (index == target, &clock) {
                builder = builder.clock(clock).await?;
            }
            servers.push(builder.start().await?);
        }
        let replica = if fault == Fault::Failover {
            Some(replica_of(&servers[target]).await?)
        } else {
            None
        };
        let unreachable = if count == 5 && !fault.leaves_servers_intact() {
            UNREACHABLE_FOR_HOLDER
        } else {
            &[]
        };
        Ok(Self {
            servers,
            target,
            replica,
            clock,
            unreachable,
        })
    }
}

async fn replica_of(master: &Redis) -> Result<Redis> {
    let replica = Redis::builder().replica_of(master).start().await?;
    master.is_followed_by(1).await?;
    Ok(replica)
}

#[async_trait]
impl Servers for RedisServers {
    fn ports(&self) -> Vec<u16> {
        self.servers.iter().map(Redis::port).collect()
    }

    fn url(&self, port: u16) -> String {
        format!("redis://127.0.0.1:{port}")
    }

    async fn prepare(&mut self, _fault: Fault) -> Result<()> {
        if let Some(replica) = &self.replica {
            self.servers[self.target].is_followed_by(1).await?;
            replica.lag().await?;
        }
        Ok(())
    }

    async fn inject(&mut self, fault: Fault) -> Result<()> {
        let target = &mut self.servers[self.target];
        match fault {
            Fault::Failover => {
                let replica = self.replica.take().context("failover needs a replica")?;
                target.kill().await?;
                replica.notices_its_masters_end().await?;
                replica.catch_up().await?;
                replica.promote().await?;
                *target = replica;
            }
            Fault::Restart => target.restart().await?,
            Fault::Clock => {
                let clock = self.clock.as_ref().context("clock jump needs a clock")?;
                clock.set(CLOCK_JUMP_MS)?;
            }
            _ => {}
        }
        Ok(())
    }

    fn unreachable_for_holder(&self) -> &'static [usize] {
        self.unreachable
    }
}
