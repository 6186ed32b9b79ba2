//! What keeps the lock, and where its servers are.
//!
//! A backend is a line in [`BACKENDS`] and an arm in [`open`], with a cargo feature of the same name.

use std::time::Duration;

use anyhow::{Result, anyhow, bail};
#[cfg(feature = "consul")]
use lock::ConsulBuilder;
#[cfg(feature = "etcd")]
use lock::EtcdBuilder;
#[cfg(feature = "redis")]
use lock::RedisLockBuilder;
#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
use lock::SqlLockBuilder;
#[cfg(feature = "zookeeper")]
use lock::ZooKeeperBuilder;
use lock::{InvalidArgument, Lock};

use crate::settings::{Layers, parse_urls};

/// What `--backend` may be, and what the URLs of its servers begin with.
const BACKENDS: &[(&str, &[&str])] = &[
    ("redlock", &["redis", "rediss"]),
    ("redis", &["redis", "rediss"]),
    ("postgres", &["postgres", "postgresql"]),
    ("mysql", &["mysql", "mariadb"]),
    ("sqlite", &["sqlite"]),
    ("etcd", &["http"]),
    ("zookeeper", &["zookeeper"]),
    ("consul", &["http", "https"]),
];

/// Of the lock, wherever it is kept.
#[derive(Debug)]
pub struct Options {
    /// Checked to be one of [`BACKENDS`].
    pub backend: &'static str,
    pub servers: Servers,
    pub lease: Duration,
    pub longest_lease: Option<Duration>,
    pub fair: bool,
}

/// Where the servers are, and who said so.
#[derive(Debug)]
pub struct Servers {
    pub urls: Vec<String>,
    pub place: String,
}

/// The row of a table `locks`, which is made if it is not there. A database that is away says so when it is asked for the lock.
#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
macro_rules! in_a_table {
    ($options:ident, $database:ty) => {{
        let built = SqlLockBuilder::<$database>::connect($options.server()?).lease($options.lease).build();
        let lock = built.map_err(|error| $options.servers.wrong(&error))?;
        if let Err(error) = lock.create_table().await {
            tracing::debug!(%error, "the table `locks` was not made");
        }
        Ok(Box::new(lock))
    }};
}

/// Opens the backend. Servers that would vote later are waited for, but no longer than `patience`.
pub async fn open(options: &Options, patience: Option<Duration>) -> Result<Box<dyn Lock>> {
    match options.backend {
        #[cfg(feature = "redlock")]
        "redlock" => Ok(Box::new(super::redlock::open(options, patience).await?)),
        #[cfg(feature = "redis")]
        "redis" => options.checked(
            RedisLockBuilder::new(options.server()?)
                .lease(options.lease)
                .build(),
        ),
        #[cfg(feature = "postgres")]
        "postgres" => in_a_table!(options, sqlx::Postgres),
        #[cfg(feature = "mysql")]
        "mysql" => in_a_table!(options, sqlx::MySql),
        #[cfg(feature = "sqlite")]
        "sqlite" => in_a_table!(options, sqlx::Sqlite),
        #[cfg(feature = "etcd")]
        "etcd" => options.checked(
            EtcdBuilder::new(options.servers.urls.clone())
                .lease(options.lease)
                .build()
                .await,
        ),
        #[cfg(feature = "zookeeper")]
        "zookeeper" => options.checked(
            ZooKeeperBuilder::new(options.hosts())
                .lease(options.lease)
                .build()
                .await,
        ),
        #[cfg(feature = "consul")]
        "consul" => options.checked(
            ConsulBuilder::new(options.server()?)
                .lease(options.lease)
                .build()
                .await,
        ),
        name => {
            bail!("--backend: {name} is not compiled in; build stockade with `--features {name}`")
        }
    }
}

impl Options {
    fn checked<L: Lock + 'static>(
        &self,
        built: Result<L, InvalidArgument>,
    ) -> Result<Box<dyn Lock>> {
        match built {
            Ok(lock) => Ok(Box::new(lock)),
            Err(error) => Err(self.servers.wrong(&error)),
        }
    }

    /// For a backend that has one.
    fn server(&self) -> Result<&str> {
        match self.servers.urls.as_slice() {
            [url] => Ok(url),
            urls => bail!(
                "{}: expected one server for {}, found {}",
                self.servers.place,
                self.backend,
                urls.len()
            ),
        }
    }

    /// As ZooKeeper's clients want them: `HOST:PORT,HOST:PORT`.
    #[cfg(feature = "zookeeper")]
    fn hosts(&self) -> String {
        let host = |url: &String| {
            url.split_once("://")
                .map_or(url.as_str(), |(_, host)| host)
                .trim_end_matches('/')
                .to_owned()
        };
        self.servers
            .urls
            .iter()
            .map(host)
            .collect::<Vec<_>>()
            .join(",")
    }
}

/// What keeps a lock if nobody says.
pub const DEFAULT: &str = "redlock";

/// Finds the backend of that name.
pub fn find(name: &str) -> Result<&'static str> {
    let found = BACKENDS
        .iter()
        .map(|(name, _)| *name)
        .find(|known| *known == name);
    found.ok_or_else(|| anyhow!("--backend: expected one of {}, found {name:?}", names()))
}

/// Every backend's name.
pub fn names() -> String {
    BACKENDS
        .iter()
        .map(|(name, _)| *name)
        .collect::<Vec<_>>()
        .join(", ")
}

/// What the URLs of the backend's servers begin with.
pub fn schemes(name: &str) -> &'static [&'static str] {
    BACKENDS
        .iter()
        .find(|(known, _)| *known == name)
        .map_or(&[], |(_, schemes)| schemes)
}

impl Servers {
    /// From `--nodes`, or else from LOCK_URLS.
    pub fn find(flag: Option<&str>, layers: &Layers, backend: &str) -> Result<Self> {
        let schemes = schemes(backend);
        let servers = match flag {
            Some(text) => Self {
                urls: parse_urls(text, "--nodes", schemes)?,
                place: "--nodes".into(),
            },
            None => Self {
                urls: layers.urls("lock_urls", schemes)?,
                place: layers.place("lock_urls"),
            },
        };
        if servers.urls.is_empty() {
            let scheme = schemes.first().unwrap_or(&"redis");
            bail!(
                "neither --nodes nor LOCK_URLS is set: expected the lock's servers, such as {scheme}://HOST:PORT,{scheme}://HOST:PORT,..."
            );
        }
        Ok(servers)
    }

    /// Names the place of a wrong argument. URLs may hold a password, so the wrong one is not shown.
    pub fn wrong(&self, error: &InvalidArgument) -> anyhow::Error {
        match error {
            InvalidArgument::Url { expected, .. } => anyhow!("{}: expected {expected}", self.place),
            InvalidArgument::Nodes(_) => anyhow!("{}: {error}", self.place),
            InvalidArgument::Duration {
                setting,
                found,
                expected,
            } => {
                anyhow!(
                    "--{}: {expected}, found {found:?}",
                    setting.replace('_', "-")
                )
            }
            _ => anyhow!("NAME: {error}"),
        }
    }
}
