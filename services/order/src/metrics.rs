//! Prometheus metrics.

use std::{sync::OnceLock, time::Duration};

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use tokio_util::sync::CancellationToken;

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
    for (name, meaning) in COUNTERS {
        metrics::describe_counter!(*name, *meaning);
    }
    metrics::describe_gauge!(
        "stockade_stopped_segments",
        "segments that are not recorded any further; must be 0"
    );
    metrics::describe_gauge!(
        "stockade_drift_units",
        "units that the identity does not explain; must be 0"
    );
    metrics::describe_gauge!(
        "stockade_oversold_units",
        "units promised beyond the stock; must be 0"
    );
    metrics::describe_gauge!(
        "stockade_pending_returns",
        "ended orders whose units are not back after a second"
    );
    metrics::describe_histogram!(
        "stockade_mend_seconds",
        "from the halt of segments to the commit that mended them"
    );
    metrics::describe_histogram!(
        "stockade_order_seconds",
        "from the request to the answer of an order"
    );
    metrics::describe_histogram!(
        "stockade_batch_orders",
        "orders in a batch, by the ask that it made"
    );
    Ok(handle)
}

/// Every counter of every role.
const COUNTERS: &[(&str, &str)] = &[
    ("stockade_orders_total", "orders answered, by outcome"),
    (
        "stockade_hint_refusals_total",
        "orders refused in process by the sold-out hint",
    ),
    (
        "stockade_walk_retries_total",
        "attempts of a walk that were repeated after a fault",
    ),
    (
        "stockade_recorded_orders_total",
        "orders that the ledger took in, by the state it gave them",
    ),
    (
        "stockade_recorder_repeats_total",
        "orders in an outbox that the ledger had already",
    ),
    (
        "stockade_recorder_errors_total",
        "recording passes that failed and were tried again",
    ),
    (
        "stockade_returned_orders_total",
        "orders whose units the ledger has seen come back",
    ),
    (
        "stockade_transitions_total",
        "steps in the lives of orders, by the state that they led to",
    ),
    (
        "stockade_given_back_orders_total",
        "orders whose units a reconciler gave back to their segments",
    ),
    (
        "stockade_transfers_total",
        "moves of units between segments that were planned",
    ),
    (
        "stockade_mended_segments_total",
        "segments that were set to what the ledger says",
    ),
    (
        "stockade_reconciler_errors_total",
        "rounds of a reconciler that failed and were tried again",
    ),
    (
        "stockade_diverged_reads_total",
        "reads of an outbox that did not begin with its anchor; must be 0",
    ),
    (
        "stockade_walks_finished_total",
        "abandoned walks that were walked to their end",
    ),
    (
        "stockade_walks_forgotten_total",
        "final walks that were forgotten",
    ),
];

/// Keeps the histograms small, until `stop`.
pub async fn upkeep(handle: PrometheusHandle, stop: CancellationToken) {
    while tokio::time::timeout(Duration::from_secs(5), stop.cancelled())
        .await
        .is_err()
    {
        handle.run_upkeep();
    }
}
