//! The options of the lock, and its servers.

use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use lock::{InvalidArgument, Lock};
use stock::TlsCertificates;

use super::backends::schemes;
use crate::settings::{self, Layers, parse_urls};

/// Options of the lock, for any backend.
#[derive(Debug)]
pub struct Options {
    /// Checked to be one of the known backends.
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
    pub tls: Option<TlsCertificates>,
}

impl Options {
    pub(super) fn checked<L: Lock + 'static>(
        &self,
        built: Result<L, InvalidArgument>,
    ) -> Result<Box<dyn Lock>> {
        match built {
            Ok(lock) => Ok(Box::new(lock)),
            Err(error) => Err(self.servers.wrong(&error)),
        }
    }

    /// The server of a backend that has only one.
    pub(super) fn server(&self) -> Result<&str> {
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
    pub(super) fn hosts(&self) -> String {
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

impl Servers {
    /// Reads the servers from `--nodes`, or else from LOCK_URLS.
    pub fn find(flag: Option<&str>, layers: &Layers, backend: &str) -> Result<Self> {
        let schemes = schemes(backend);
        let servers = match flag {
            Some(text) => Self {
                urls: parse_urls(text, "--nodes", schemes)?,
                place: "--nodes".into(),
                tls: settings::tls(layers)?,
            },
            None => Self {
                urls: layers.urls("lock_urls", schemes)?,
                place: layers.place("lock_urls"),
                tls: settings::tls(layers)?,
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
            InvalidArgument::Certificates(_) => {
                anyhow!("STOCKADE_TLS_CA, STOCKADE_TLS_CERT: {error}")
            }
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
