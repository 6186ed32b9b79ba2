//! The lock that protects an item during a repair.

use std::{sync::Arc, time::Duration};

use anyhow::{Result, bail};
use lock::Lock;

use crate::{
    lock::{
        backend,
        backends::{self, DEFAULT},
        options::{Options, Servers},
    },
    settings::Settings,
};

/// Opens the lock without waiting for servers that do not vote yet. Until they vote, a service
/// skips steps that need the lock, and a command asks again for some seconds.
pub async fn open(settings: &Settings) -> Result<Arc<dyn Lock>> {
    let backend = chosen(settings)?;
    let servers = servers(settings, backend)?;
    let options = Options {
        backend,
        servers,
        lease: settings.lock.lock_lease_ms,
        longest_lease: None,
        fair: false,
    };
    Ok(Arc::from(
        backend::open(&options, Some(Duration::ZERO)).await?,
    ))
}

/// The configured backend; by default Redlock on LOCK_URLS, and without LOCK_URLS the ledger's
/// database.
fn chosen(settings: &Settings) -> Result<&'static str> {
    match settings.lock.lock {
        Some(backend) => Ok(backend),
        None if !settings.lock.lock_urls.is_empty() => Ok(DEFAULT),
        None => backends::find(if settings.database_url()?.starts_with("sqlite:") {
            "sqlite"
        } else {
            "postgres"
        }),
    }
}

/// The servers of the lock.
///
/// LOCK_URLS, if the user has set them. For the default backend they may also come from an earlier
/// `up`. Otherwise a database lock uses the ledger's database, and a single-Redis lock the stock's
/// Redis.
fn servers(settings: &Settings, backend: &str) -> Result<Servers> {
    let of = |place: &str, urls| Servers {
        urls,
        place: place.to_owned(),
        tls: settings.tls.clone(),
    };
    let urls = if backend == DEFAULT {
        &settings.lock.lock_urls
    } else {
        &settings.own_urls.lock_urls
    };
    match backend {
        _ if !urls.is_empty() => Ok(of("LOCK_URLS", urls.clone())),
        "postgres" | "sqlite" => Ok(of(
            "DATABASE_URL",
            vec![settings.database_url()?.to_owned()],
        )),
        "redis" => Ok(of("REDIS_URL", vec![settings.redis_url()?.to_owned()])),
        _ => {
            bail!("LOCK_URLS is not set: the lock backend {backend} needs the URLs of its servers")
        }
    }
}
