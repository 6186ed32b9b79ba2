//! The names of the lock's backends, and the addresses of their servers.

use anyhow::{Result, anyhow};

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
