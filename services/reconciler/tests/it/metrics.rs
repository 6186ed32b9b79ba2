//! What the reconciler shows to whoever watches it.

use std::sync::OnceLock;

use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};

/// One for all tests of the process; each has items of its own.
fn recorder() -> &'static PrometheusHandle {
    static RECORDER: OnceLock<PrometheusHandle> = OnceLock::new();
    RECORDER.get_or_init(|| PrometheusBuilder::new().install_recorder().unwrap())
}

/// Metrics are kept from here on.
pub fn keep() {
    recorder();
}

/// The gauge of this item, if it was ever set.
pub fn gauge(name: &str, item: &str) -> Option<f64> {
    let start = format!("{name}{{item=\"{item}\"}} ");
    recorder().render().lines().find_map(|line| {
        line.strip_prefix(&start)
            .and_then(|value| value.parse().ok())
    })
}
