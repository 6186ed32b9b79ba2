//! The backends of the lock, and their servers.
//!
//! A backend is a line in [`BACKENDS`] and an arm in [`open`], with a cargo feature of the same
//! name.

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

/// Names of the backends, with the URL schemes of their servers.
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

/// Options of the lock, for any backend.
#[derive(Debug)]
pub struct Options {
    /// Checked to be one of [`BACKENDS`].
    pub backend: &'static str,
    pub servers: Servers,
    pub lease: Duration,
    pub longest_lease: Option<Duration>,
    pub fair: bool,
}

/// URLs of the servers, and the setting that they come from.
#[derive(Debug)]
pub struct Servers {
    pub urls: Vec<String>,
    pub place: String,
}

/// A row of the table `locks`, which is created if it is missing. An unreachable database is reported
/// when the lock is acquired.
#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
macro_rules! in_a_table {
    ($options:ident, $database:ty) => {{
        let built = SqlLockBuilder::<$database>::connect($options.server()?).lease($options.lease).build();
        let lock = built.map_err(|error| $options.servers.wrong(&error))?;
        if let Err(error) = lock.create_table().await {
            tracing::debug!(%error, "cannot create the table `locks`");
        }
        Ok(Box::new(lock))
    }};
}

/// Opens the backend. Waits at most `wait_max` for servers that do not vote yet.
pub async fn open(options: &Options, wait_max: Option<Duration>) -> Result<Box<dyn Lock>> {
    match options.backend {
        #[cfg(feature = "redlock")]
        "redlock" => Ok(Box::new(super::redlock::open(options, wait_max).await?)),
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

    /// The server of a backend that has only one.
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

    /// The format of ZooKeeper's clients: `HOST:PORT,HOST:PORT`.
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

/// The default backend.
pub const DEFAULT: &str = "redlock";

/// Finds a backend by name.
pub fn find(name: &str) -> Result<&'static str> {
    let found = BACKENDS
        .iter()
        .map(|(name, _)| *name)
        .find(|known| *known == name);
    found.ok_or_else(|| anyhow!("--backend: expected one of {}, found {name:?}", names()))
}

/// Names of all backends.
pub fn names() -> String {
    BACKENDS
        .iter()
        .map(|(name, _)| *name)
        .collect::<Vec<_>>()
        .join(", ")
}

/// URL schemes of the backend's servers.
pub fn schemes(name: &str) -> &'static [&'static str] {
    BACKENDS
        .iter()
        .find(|(known, _)| *known == name)
        .map_or(&[], |(_, schemes)| schemes)
}

impl Servers {
    /// Reads the servers from `--nodes`, or else from LOCK_URLS.
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

    /// Adds the origin to an error. URLs may contain a password, so the error does not show them.
    pub fn wrong(&self, error: &InvalidArgument) -> anyhow::Error {
        match error {
            InvalidArgument::Url { expected, .. } => anyhow!("{}: expected {expected}", self.place),
            InvalidArgument::Nodes(_) | InvalidArgument::UrlParameter { .. } => {
                anyhow!("{}: {error}", self.place)
            }
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
