//! A Stockade on private servers, with every role in one process and either ledger. Its service can
//! be started again.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use client::{Admin, Audit, Client, RetryPolicy, Token};
use tempfile::TempDir;
use testbed::{Daemon, Postgres, Redis, free_port};
use tokio::time::sleep;

use super::database::Database;
use crate::{
    goals::servers,
    options::LedgerKind,
    test_env::{ADMIN_TOKEN, Process, client},
};

const ROLES: &str = "order,recorder,reconciler,publisher";
/// Variables of the environment, with their values.
type Settings = [(&'static str, &'static str)];

/// The audit of very many orders is measured, however long it takes: the bench itself gives up
/// after a minute.
const SETTINGS: &Settings = &[("STOCKADE_REQUEST_TIMEOUT_MS", "60000")];
/// While items are made, none is audited.
const FILLING: &Settings = &[SETTINGS[0], ("STOCKADE_AUDIT_INTERVAL_MS", "3600000")];
/// Audits that are due are made one after the other, and not spread over an hour.
const AUDITING: &Settings = &[SETTINGS[0], ("STOCKADE_AUDIT_INTERVAL_MS", "100")];

const STOP_TIMEOUT: Duration = Duration::from_secs(60);
const READY_TIMEOUT: Duration = Duration::from_secs(600);
/// Resolution of the time from start to ready.
const READY_INTERVAL: Duration = Duration::from_millis(5);
const REST_TIMEOUT: Duration = Duration::from_secs(600);
const REST_INTERVAL: Duration = Duration::from_millis(200);

/// A running Stockade. Dropping it stops all of it.
pub struct GrowthEnv {
    // Fields drop in this order: the process, its servers, then the folder with the logs.
    service: Option<Daemon>,
    redis: Redis,
    postgres: Option<Postgres>,
    /// Tables of the ledger.
    pub database: Database,
    /// Makes each call once.
    pub client: Client,
    /// The same for an admin.
    pub admin: Admin,
    /// Repeats a call whose outcome is unknown: for what is not measured.
    pub patient: Admin,
    /// `HOST:PORT` of the service.
    pub address: String,
    database_url: String,
    dir: TempDir,
}

impl GrowthEnv {
    /// Starts servers and service.
    pub async fn start(ledger: LedgerKind) -> Result<Self> {
        let dir = tempfile::Builder::new()
            .prefix("stockade-growth-")
            .tempdir()?;
        let redis = Redis::start().await?;
        let (postgres, database_url) = match ledger {
            LedgerKind::Postgres => {
                let postgres = servers::large_postgres().await?;
                let url = postgres.create_database("growth").await?;
                (Some(postgres), url)
            }
            LedgerKind::Sqlite => {
                let file = dir.path().join("ledger.db");
                (None, format!("sqlite://{}", file.display()))
            }
        };
        let address = format!("127.0.0.1:{}", free_port().await);
        let client = client(&format!("http://{address}"))?;
        let service = start(&dir, &redis, &database_url, &address, SETTINGS).await?;
        until_ready(&client, &service).await?;
        let token = Token::bearer(ADMIN_TOKEN)?;
        let patient = client.with_retry(RetryPolicy::default());
        Ok(Self {
            service: Some(service),
            redis,
            postgres,
            database: Database::connect(&database_url).await?,
            admin: client.admin(token.clone()),
            patient: patient.admin(token),
            client,
            address,
            database_url,
            dir,
        })
    }

    /// Starts the service again, after an orderly end. Returns the milliseconds from its start
    /// until it is ready.
    pub async fn restart(&mut self) -> Result<f64> {
        self.restart_with(SETTINGS).await
    }

    /// The same, for items that are to be made.
    pub async fn restart_to_fill(&mut self) -> Result<()> {
        self.restart_with(FILLING).await.map(drop)
    }

    /// The same, with audits that do not wait for each other.
    pub async fn restart_to_audit(&mut self) -> Result<()> {
        self.restart_with(AUDITING).await.map(drop)
    }

    async fn restart_with(&mut self, settings: &'static Settings) -> Result<f64> {
        if let Some(service) = self.service.take() {
            service.stop(STOP_TIMEOUT).await;
        }
        let began = Instant::now();
        let (redis, database) = (&self.redis, &self.database_url);
        let service = start(&self.dir, redis, database, &self.address, settings).await?;
        until_ready(&self.client, &service).await?;
        self.service = Some(service);
        Ok(began.elapsed().as_secs_f64() * 1000.0)
    }

    /// Process id of the service.
    pub fn service_pid(&self) -> Result<u32> {
        let service = self
            .service
            .as_ref()
            .context("the service has no process")?;
        Ok(service.pid())
    }

    /// Process id of Redis.
    pub fn redis_pid(&self) -> u32 {
        self.redis.pid()
    }

    /// Process id of the ledger's server. SQLite has none.
    pub fn ledger_pid(&self) -> Option<u32> {
        self.postgres.as_ref().map(|postgres| postgres.pid())
    }

    /// Waits until no unit of the item is on its way and Redis does not rewrite its file. Returns
    /// the full audit.
    pub async fn until_at_rest(&self, item: &str) -> Result<Audit> {
        let until = Instant::now() + REST_TIMEOUT;
        loop {
            let audit = self.patient.audit(item).await?;
            if audit.is_at_rest() && !self.rewrites().await? {
                return Ok(self.patient.full_audit(item).await?);
            }
            ensure!(
                Instant::now() < until,
                "{item} is not at rest after {REST_TIMEOUT:?}: {audit:?}"
            );
            sleep(REST_INTERVAL).await;
        }
    }

    /// Whether Redis rewrites its append-only file, which takes another process and a core.
    async fn rewrites(&self) -> Result<bool> {
        let mut redis = servers::connect(&self.redis.url()).await?;
        let mut info = redis::cmd("INFO");
        info.arg("persistence");
        let info: redis::InfoDict = info.query_async(&mut redis).await?;
        let flag = |name: &str| {
            info.get::<u8>(name)
                .with_context(|| format!("INFO has no {name}"))
        };
        Ok(flag("aof_rewrite_in_progress")? + flag("aof_rewrite_scheduled")? > 0)
    }
}

async fn start(
    dir: &TempDir,
    redis: &Redis,
    database_url: &str,
    listen: &str,
    settings: &'static Settings,
) -> Result<Daemon> {
    let process = Process {
        name: "service",
        roles: ROLES,
        listen: Some(listen),
        settings,
    };
    process.start(dir, redis, database_url).await
}

async fn until_ready(client: &Client, service: &Daemon) -> Result<()> {
    let until = Instant::now() + READY_TIMEOUT;
    while !client.is_ready().await {
        if Instant::now() > until {
            let log = std::fs::read_to_string(service.log()).unwrap_or_default();
            bail!("the service was not ready after {READY_TIMEOUT:?}:\n{log}");
        }
        sleep(READY_INTERVAL).await;
    }
    Ok(())
}
