//! The processes of Stockade on a stage, each with its own way to Redis and to SQL where one can be put between.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Result;
use testbed::{Daemon, Proxy, free_port};

use super::{LedgerServer, LockNode, Materials, StockServers};
use crate::{fault::StageKind, shop::Secrets};

/// Shorter than clients wait: so they are told that the outcome is unknown, and do not only find out.
const ORDER_TIMEOUT_MS: u32 = 2000;

/// How long a reconciler that stops in the middle is waited for. Shorter than by default, so that a stop can be longer.
pub const LOCK_LEASE_MS: u64 = 2000;

/// What a process does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Serves buyers.
    Order,
    /// Records.
    Recorder,
    /// Repairs, expires, balances.
    Reconciler,
    /// All of that: `stockade up`.
    All,
}

/// As many of each as it takes for one to be missed by nobody.
const ROLES: [(Role, &str); 6] = [
    (Role::Order, "order-1"),
    (Role::Order, "order-2"),
    (Role::Recorder, "recorder-1"),
    (Role::Recorder, "recorder-2"),
    (Role::Reconciler, "reconciler-1"),
    (Role::Reconciler, "reconciler-2"),
];

/// A process of Stockade.
pub struct Process {
    /// What its log is called.
    pub name: String,
    /// What it does.
    pub role: Role,
    /// The process.
    pub daemon: Daemon,
    /// Where it serves, if it does.
    pub url: Option<String>,
    /// Between it and Redis.
    pub to_redis: Option<Proxy>,
    /// Between it and SQL.
    pub to_ledger: Option<Proxy>,
}

/// Where a process finds everything.
#[derive(Clone)]
struct Environment {
    program: PathBuf,
    arguments: Vec<String>,
    variables: Vec<(&'static str, String)>,
}

impl Environment {
    /// Nothing of the tester's own environment steers it.
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

pub(super) async fn start_all(
    kind: StageKind,
    materials: &Materials,
    dir: &Path,
    secrets: &Secrets,
    redis: &StockServers,
    ledger: &LedgerServer,
    locks: &[LockNode],
) -> Result<Vec<Process>> {
    let roles: &[_] = if kind == StageKind::Embedded {
        &[(Role::All, "up")]
    } else {
        &ROLES
    };
    let mut processes = Vec::new();
    for (role, name) in roles {
        processes.push(start(*role, name, materials, dir, secrets, redis, ledger, locks).await?);
    }
    Ok(processes)
}

#[expect(
    clippy::too_many_arguments,
    reason = "everything that a process is told, once"
)]
async fn start(
    role: Role,
    name: &str,
    materials: &Materials,
    dir: &Path,
    secrets: &Secrets,
    redis: &StockServers,
    ledger: &LedgerServer,
    locks: &[LockNode],
) -> Result<Process> {
    let (redis_url, to_redis) = way_to_redis(redis).await?;
    let (database_url, to_ledger) = way_to_ledger(ledger).await?;
    let lock_urls: Vec<_> = locks.iter().map(|node| node.server.url()).collect();
    let serves = matches!(role, Role::Order | Role::All);
    let listen = format!("127.0.0.1:{}", free_port().await);
    let mut variables = vec![
        ("REDIS_URL", redis_url),
        ("LOCK_URLS", lock_urls.join(",")),
        ("STOCKADE_JWT_SECRET", secrets.jwt.clone()),
        ("STOCKADE_ADMIN_TOKEN", secrets.admin.clone()),
        ("STOCKADE_PAYMENT_SECRET", secrets.payment.clone()),
        ("STOCKADE_ORDER_TIMEOUT_MS", ORDER_TIMEOUT_MS.to_string()),
        ("STOCKADE_LOCK_LEASE_MS", LOCK_LEASE_MS.to_string()),
        ("STOCKADE_LISTEN", listen.clone()),
        ("RUST_BACKTRACE", "1".into()),
    ];
    // What the processes log is all that a finding can be explained with.
    variables.extend(
        std::env::var("CHAOS_LOG")
            .ok()
            .map(|log| ("STOCKADE_LOG", log)),
    );
    variables.extend(database_url.map(|url| ("DATABASE_URL", url)));
    let environment = Environment {
        program: materials.program.clone(),
        arguments: arguments(role, dir, name, ledger),
        variables,
    };
    let daemon = Daemon::start("stockade", dir.join(format!("{name}.log")), move || {
        environment.command()
    })
    .await?;
    Ok(Process {
        name: name.into(),
        role,
        daemon,
        url: serves.then(|| format!("http://{listen}")),
        to_redis,
        to_ledger,
    })
}

fn arguments(role: Role, dir: &Path, name: &str, ledger: &LedgerServer) -> Vec<String> {
    let role = match role {
        Role::Order => "order",
        Role::Recorder => "recorder",
        Role::Reconciler => "reconciler",
        Role::All => {
            let dir = if let LedgerServer::Sqlite { dir, .. } = ledger {
                dir
            } else {
                dir
            };
            return vec!["--dir".into(), dir.display().to_string(), "up".into()];
        }
    };
    let dir = dir.join(name);
    vec![
        "--dir".into(),
        dir.display().to_string(),
        "serve".into(),
        "--roles".into(),
        role.into(),
    ]
}

/// The servers of a cluster, and sentinels, name each other to their clients, past any proxy.
async fn way_to_redis(redis: &StockServers) -> Result<(String, Option<Proxy>)> {
    let Some(server) = redis.server() else {
        return Ok((redis.url(), None));
    };
    let proxy = Proxy::start(server.port()).await?;
    Ok((format!("redis://127.0.0.1:{}", proxy.port()), Some(proxy)))
}

/// `up` has its own: nothing stands between a process and a file.
async fn way_to_ledger(ledger: &LedgerServer) -> Result<(Option<String>, Option<Proxy>)> {
    let LedgerServer::Postgres { server, url, .. } = ledger else {
        return Ok((None, None));
    };
    let proxy = Proxy::start(server.port()).await?;
    let url = url.replace(
        &format!(":{}/", server.port()),
        &format!(":{}/", proxy.port()),
    );
    Ok((Some(url), Some(proxy)))
}
