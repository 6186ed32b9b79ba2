//! What keeps the lock, and where its servers are.
//!
//! A backend is a line in [`BACKENDS`] and an arm in [`open`], with a cargo feature of the same name.

use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use lock::{InvalidArgument, Lock};

use crate::settings::{Layers, parse_urls};

/// What `--backend` may be, and what the URLs of its servers begin with.
const BACKENDS: &[(&str, &[&str])] = &[("redlock", &["redis", "rediss"])];

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

/// Opens the backend. Servers that would vote later are waited for, but no longer than `patience`.
pub async fn open(options: &Options, patience: Option<Duration>) -> Result<Box<dyn Lock>> {
    match options.backend {
        #[cfg(feature = "redlock")]
        "redlock" => Ok(Box::new(super::redlock::open(options, patience).await?)),
        name => bail!("--backend: {name} is not compiled in; build stockade with `--features {name}`"),
    }
}

/// Finds the backend of that name.
pub fn find(name: &str) -> Result<&'static str> {
    let names = || BACKENDS.iter().map(|(name, _)| *name);
    names().find(|known| *known == name).ok_or_else(|| {
        let known = names().collect::<Vec<_>>().join(", ");
        anyhow!("--backend: expected one of {known}, found {name:?}")
    })
}

impl Servers {
    /// From `--nodes`, or else from LOCK_URLS.
    pub fn find(flag: Option<&str>, layers: &Layers, backend: &str) -> Result<Self> {
        let schemes = BACKENDS.iter().find(|(name, _)| *name == backend).map_or(&[][..], |(_, schemes)| schemes);
        let servers = match flag {
            Some(text) => Self { urls: parse_urls(text, "--nodes", schemes)?, place: "--nodes".into() },
            None => Self { urls: layers.urls("lock_urls", schemes)?, place: layers.place("lock_urls") },
        };
        if servers.urls.is_empty() {
            bail!("neither --nodes nor LOCK_URLS is set: expected the lock's servers, such as redis://HOST:PORT,redis://HOST:PORT,...");
        }
        Ok(servers)
    }

    /// Names the place of a wrong argument. URLs may hold a password, so the wrong one is not shown.
    pub fn wrong(&self, error: &InvalidArgument) -> anyhow::Error {
        match error {
            InvalidArgument::Url { expected, .. } => anyhow!("{}: expected {expected}", self.place),
            InvalidArgument::Nodes(_) => anyhow!("{}: {error}", self.place),
            InvalidArgument::Duration { setting, found, expected } => {
                anyhow!("--{}: {expected}, found {found:?}", setting.replace('_', "-"))
            }
            _ => anyhow!("NAME: {error}"),
        }
    }
}
