//! The processes of Stockade in an environment. Where possible, each has its own proxies to Redis
//! and to SQL.

use std::{
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::Result;
use testbed::{Clock, Daemon, Proxy, free_port};

use super::{EnvConfig, LedgerServer, LockNode, STOCKADE, StockServers, servers};
use crate::{api::Secrets, fault::Topology, subscribers::Subscribers};

/// Shorter than the client's timeout, so that clients receive `outcome_unknown` as a response.
const ORDER_TIMEOUT_MS: u32 = 2000;

/// Open connections of a service. Below what a flood opens, and above what the workload needs.
pub const CONNECTIONS_MAX: usize = 300;

/// Time after which a service closes the connection of a client that does not read. Shorter than
/// the default, so that it happens within a fault.
const WRITE_TIMEOUT_MS: u32 = 700;

/// Time for a receiver or a broker to answer. Shorter than the default, so that a fault exceeds it.
pub const RECEIVER_TIMEOUT: Duration = Duration::from_millis(1000);
/// Pause before an event is sent again, and the time after which another publisher follows one that
/// was killed. Shorter than the defaults, so that a round need not wait for them.
const WEBHOOKS_RETRY_MS: u32 = 200;
const PUBLISHER_LEASE_MS: u32 = 3000;

/// Lease of the item lock. Shorter than the default, so that a test can stop a reconciler for
/// longer.
pub const LOCK_LEASE_MS: u64 = 2000;

/// Pause between two audits of an item by a reconciler. Shorter than the default, so that they happen
/// beside a fault.
const AUDIT_INTERVAL_MS: u32 = 1000;

/// The part of Stockade that a process runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Serves the API.
    Order,
    /// Records orders in the ledger.
    Recorder,
    /// Expires holds, balances segments and repairs differences.
    Reconciler,
    /// Sends events to webhooks and sinks.
    Publisher,
    /// All of these: `stockade up`.
    All,
}

/// Two processes of each role, so that killing one leaves the other.
const ROLES: [(Role, &str); 8] = [
    (Role::Order, "order-1"),
    (Role::Order, "order-2"),
    (Role::Recorder, "recorder-1"),
    (Role::Recorder, "recorder-2"),
    (Role::Reconciler, "reconciler-1"),
    (Role::Reconciler, "reconciler-2"),
    (Role::Publisher, "publisher-1"),
    (Role::Publisher, "publisher-2"),
];

/// The processes that a topology starts with.
pub(super) fn roles(topology: Topology) -> &'static [(Role, &'static str)] {
    match topology {
        Topology::Embedded => &[(Role::All, "up")],
        _ => &ROLES,
    }
}

/// The processes that follow once the service is ready: a second publisher beside `stockade up`.
pub(super) fn late_roles(topology: Topology) -> &'static [(Role, &'static str)] {
    match topology {
        Topology::Embedded => &[(Role::Publisher, "publisher-2")],
        _ => &[],
    }
}

/// A process of Stockade.
pub struct Process {
    /// The name of the process and of its log.
    pub name: String,
    /// What it runs.
    pub role: Role,
    /// The running program.
    pub daemon: Daemon,
    /// The address of its API, if it serves one.
    pub url: Option<String>,
    /// Its clock, if it can jump.
    pub clock: Option<Clock>,
    /// The proxy between the process and Redis.
    pub redis_proxy: Option<Proxy>,
    /// The proxy between the process and SQL.
    pub ledger_proxy: Option<Proxy>,
}

/// A command that can be started again.
#[derive(Clone)]
struct CommandLine {
    program: PathBuf,
    arguments: Vec<String>,
    variables: Vec<(&'static str, String)>,
}

/// What the processes of an environment have in common.
pub(super) struct Launcher<'a> {
    pub config: &'a EnvConfig,
    pub dir: &'a Path,
    pub topology: Topology,
    pub secrets: &'a Secrets,
    pub redis: &'a StockServers,
    pub ledger: &'a LedgerServer,
    pub locks: &'a [LockNode],
    pub subscribers: &'a Subscribers,
}

impl CommandLine {
    /// Removes Stockade's settings from the tester's environment.
    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        for (variable, _) in std::env::vars() {
            if variable.starts_with("STOCKADE_")
                || ["REDIS_URL", "LOCK_URLS", "DATABASE_URL"].contains(&&*variable)
            {
                command.env_remove(variable);
            }
        }
        command
            .args(&self.arguments)
            .envs(self.variables.iter().cloned());
        command
    }
}

