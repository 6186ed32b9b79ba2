//! What keeps the locks of items, for whoever reconciles.

use std::{sync::Arc, time::Duration};

use anyhow::{Context, Result};
use lock::Lock;

use crate::{
    lock::backend::{self, Options, Servers},
    settings::Settings,
};

/// Opens it. Servers that do not vote yet are not waited for: until they do, nothing is reconciled that needs the lock.
pub async fn open(settings: &Settings) -> Result<Arc<dyn Lock>> {
    let backend = chosen(settings)?;
    let servers = servers(settings, backend)?;
    let options = Options { backend, servers, lease: settings.lock_lease, longest_lease: None, fair: false };
    Ok(Arc::from(backend::open(&options, Some(Duration::ZERO)).await?))
}

/// What the user says; else the lock servers, if there are any; else the ledger's own database.
fn chosen(settings: &Settings) -> Result<&'static str> {
    match settings.lock {
        Some(backend) => Ok(backend),
        None if !settings.lock_urls.is_empty() => Ok(backend::DEFAULT),
        None => backend::find(if settings.database_url()?.starts_with("sqlite:") { "sqlite" } else { "postgres" }),
    }
}

/// A lock in a database is kept in the ledger's, and one on a single Redis in the stock's, unless LOCK_URLS names another one.
fn servers(settings: &Settings, backend: &str) -> Result<Servers> {
    let place = |place: &str| place.to_owned();
    if !settings.lock_urls.is_empty() && settings.lock.is_some_and(|chosen| chosen == backend) || backend == backend::DEFAULT {
        return Ok(Servers { urls: settings.lock_urls.clone(), place: place("LOCK_URLS") })
            .and_then(|servers| if servers.urls.is_empty() { missing(backend) } else { Ok(servers) });
    }
    match backend {
        "postgres" | "sqlite" => Ok(Servers { urls: vec![settings.database_url()?.to_owned()], place: place("DATABASE_URL") }),
        "redis" => Ok(Servers { urls: vec![settings.redis_url()?.to_owned()], place: place("REDIS_URL") }),
        _ => missing(backend),
    }
}

fn missing(backend: &str) -> Result<Servers> {
    None.with_context(|| format!("LOCK_URLS is not set: expected the servers of the lock ({backend})"))
}
