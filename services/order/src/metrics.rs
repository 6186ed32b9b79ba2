//! Prometheus metrics.

mod catalogue;
mod exporter;
mod page;

use std::{sync::OnceLock, time::Duration};

use tokio_util::sync::CancellationToken;

pub use catalogue::{CATALOGUE, Kind, Metric};
pub use exporter::Exporter;
pub(crate) use page::Page;

/// Installs the recorder of this process, once, and returns what exports it.
pub fn install() -> Option<Exporter> {
    static EXPORTER: OnceLock<Option<Exporter>> = OnceLock::new();
    EXPORTER
        .get_or_init(|| {
            let exporter = Exporter::install()?;
            for metric in CATALOGUE {
                metric.describe();
            }
            metrics::gauge!("stockade_build_info", "version" => env!("CARGO_PKG_VERSION")).set(1.0);
            Some(exporter)
        })
        .clone()
}

/// Keeps the histograms small, until `stop`.
pub async fn upkeep(exporter: Exporter, stop: CancellationToken) {
    while tokio::time::timeout(Duration::from_secs(5), stop.cancelled())
        .await
        .is_err()
    {
        exporter.run_upkeep();
    }
}
