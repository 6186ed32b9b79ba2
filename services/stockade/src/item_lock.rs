//! What keeps the locks of items, for whoever reconciles.

use std::{sync::Arc, time::Duration};

use anyhow::{Result, bail};
use lock::Lock;

use crate::{
    lock::backend::{self, DEFAULT, Options, Servers},
    settings::Settings,
};

/// Opens it. Servers that do not vote yet are not waited for: until they do, nothing is reconciled that needs the lock.
pub async fn open(settings: &Settings) -> Result<Arc<dyn Lock>> {
    let backend = chosen(settings)?;
    let servers = servers(settings, backend)?;
    let options = Options {
        backend,
        servers,
        lease: settings.lock_lease,
        longest_lease: None,
        fair: false,
    };
    Ok(Arc::from(
        backend::open(&options, Some(Duration::ZERO)).await?,
    ))
}

/// What the user says; else the lock servers, if there are any; else the ledger's own database.
fn chosen(settings: &Settings) -> Result<&'static str> {
    match settings.lock {
        Some(backend) => Ok(backend),
        None if !settings.lock_urls.is_empty() => Ok(DEFAULT),
        None => backend::find(if settings.database_url()?.starts_with("sqlite:") {
            "sqlite"
        } else {
            "postgres"
        }),
    }
}

/// LOCK_URLS, if the user has set them or the lock is the default one, whose servers `up` may have started; else a lock in a database is kept in the
/// ledger's, and one on a single Redis in the stock's.
fn servers(settings: &Settings, backend: &str) -> Result<Servers> {
    let of = |place: &str, urls| Servers {
        urls,
        place: place.to_owned(),
    };
    let urls = if backend == DEFAULT {
        &settings.lock_urls
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
        _ => bail!("LOCK_URLS is not set: expected the servers of the lock ({backend})"),
    }
}
