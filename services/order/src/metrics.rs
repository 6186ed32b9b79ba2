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
        "quarantined segments, which are not recorded; must be 0"
    );
    metrics::describe_gauge!(
        "stockade_drift_units",
        "units that violate the conservation invariant; must be 0"
    );
    metrics::describe_gauge!(
        "stockade_oversold_units",
        "units promised beyond the stock; must be 0"
    );
    metrics::describe_gauge!(
        "stockade_pending_returns",
        "ended orders whose units have not returned after a second"
    );
    metrics::describe_gauge!(
        "stockade_webhook_lag_seconds",
        "age of the oldest event that the webhook has not got"
    );
    metrics::describe_histogram!(
        "stockade_repair_seconds",
        "duration of a repair, from the halt of the segments to the commit"
    );
    metrics::describe_histogram!("stockade_order_seconds", "duration of an order request");
    metrics::describe_histogram!(
        "stockade_batch_orders",
        "orders in a batch, by the script that it called"
    );
    Ok(handle)
}

/// Counters of all roles.
const COUNTERS: &[(&str, &str)] = &[
    (
        "stockade_webhook_deliveries_total",
        "attempts to send an event to a webhook, by result",
    ),
    (
        "stockade_webhooks_disabled_total",
        "webhooks disabled because their receivers accepted no event for too long",
    ),
    (
        "stockade_publisher_errors_total",
        "failures of the publisher, which it retries",
    ),
    (
        "stockade_events_removed_total",
        "events removed because they were too old",
    ),
    ("stockade_orders_total", "orders answered, by outcome"),
    (
        "stockade_requests_limited_total",
        "requests above the rate of a buyer or a peer",
    ),
    (
        "stockade_connections_refused_total",
        "connections closed, or not accepted, at a bound",
    ),
    (
        "stockade_shed_orders_total",
        "orders shed in process by the sold-out cache",
    ),
    (
        "stockade_spillover_retries_total",
        "spillover attempts that were repeated after a failure",
    ),
    (
        "stockade_recorded_orders_total",
        "orders recorded in the ledger, by the state they got",
    ),
    (
        "stockade_recorder_repeats_total",
        "orders in an outbox that the ledger already had",
    ),
    (
        "stockade_recorder_errors_total",
        "failed recording passes; each is retried",
    ),
    (
        "stockade_returned_orders_total",
        "ended orders whose returned units are recorded in the ledger",
    ),
    (
        "stockade_transitions_total",
        "transitions of orders, by the new state",
    ),
    (
        "stockade_released_orders_total",
        "orders whose units a reconciler released to their segments",
    ),
    (
        "stockade_transfers_total",
        "planned transfers of units between segments",
    ),
    (
        "stockade_repaired_segments_total",
        "segments that a repair has set to the ledger's counts",
    ),
    (
        "stockade_reconciler_errors_total",
        "failed reconciler rounds; each is retried",
    ),
    (
        "stockade_diverged_reads_total",
        "outbox reads that did not begin with the anchor; must be 0",
    ),
    (
        "stockade_spillovers_finished_total",
        "abandoned spillovers that a reconciler finished",
    ),
    (
        "stockade_spillovers_forgotten_total",
        "settled spillovers that were removed",
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
