//! Every metric of every role: its name, kind, labels and meaning.
//!
//! The descriptions that a scrape shows, the table in `docs/metrics.md`, and the checks of alerts
//! and dashboards all come from this table. A name ends in its unit: `_seconds`, `_bytes`,
//! `_units`, `_orders`; a counter ends in `_total`.

use metrics::Unit;

use Kind::{Counter, Gauge, Histogram};

/// Kind of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A number that only rises, until its process ends.
    Counter,
    /// A number that rises and falls.
    Gauge,
    /// A distribution, in buckets.
    Histogram,
}

impl Kind {
    /// The word that Prometheus uses.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// One metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metric {
    /// Name, with its unit.
    pub name: &'static str,
    /// Kind.
    pub kind: Kind,
    /// Role that has it: `order`, `recorder`, `reconciler`, or `every`.
    pub role: &'static str,
    /// Names of its labels.
    pub labels: &'static [&'static str],
    /// What it counts or measures.
    pub help: &'static str,
}

impl Metric {
    /// The unit, which the name ends in.
    pub fn unit(&self) -> Unit {
        let name = self.name.trim_end_matches("_total");
        if name.ends_with("_seconds") {
            Unit::Seconds
        } else if name.ends_with("_bytes") {
            Unit::Bytes
        } else {
            Unit::Count
        }
    }

    /// Describes the metric to the recorder of this process.
    pub(super) fn describe(&self) {
        let unit = self.unit();
        match self.kind {
            Kind::Counter => metrics::describe_counter!(self.name, unit, self.help),
            Kind::Gauge => metrics::describe_gauge!(self.name, unit, self.help),
            Kind::Histogram => metrics::describe_histogram!(self.name, unit, self.help),
        }
    }
}

const fn metric(
    name: &'static str,
    kind: Kind,
    role: &'static str,
    labels: &'static [&'static str],
    help: &'static str,
) -> Metric {
    Metric {
        name,
        kind,
        role,
        labels,
        help,
    }
}

