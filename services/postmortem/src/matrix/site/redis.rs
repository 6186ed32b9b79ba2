//! One Redis, or five that have nothing to do with each other.

use anyhow::{Context, Result};
use async_trait::async_trait;
use testbed::{AppendFsync, Clock, Redis};

use super::{AHEAD_MS, Fault, Site, clock};

/// The last two of five.
const BEYOND: &[usize] = &[3, 4];

pub(super) struct Nodes {
    nodes: Vec<Redis>,
    /// The one that is struck: the third of five, which every other quorum needs too, or the only one.
    struck: usize,
    replica: Option<Redis>,
    clock: Option<Clock>,
    beyond: &'static [usize],
}

impl Nodes {
    pub(super) async fn start(count: usize, fault: Fault) -> Result<Self> {
        let struck = count / 2;
        let clock = clock(fault).await?;
        let mut nodes = Vec::new();
        for node in 0..count {
            let mut builder = Redis::builder();
            if node == struck && fault == Fault::Restart {
                builder = builder.appendfsync(AppendFsync::No);
            }
            if let (true, Some(clock)) = (node == struck, &clock) {
                builder = builder.clock(clock).await?;
            }
            nodes.push(builder.start().await?);
        }
        let replica = if fault == Fault::Failover {
            let replica = Redis::builder().replica_of(&nodes[struck]).start().await?;
            nodes[struck].is_followed_by(1).await?;
            Some(replica)
        } else {
            None
        };
        let beyond = if count == 5 && !fault.spares_the_servers() {
            BEYOND
        } else {
            &[]
        };
        Ok(Self {
            nodes,
            struck,
            replica,
            clock,
            beyond,
        })
    }
}

#[async_trait]
impl Site for Nodes {
    fn ports(&self) -> Vec<u16> {
        self.nodes.iter().map(Redis::port).collect()
    }

    fn url(&self, port: u16) -> String {
        format!("redis://127.0.0.1:{port}")
    }

    async fn arm(&mut self, _fault: Fault) -> Result<()> {
        if let Some(replica) = &self.replica {
            self.nodes[self.struck].is_followed_by(1).await?;
            replica.lag().await?;
        }
        Ok(())
    }

    async fn strike(&mut self, fault: Fault) -> Result<()> {
        let struck = &mut self.nodes[self.struck];
        match fault {
            Fault::Failover => {
                let replica = self.replica.take().context("a replica")?;
                struck.kill().await?;
                replica.notices_its_masters_end().await?;
                replica.catch_up().await?;
                replica.promote().await?;
                *struck = replica;
            }
            Fault::Restart => struck.restart().await?,
            Fault::Clock => self.clock.as_ref().context("a clock")?.set(AHEAD_MS)?,
            _ => {}
        }
        Ok(())
    }

    fn beyond(&self) -> &'static [usize] {
        self.beyond
    }
}
