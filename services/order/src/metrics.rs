//! Prometheus metrics.

mod catalogue;
mod page;

use std::{sync::OnceLock, time::Duration};

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use tokio_util::sync::CancellationToken;

pub use catalogue::{CATALOGUE, Kind, Metric};
pub(crate) use page::Page;

const SECONDS: &[f64] = &[
    0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0,
];
const ORDERS: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0];

/// Installs the recorder of this process, once, and returns the handle that prints it.
pub fn install() -> Option<PrometheusHandle> {
    static HANDLE: OnceLock<Option<PrometheusHandle>> = OnceLock::new();
    HANDLE
        .get_or_init(|| {
            build()
                .inspect_err(|error| tracing::warn!(%error, "no metrics"))
                .ok()
        })
        .clone()
}

fn build() -> Result<PrometheusHandle, metrics_exporter_prometheus::BuildError> {
    let handle = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_seconds".into()), SECONDS)?
        .set_buckets_for_metric(Matcher::Suffix("_orders".into()), ORDERS)?
        .install_recorder()?;
    for metric in CATALOGUE {
        metric.describe();
    }
    metrics::gauge!("stockade_build_info", "version" => env!("CARGO_PKG_VERSION")).set(1.0);
    Ok(handle)
}

/// The recorder keeps every gauge for the life of the process. One whose subject has ended, such as
/// a removed webhook, is set to NaN, and is not shown.
fn without_ended(text: &str) -> String {
    let has_value = |line: &&str| line.starts_with('#') || !line.ends_with(" NaN");
    text.split_inclusive('\n')
        .filter(|line| has_value(&line.trim_end()))
        .collect()
}

/// Keeps the histograms small, until `stop`.
pub async fn upkeep(handle: PrometheusHandle, stop: CancellationToken) {
    while tokio::time::timeout(Duration::from_secs(5), stop.cancelled())
        .await
        .is_err()
    {
        handle.run_upkeep();
    }
}

#[cfg(test)]
mod tests {
    use super::without_ended;

    #[test]
    fn a_series_that_is_no_number_is_not_shown() {
        let text = "# HELP lag seconds that are NaN\n# TYPE lag gauge\nlag{webhook=\"a\"} NaN\nlag{webhook=\"b\"} 0.5\n\nnext 1\n";
        let shown =
            "# HELP lag seconds that are NaN\n# TYPE lag gauge\nlag{webhook=\"b\"} 0.5\n\nnext 1\n";
        assert_eq!(without_ended(text), shown);
    }
}
