//! The reconciler's lock.

use std::time::Duration;

use anyhow::Result;

use super::{
    Layers,
    declaration::settings,
    kinds::{ms, read_by},
};
use crate::lock::backends;

settings! {
    /// The reconciler's lock.
    Lock {
        /// lock nodes, comma-separated, such as `redis://HOST:PORT,...`; `?durable=true` on a node
        /// [vouches for its memory](lock-command.md#nodes-that-remember)
        lock_urls: Vec<String>, read_by(lock_urls);
        /// where the reconciler keeps its lock: a backend that
        /// [`stockade lock run`](lock-command.md) has. Unset: `redlock` with `LOCK_URLS`, else
        /// the ledger's database
        lock: Option<&'static str>, read_by(backend);
        /// milliseconds of the lease of that lock; it is renewed while the reconciler works
        lock_lease_ms: Duration = 5000, ms(500..=600_000);
    }
}

fn backend(layers: &Layers, key: &str) -> Result<Option<&'static str>> {
    let Some(text) = layers.text(key) else {
        return Ok(None);
    };
    backends::find(&text)
        .map(Some)
        .map_err(|_| layers.wrong(key, &format!("one of {}", backends::names())))
}

/// Servers of an earlier `up` belong to the default backend, whichever backend is set now.
fn lock_urls(layers: &Layers, key: &str) -> Result<Vec<String>> {
    let of = Lock::lock(layers)?
        .filter(|_| !layers.is_from_run_file(key))
        .unwrap_or(backends::DEFAULT);
    layers.urls(key, backends::schemes(of))
}
