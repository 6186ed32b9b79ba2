//! A test environment: real servers and real processes of Stockade, each of which can be broken
//! separately.

mod process;
mod servers;

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use rand::{RngExt, rngs::StdRng};
use testbed::{Clock, Disk, Postgres, Redis};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};

pub use self::{
    process::{CONNECTIONS_MAX, LOCK_LEASE_MS, Process, RECEIVER_TIMEOUT, Role},
    servers::{LedgerServer, LockNode, STOCKADE, StockServers, start_replica},
};
use crate::{
    api::{Api, Secrets},
    fault::{Fault, Topology},
    ledger_view::LedgerView,
    subscribers::{BrokerKind, Subscribers},
};

const READY_POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Servers and processes. Dropping it kills them all.
pub struct TestEnv {
    // Fields are dropped in this order: processes go before their servers.
    /// The processes of Stockade.
    pub processes: Vec<Process>,
    /// The Redis servers of the stock.
    pub redis: StockServers,
    /// The master before the last planned failover of the only Redis server. It is a replica now.
    pub former_redis: Option<Redis>,
    /// The clock of the Redis servers of the stock, if they share one and it can jump. The nodes of
    /// a cluster share none.
    pub redis_clock: Option<Clock>,
    /// The SQL database.
    pub ledger: LedgerServer,
    /// The standby that the address of the ledger last led to.
    pub ledger_standby: Option<Postgres>,
    /// The Redis servers of the locks.
    pub locks: Vec<LockNode>,
    /// Everything that gets events.
    pub subscribers: Subscribers,
    /// Clients of the service, which send each request once.
    pub api: Api,
    /// Reads the ledger's tables without the service.
    pub ledger_view: LedgerView,
    dir: PathBuf,
}

/// What environments are built from on this machine.
#[derive(Clone, Debug)]
pub struct EnvConfig {
    /// The program `stockade`.
    pub program: PathBuf,
    /// The folder for logs and the report.
    pub out: PathBuf,
    /// Whether the ledger gets a disk that can be filled.
    pub small_disk: bool,
    /// Whether servers and processes get clocks that can jump.
    pub clocks: bool,
    /// The brokers that the program can publish events to.
    pub brokers: Vec<BrokerKind>,
}

impl EnvConfig {
    /// Tests what this machine can do. Also returns the faults that it cannot inject, with the
    /// reasons.
    pub async fn detect(program: PathBuf, out: PathBuf) -> (Self, Vec<String>) {
        let (disk, clock) = (Disk::mount(1).await, Clock::new().await);
        let mut missing = Vec::new();
        let small_disk = disk
            .map_err(|error| missing.push(format!("{}: {error}", Fault::LedgerDiskFull)))
            .is_ok();
        let brokers = BrokerKind::supported_by(&program);
        let clocks = clock
            .map_err(|error| {
                let jumps = Fault::ALL.into_iter().filter(|fault| fault.needs_clock());
                missing.extend(jumps.map(|fault| format!("{fault}: {error}")));
            })
            .is_ok();
        (
            Self {
                program,
                out,
                small_disk,
                clocks,
                brokers,
            },
            missing,
        )
    }

    /// The same, with those of its brokers that are wanted.
    pub fn with_brokers(&self, wanted: &[BrokerKind]) -> Self {
        let mut config = self.clone();
        config.brokers.retain(|broker| wanted.contains(broker));
        config
    }

    /// The faults that this machine can inject.
    pub fn faults(&self) -> Vec<Fault> {
        let is_possible = |fault: &Fault| match fault {
            Fault::LedgerDiskFull => self.small_disk,
            _ => self.clocks || !fault.needs_clock(),
        };
        Fault::ALL.into_iter().filter(is_possible).collect()
    }
}