/// Every metric, by the question that it answers.
#[rustfmt::skip] // a table: one metric a line
pub const CATALOGUE: &[Metric] = &[
    // Is anything wrong? A help text says what the number must be.
    metric("stockade_drift_units", Gauge, "reconciler", &["item"], "units that violate the conservation invariant; must be 0"),
    metric("stockade_oversold_units", Gauge, "reconciler", &["item"], "units promised beyond the stock, by the last full audit of the item; must be 0"),
    metric("stockade_stopped_segments", Gauge, "recorder", &[], "quarantined segments, which are not recorded; must be 0"),
    metric("stockade_store_writable", Gauge, "every", &["store", "server"], "1 if the store would write an order, by a look once a second: each Redis server (`redis`) and the `ledger`, which has no `server`; 0 if it refuses, or does not answer; must be 1"),
    metric("stockade_refund_due_orders", Gauge, "reconciler", &["item"], "paid orders without units, whose money must be returned, read once a minute"),
    metric("stockade_failed_refunds", Gauge, "reconciler", &["item"], "payments whose refund has failed, so that their money must be returned again, read once a minute"),
    metric("stockade_diverged_reads_total", Counter, "recorder", &[], "reads of an outbox that did not continue what was recorded; must be 0"),

    // Does the ledger follow?
    metric("stockade_recorder_lag_seconds", Gauge, "reconciler", &[], "age of the oldest outbox entry that the ledger does not have; 0 if it has all"),
    metric("stockade_outbox_entries", Gauge, "reconciler", &[], "outbox entries that the ledger does not have"),
    metric("stockade_recorded_orders_total", Counter, "recorder", &["state"], "orders inserted into the ledger: `held` or `rejected`"),
    metric("stockade_recorder_repeats_total", Counter, "recorder", &[], "orders in an outbox that the ledger already had"),
    metric("stockade_returned_orders_total", Counter, "recorder", &[], "ended orders whose returned units the ledger has recorded"),
    metric("stockade_recorder_errors_total", Counter, "recorder", &[], "failed recording passes and sweeps; each is retried"),

    // What does the shop sell?
    metric("stockade_orders_total", Counter, "order", &["outcome"], "orders answered: `held`, `replayed`, `sold_out`, `buyer_limit_reached`, `not_open`, `idempotency_key_reused`, `item_not_found`, `outcome_unknown`"),
    metric("stockade_order_seconds", Histogram, "order", &[], "duration of an order, from the request to the answer"),
    metric("stockade_shed_orders_total", Counter, "order", &[], "orders refused by the sold-out cache, without a call of Redis or SQL"),
    metric("stockade_transitions_total", Counter, "order, reconciler", &["to"], "changes of an order's state, by the new state"),
    metric("stockade_carts_total", Counter, "order, reconciler", &["to"], "changes of a cart's state, by the new state"),
    metric("stockade_item_units", Gauge, "reconciler", &["item", "state"], "units of an item: `allocated` is the sum of `available`, `in_flight`, `held`, `confirmed` and `returning`"),

    // What do clients meet?
    metric("http_server_request_duration_seconds", Histogram, "every", &["http_route", "http_response_status_code"], "duration of a request, by the pattern of its route"),
    metric("stockade_connections", Gauge, "order", &[], "open connections of clients"),
    metric("stockade_connections_refused_total", Counter, "order", &["bound"], "connections closed, or not accepted, at a bound: `total`, `per_peer`, `bodies_per_peer` or `descriptors`"),
    metric("stockade_slow_clients_total", Counter, "order", &["of"], "requests refused because their `body` came too slowly, and connections closed because their `response` was read too slowly"),
    metric("stockade_requests_limited_total", Counter, "order", &["limit"], "requests answered with 429, above the rate of a `buyer` or a `peer`"),
    metric("stockade_console_logins_total", Counter, "order", &["outcome"], "requests to log in to the console: `accepted`, `refused`, or `throttled`, with 429 and without a look at the token"),

    // Do items end?
    metric("stockade_closed_items_total", Counter, "reconciler", &[], "items closed because their window had ended"),
    metric("stockade_archived_items_total", Counter, "reconciler", &[], "items archived"),
    metric("stockade_dropped_items_total", Counter, "reconciler", &[], "archived items that were dropped"),
    metric("stockade_audits_total", Counter, "reconciler", &[], "full audits, each of which reads all orders of an item"),
    metric("stockade_change_audits_total", Counter, "reconciler", &[], "audits that were good after they had read only what had changed of a large item since its last audit"),
    metric("stockade_audit_progress", Gauge, "reconciler", &[], "share of the item's orders that the full audit under way has read, of the one that has more before it; 1 if none is under way"),

    // Do events reach their receivers?
    metric("stockade_webhook_lag_seconds", Gauge, "publisher", &["webhook"], "age of the oldest event that the webhook has not got"),
    metric("stockade_webhook_deliveries_total", Counter, "publisher", &["result"], "attempts to send an event to a webhook: `delivered` or `failed`"),
    metric("stockade_webhooks_disabled_total", Counter, "publisher", &[], "webhooks disabled because their receivers accepted no event for three days, or are gone"),
    metric("stockade_sink_lag_seconds", Gauge, "publisher", &["sink"], "age of the oldest event that the sink `redis`, `nats` or `amqp` has not got"),
    metric("stockade_sink_events_total", Counter, "publisher", &["sink"], "events that the broker of a sink has acknowledged"),
    metric("stockade_sink_errors_total", Counter, "publisher", &[], "failed attempts to publish events to a sink; each is repeated"),
    metric("stockade_events_removed_total", Counter, "publisher", &[], "events removed because they were too old"),
    metric("stockade_publisher_errors_total", Counter, "publisher", &[], "failed reads and leases of the publisher; each is retried"),

    // How do segments and Redis work?
    metric("stockade_batch_orders", Histogram, "order", &["script"], "orders in a batch, by the script that it called"),
    metric("stockade_spillover_retries_total", Counter, "order", &[], "spillover attempts that were repeated after a failure"),
    metric("stockade_spillover_rounds_total", Counter, "order", &[], "further rounds of spillovers, because units came back behind the order"),
    metric("stockade_unreplicated_batches_total", Counter, "order", &[], "batches that too few replicas confirmed in time"),
    metric("stockade_redis_failovers_total", Counter, "every", &[], "changes of the master that Sentinel names"),
    metric("stockade_redis_clients_replaced_total", Counter, "every", &[], "cluster clients that did not respond and were replaced"),
    metric("stockade_redis_memory_used_bytes", Gauge, "reconciler", &["server"], "memory that a Redis server of the stock uses"),
    metric("stockade_redis_memory_max_bytes", Gauge, "reconciler", &["server"], "`maxmemory` of a Redis server of the stock; 0 is no bound"),
    metric("stockade_clock_difference_seconds", Gauge, "reconciler", &[], "the reconciler's clock less Redis's; beyond 5 either way no hold ends"),

    // What does the reconciler do?
    metric("stockade_pending_returns", Gauge, "reconciler", &[], "ended orders whose units have not returned after a second"),
    metric("stockade_released_orders_total", Counter, "reconciler", &[], "orders whose units the reconciler has released to their segments"),
    metric("stockade_transfers_total", Counter, "reconciler", &[], "planned transfers of units between segments"),
    metric("stockade_spillovers_finished_total", Counter, "reconciler", &[], "pending spillovers that the reconciler settled"),
    metric("stockade_spillovers_forgotten_total", Counter, "reconciler", &[], "settled spillovers that the reconciler removed"),
    metric("stockade_forgotten_orders_total", Counter, "reconciler", &[], "orders of other segments that a home had forgotten after a failover; its repair follows"),
    metric("stockade_repaired_segments_total", Counter, "reconciler", &[], "segments that a repair has set to the ledger's counts"),
    metric("stockade_repair_seconds", Histogram, "reconciler", &[], "duration of a repair, from the halt of the segments to the commit"),
    metric("stockade_reconciler_errors_total", Counter, "reconciler", &[], "failed passes of the reconciler; each is retried"),

    // What is this process?
    metric("stockade_build_info", Gauge, "every", &["version"], "1, with the version of the program"),
    metric("process_cpu_seconds_total", Counter, "every", &[], "processor time that the process has used"),
    metric("process_resident_memory_bytes", Gauge, "every", &[], "memory of the process that is in RAM"),
    metric("process_virtual_memory_bytes", Gauge, "every", &[], "address space of the process"),
    metric("process_virtual_memory_max_bytes", Gauge, "every", &[], "limit of the address space; 0 is none"),
    metric("process_open_fds", Gauge, "every", &[], "open file descriptors; each connection is one"),
    metric("process_max_fds", Gauge, "every", &[], "limit of open file descriptors"),
    metric("process_threads", Gauge, "every", &[], "threads of the process"),
    metric("process_start_time_seconds", Gauge, "every", &[], "start of the process, in seconds since 1970"),
];