impl Launcher<'_> {
    pub(super) async fn start_all(&self, roles: &[(Role, &str)]) -> Result<Vec<Process>> {
        let mut processes = Vec::new();
        for (role, name) in roles {
            processes.push(self.start(*role, name).await?);
        }
        Ok(processes)
    }

    async fn start(&self, role: Role, name: &str) -> Result<Process> {
        let (redis_url, redis_proxy) = proxy_redis(self.redis).await?;
        let (database_url, ledger_proxy) = proxy_ledger(self.ledger, role).await?;
        let serves = matches!(role, Role::Order | Role::All);
        let listen = format!("127.0.0.1:{}", free_port().await);
        let clock = servers::clock(self.config.clocks).await?;
        let mut variables = self.variables(redis_url, database_url, listen.clone());
        if let Some(clock) = &clock {
            let clock = clock.variables().await?.into_iter();
            variables.extend(clock.map(|(name, path)| (name, path.display().to_string())));
        }
        let command = CommandLine {
            program: self.config.program.clone(),
            arguments: self.arguments(role, name),
            variables,
        };
        let log = self.dir.join(format!("{name}.log"));
        let daemon = Daemon::start("stockade", log, move || command.command()).await?;
        Ok(Process {
            name: name.into(),
            role,
            daemon,
            url: serves.then(|| format!("http://{listen}")),
            clock,
            redis_proxy,
            ledger_proxy,
        })
    }

    fn variables(
        &self,
        redis_url: String,
        database_url: Option<String>,
        listen: String,
    ) -> Vec<(&'static str, String)> {
        let locks = self.locks.iter();
        let lock_urls: Vec<_> = locks.map(|node| STOCKADE.at(&node.server.url())).collect();
        let mut variables = vec![
            ("REDIS_URL", redis_url),
            ("LOCK_URLS", lock_urls.join(",")),
            ("STOCKADE_JWT_SECRET", self.secrets.jwt.clone()),
            ("STOCKADE_ADMIN_TOKEN", self.secrets.admin.clone()),
            ("STOCKADE_PAYMENT_SECRET", self.secrets.payment.clone()),
            ("STOCKADE_STRIPE_SECRET", self.secrets.payment.clone()),
            ("STOCKADE_ORDER_TIMEOUT_MS", ORDER_TIMEOUT_MS.to_string()),
            ("STOCKADE_CONNECTIONS_MAX", CONNECTIONS_MAX.to_string()),
            ("STOCKADE_WRITE_TIMEOUT_MS", WRITE_TIMEOUT_MS.to_string()),
            ("STOCKADE_LOCK_LEASE_MS", LOCK_LEASE_MS.to_string()),
            ("STOCKADE_WEBHOOKS_ALLOW_PRIVATE", "true".into()),
            (
                "STOCKADE_WEBHOOKS_TIMEOUT_MS",
                RECEIVER_TIMEOUT.as_millis().to_string(),
            ),
            ("STOCKADE_WEBHOOKS_RETRY_MS", WEBHOOKS_RETRY_MS.to_string()),
            (
                "STOCKADE_PUBLISHER_LEASE_MS",
                PUBLISHER_LEASE_MS.to_string(),
            ),
            ("STOCKADE_AUDIT_INTERVAL_MS", AUDIT_INTERVAL_MS.to_string()),
            ("STOCKADE_LISTEN", listen),
            ("STOCKADE_MIGRATE", "on".into()),
            // Clients that do not read ask for a large page of operators.
            ("STOCKADE_OPERATORS_AT_LISTEN", "on".into()),
            ("RUST_BACKTRACE", "1".into()),
        ];
        if self.topology.audits_changes() {
            variables.push(("STOCKADE_AUDIT_WALKED_MAX", "0".into()));
        }
        // The logs of the processes are the only explanation of a finding.
        let log = std::env::var("CHAOS_LOG").ok();
        variables.extend(log.map(|log| ("STOCKADE_LOG", log)));
        variables.extend(self.subscribers.settings());
        variables.extend(database_url.map(|url| ("DATABASE_URL", url)));
        variables
    }

    fn arguments(&self, role: Role, name: &str) -> Vec<String> {
        let role = match role {
            Role::Order => "order",
            Role::Recorder => "recorder",
            Role::Reconciler => "reconciler",
            Role::Publisher => "publisher",
            Role::All => {
                let dir = match self.ledger {
                    LedgerServer::Sqlite { dir, .. } => dir,
                    LedgerServer::Postgres { .. } => self.dir,
                };
                return vec!["--dir".into(), dir.display().to_string(), "up".into()];
            }
        };
        let dir = self.dir.join(name).display().to_string();
        ["--dir", &dir, "serve", "--roles", role]
            .map(str::to_owned)
            .into()
    }
}

/// The servers of a cluster, and sentinels, report each other's addresses to their clients, so
/// clients would bypass a proxy.
async fn proxy_redis(redis: &StockServers) -> Result<(String, Option<Proxy>)> {
    let Some(server) = redis.server() else {
        return Ok((redis.url(), None));
    };
    let proxy = Proxy::start(server.port()).await?;
    let url = STOCKADE.at(&format!("redis://127.0.0.1:{}", proxy.port()));
    Ok((url, Some(proxy)))
}

/// A file has no proxy. `stockade up` makes it, and others name it.
async fn proxy_ledger(
    ledger: &LedgerServer,
    role: Role,
) -> Result<(Option<String>, Option<Proxy>)> {
    let (server, url) = match ledger {
        LedgerServer::Postgres { server, url, .. } => (server, url),
        LedgerServer::Sqlite { .. } if role == Role::All => return Ok((None, None)),
        LedgerServer::Sqlite { dir, .. } => {
            let file = dir.join("ledger.db");
            return Ok((Some(format!("sqlite://{}", file.display())), None));
        }
    };
    let proxy = Proxy::start(server.port()).await?;
    let url = url.replace(
        &format!(":{}/", server.port()),
        &format!(":{}/", proxy.port()),
    );
    Ok((Some(url), Some(proxy)))
}
