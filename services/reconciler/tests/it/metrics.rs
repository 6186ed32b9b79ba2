//! The metrics of the reconciler.

use std::sync::OnceLock;

use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};

/// One recorder for all tests of the process; each test has its own items.
fn recorder() -> &'static PrometheusHandle {
    static RECORDER: OnceLock<PrometheusHandle> = OnceLock::new();
    RECORDER.get_or_init(|| PrometheusBuilder::new().install_recorder().unwrap())
}

/// Installs the metrics recorder.
pub fn supervise() {
    recorder();
}

/// Value of the item's gauge, if it was ever set.
pub fn gauge(name: &str, item: &str) -> Option<f64> {
    labelled(name, &format!("item=\"{item}\""))
}

/// Value of the gauge with these labels, if it was ever set.
pub fn labelled(name: &str, labels: &str) -> Option<f64> {
    let start = format!("{name}{{{labels}}} ");
    recorder().render().lines().find_map(|line| {
        line.strip_prefix(&start)
            .and_then(|value| value.parse().ok())
    })
}
