//! What a leg runs on: real servers, and the processes of Stockade, each of which can be broken by itself.

mod process;
mod servers;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::{Result, ensure};
use rand::{RngExt, rngs::StdRng};
use testbed::{Clock, Disk};
use tokio::time::{Instant, sleep};

pub use self::{
    process::{LOCK_LEASE_MS, Process, Role},
    servers::{LedgerServer, LockNode, StockServers},
};
use crate::{
    fault::{Fault, StageKind},
    shop::{Secrets, Shop},
    view::View,
};

const READY_WITHIN: Duration = Duration::from_secs(30);

/// Servers and processes. Dropping it kills them all.
pub struct Stage {
    // The processes go before the servers.
    /// The processes of Stockade.
    pub processes: Vec<Process>,
    /// Redis for the stock.
    pub redis: StockServers,
    /// SQL.
    pub ledger: LedgerServer,
    /// Redis for the locks.
    pub locks: Vec<LockNode>,
    /// The service.
    pub shop: Arc<Shop>,
    /// What the ledger says, past the service.
    pub view: View,
    dir: PathBuf,
}

/// What a stage is built with.
#[derive(Clone, Debug)]
pub struct Materials {
    /// The program `stockade`.
    pub program: PathBuf,
    /// Where logs are kept.
    pub out: PathBuf,
    /// Whether the ledger gets a disk that can be full.
    pub small_disk: bool,
    /// Whether the lock nodes get clocks that can jump.
    pub clocks: bool,
}

impl Materials {
    /// What this machine has, and, in words, which faults it has not what it takes for.
    pub async fn of_this_machine(program: PathBuf, out: PathBuf) -> (Self, Vec<String>) {
        let (disk, clock) = (Disk::mount(1).await, Clock::new().await);
        let mut missing = Vec::new();
        let small_disk = disk
            .map_err(|error| missing.push(format!("{}: {error}", Fault::LedgerDiskFull)))
            .is_ok();
        let clocks = clock
            .map_err(|error| missing.push(format!("{}: {error}", Fault::LockClockJump)))
            .is_ok();
        (
            Self {
                program,
                out,
                small_disk,
                clocks,
            },
            missing,
        )
    }

    /// The faults that can be had with them.
    pub fn faults(&self) -> Vec<Fault> {
        let possible = |fault: &Fault| match fault {
            Fault::LedgerDiskFull => self.small_disk,
            Fault::LockClockJump => self.clocks,
            _ => true,
        };
        Fault::ALL.into_iter().filter(possible).collect()
    }
}

impl Stage {
    /// Builds one and waits until it serves. `name` is the folder of its logs.
    pub async fn build(kind: StageKind, name: &str, materials: &Materials) -> Result<Self> {
        let dir = materials.out.join(name);
        std::fs::create_dir_all(&dir)?;
        let redis = StockServers::start(kind).await?;
        let ledger = LedgerServer::start(kind, materials.small_disk).await?;
        let locks = servers::start_lock_nodes(materials.clocks).await?;
        let secrets = secrets();
        let processes =
            process::start_all(kind, materials, &dir, &secrets, &redis, &ledger, &locks).await?;
        let hosts = processes
            .iter()
            .filter_map(|process| process.url.clone())
            .collect();
        let view = View::open(&ledger)?;
        let stage = Self {
            processes,
            redis,
            ledger,
            locks,
            shop: Shop::new(hosts, secrets)?,
            view,
            dir,
        };
        stage.until_ready().await?;
        Ok(stage)
    }

    /// Where the logs of its processes are.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Waits until every order service says that it is ready.
    pub async fn until_ready(&self) -> Result<()> {
        let until = Instant::now() + READY_WITHIN;
        while !self.shop.is_ready().await {
            ensure!(
                Instant::now() < until,
                "the service was not ready after {READY_WITHIN:?}; its logs are in {}",
                self.dir.display()
            );
            sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    /// The processes that have this role.
    pub fn with_role(&self, role: Role) -> Vec<usize> {
        let has = |process: &Process| process.role == role || process.role == Role::All;
        self.processes
            .iter()
            .enumerate()
            .filter(|(_, process)| has(process))
            .map(|(index, _)| index)
            .collect()
    }

    /// One of the processes that have this role.
    pub fn one_with_role(&self, role: Role, dice: &mut StdRng) -> usize {
        let all = self.with_role(role);
        all[dice.random_range(0..all.len())]
    }

    /// The names of the processes that have ended by themselves.
    pub fn ended(&mut self) -> Vec<String> {
        self.processes
            .iter_mut()
            .filter_map(|process| process.daemon.has_ended().then(|| process.name.clone()))
            .collect()
    }
}

fn secrets() -> Secrets {
    Secrets {
        jwt: "a secret of the login of the chaos".into(),
        admin: "a token of the admins of the chaos".into(),
        payment: "a secret of the provider of the chaos".into(),
    }
}