impl TestEnv {
    /// Starts servers and processes, and waits until the service is ready. `name` is the folder for
    /// the logs.
    pub async fn start(topology: Topology, name: &str, config: &EnvConfig) -> Result<Self> {
        // Brokers take seconds to start. The other servers start meanwhile.
        let mut starting = JoinSet::new();
        starting.spawn(Subscribers::start(config.brokers.clone()));
        let dir = config.out.join(name);
        std::fs::create_dir_all(&dir)?;
        // In a cluster each node has a clock of its own.
        let redis_clock = if topology != Topology::Cluster {
            servers::clock(config.clocks).await?
        } else {
            None
        };
        let redis = StockServers::start(topology, redis_clock.as_ref(), config.clocks).await?;
        let ledger = LedgerServer::start(topology, config).await?;
        let locks = servers::start_lock_nodes(config.clocks).await?;
        let secrets = secrets();
        let subscribers = starting.join_all().await.pop();
        let mut subscribers = subscribers.context("the subscribers did not start")??;
        let launcher = process::Launcher {
            config,
            dir: &dir,
            topology,
            secrets: &secrets,
            redis: &redis,
            ledger: &ledger,
            locks: &locks,
            subscribers: &subscribers,
        };
        let mut processes = launcher.start_all(process::roles(topology)).await?;
        let urls = processes
            .iter()
            .filter_map(|process| process.url.clone())
            .collect();
        let api = Api::new(urls, secrets.clone())?;
        wait_until_ready(&api, &dir).await?;
        // It opens the ledger that the others have made.
        let late = launcher.start_all(process::late_roles(topology)).await?;
        processes.extend(late);
        subscribers.subscribe(&api).await?;
        Ok(Self {
            processes,
            ledger_view: ledger.view()?,
            redis,
            former_redis: None,
            redis_clock,
            ledger,
            ledger_standby: None,
            locks,
            subscribers,
            api,
            dir,
        })
    }

    /// The folder with the logs of the processes.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The indices of the processes that have this role.
    pub fn with_role(&self, role: Role) -> Vec<usize> {
        let has_role = |process: &Process| process.role == role || process.role == Role::All;
        self.processes
            .iter()
            .enumerate()
            .filter(|(_, process)| has_role(process))
            .map(|(index, _)| index)
            .collect()
    }

    /// The index of a random process that has this role.
    pub fn one_with_role(&self, role: Role, rng: &mut StdRng) -> usize {
        let all = self.with_role(role);
        all[rng.random_range(0..all.len())]
    }

    /// The names of these processes, separated by commas.
    pub fn names(&self, indices: &[usize]) -> String {
        let names: Vec<_> = indices
            .iter()
            .map(|index| &*self.processes[*index].name)
            .collect();
        names.join(", ")
    }

    /// Every Redis server that a process of Stockade may be connected to.
    pub fn redis_servers(&self) -> Vec<&Redis> {
        let mut servers = self.redis.all();
        servers.extend(&self.former_redis);
        servers.extend(self.locks.iter().map(|node| &node.server));
        servers
    }

    /// The process ids of the processes.
    pub fn pids(&self) -> Vec<u32> {
        let processes = self.processes.iter();
        processes.map(|process| process.daemon.pid()).collect()
    }

    /// The names of the processes that have another process id than in `pids`.
    pub fn restarted_since(&self, pids: &[u32]) -> Vec<&str> {
        let processes = self.processes.iter().zip(pids);
        processes
            .filter(|(process, pid)| process.daemon.pid() != **pid)
            .map(|(process, _)| &*process.name)
            .collect()
    }

    /// The names of the processes that have ended although no fault killed them.
    pub fn ended(&mut self) -> Vec<String> {
        self.processes
            .iter_mut()
            .filter_map(|process| process.daemon.has_ended().then(|| process.name.clone()))
            .collect()
    }
}

/// Waits until every order service reports that it is ready.
async fn wait_until_ready(api: &Api, dir: &Path) -> Result<()> {
    let timeout = testbed::timeout();
    let deadline = Instant::now() + timeout;
    while !api.client.is_ready().await {
        ensure!(
            Instant::now() < deadline,
            "the service was not ready after {timeout:?}; its logs are in {}",
            dir.display()
        );
        sleep(READY_POLL_INTERVAL).await;
    }
    Ok(())
}

fn secrets() -> Secrets {
    Secrets {
        jwt: "the JWT secret of the chaos run".into(),
        admin: "the admin token of the chaos run".into(),
        payment: "the payment secret of the chaos run".into(),
    }
}