#[cfg(test)]
mod tests {
    use std::{
        collections::BTreeSet,
        fs,
        path::{Path, PathBuf},
    };

    use super::{CATALOGUE, Kind, Metric};

    fn root() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
    }

    #[test]
    fn names_are_distinct_and_end_in_their_unit() {
        let names: BTreeSet<_> = CATALOGUE.iter().map(|metric| metric.name).collect();
        assert_eq!(names.len(), CATALOGUE.len());
        for metric in CATALOGUE {
            assert_eq!(
                metric.name.ends_with("_total"),
                metric.kind == Kind::Counter,
                "{}",
                metric.name
            );
            assert!(!metric.name.contains("_ms"), "{}", metric.name);
        }
    }

    /// A row of the page.
    fn row(metric: &Metric) -> String {
        let labels: Vec<_> = metric.labels.iter().map(|l| format!("`{l}`")).collect();
        format!(
            "| `{}` | {} | {} | {} | {} |\n",
            metric.name,
            metric.kind.as_str(),
            metric.role,
            labels.join(", "),
            metric.help
        )
    }

    #[test]
    fn the_page_has_the_table_of_the_catalogue() {
        let page = fs::read_to_string(root().join("docs/metrics.md")).unwrap();
        let table: String = CATALOGUE.iter().map(row).collect();
        assert!(
            page.contains(&table),
            "the table in docs/metrics.md should be:\n{table}"
        );
        assert_eq!(
            page.matches("\n| `").count(),
            CATALOGUE.len(),
            "the page has rows that the catalogue lacks"
        );
    }

    /// Names that are none of metrics: the fields of Stripe's metadata.
    const OTHER_NAMES: [&str; 2] = ["stockade_order", "stockade_cart"];

    /// Names of metrics in the sources, as string literals.
    fn literals(text: &str) -> impl Iterator<Item = &str> {
        text.split('"').filter(|literal| {
            (literal.starts_with("stockade_") || literal.starts_with("http_server_"))
                && literal
                    .bytes()
                    .all(|byte| byte == b'_' || byte.is_ascii_lowercase())
                && !OTHER_NAMES.contains(literal)
        })
    }

    fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && !path.ends_with("tests") && !path.ends_with("target") {
                sources(&path, found);
            } else if path.extension().is_some_and(|ending| ending == "rs")
                && !path.ends_with("metrics/catalogue.rs")
            {
                found.push(path);
            }
        }
    }

    #[test]
    fn the_catalogue_has_exactly_the_metrics_of_the_sources() {
        let mut files = Vec::new();
        for folder in ["crates", "services"] {
            sources(&root().join(folder), &mut files);
        }
        let mut used = BTreeSet::new();
        for file in files {
            let text = fs::read_to_string(file).unwrap();
            used.extend(literals(&text).map(str::to_owned));
        }
        let own = CATALOGUE
            .iter()
            .filter(|metric| !metric.name.starts_with("process_"));
        let catalogued: BTreeSet<_> = own.map(|metric| metric.name.to_owned()).collect();
        assert_eq!(used, catalogued);
    }
}
