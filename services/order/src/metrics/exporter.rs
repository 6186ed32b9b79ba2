//! The recorder of this process, and what it exports.
//!
//! The gauges of single items have a recorder of their own. A shop sells other items each week, and
//! the library keeps each series for the life of the process. So it forgets the series of items
//! that have not been set for a while; all others stay, also those that are set once.

use std::{sync::Arc, time::Duration};

use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};
use metrics_util::{
    MetricKindMask,
    layers::{Router, RouterBuilder},
};

use super::{CATALOGUE, Kind, Metric};

const SECONDS: &[f64] = &[
    0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0,
];
const ORDERS: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0];

/// Label of the metrics of single items.
const ITEM: &str = "item";

/// Time after which the series of an item that is not set any more is forgotten. The reconciler
/// sets all that it shows every ten seconds.
const ITEM_IDLE: Duration = Duration::from_secs(120);

/// Exports the metrics of this process in the text format.
#[derive(Clone)]
pub struct Exporter {
    general: PrometheusHandle,
    by_item: PrometheusHandle,
}

impl Exporter {
    /// Installs the recorder of this process, which can be done once. `None`, and a line in the
    /// log, if there is one already.
    pub(super) fn install() -> Option<Self> {
        let (router, exporter) = recorders(ITEM_IDLE)
            .inspect_err(|error| tracing::warn!(%error, "no metrics"))
            .ok()?;
        metrics::set_global_recorder(router)
            .inspect_err(|error| tracing::warn!(%error, "no metrics"))
            .ok()?;
        Some(exporter)
    }

    /// All metrics. A gauge whose subject has ended, such as a removed webhook, is set to NaN, and
    /// is not shown.
    pub(crate) fn render(&self) -> String {
        let mut text = without_ended(&self.general.render());
        text.push_str(&without_ended(&self.by_item.render()));
        text
    }

    /// Keeps the histograms small.
    pub(super) fn run_upkeep(&self) {
        self.general.run_upkeep();
        self.by_item.run_upkeep();
    }
}

/// A recorder that sends each metric to the one that keeps it, and what exports both of those.
fn recorders(item_idle: Duration) -> Result<(Router, Exporter), BuildError> {
    let general = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_seconds".into()), SECONDS)?
        .set_buckets_for_metric(Matcher::Suffix("_orders".into()), ORDERS)?
        .build_recorder();
    let by_item = PrometheusBuilder::new()
        .idle_timeout(MetricKindMask::GAUGE, Some(item_idle))
        .build_recorder();
    let exporter = Exporter {
        general: general.handle(),
        by_item: by_item.handle(),
    };
    let (by_item, mut router) = (Arc::new(by_item), RouterBuilder::from_recorder(general));
    for metric in CATALOGUE.iter().filter(|metric| is_of_items(metric)) {
        router.add_route(MetricKindMask::GAUGE, metric.name, Arc::clone(&by_item));
    }
    Ok((router.build(), exporter))
}

fn is_of_items(metric: &Metric) -> bool {
    matches!(metric.kind, Kind::Gauge) && metric.labels.contains(&ITEM)
}

fn without_ended(text: &str) -> String {
    let has_value = |line: &&str| line.starts_with('#') || !line.ends_with(" NaN");
    text.split_inclusive('\n')
        .filter(|line| has_value(&line.trim_end()))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{CATALOGUE, ITEM, is_of_items, recorders, without_ended};

    /// A series that has counted stays until its process ends, and a shop has tens of thousands of
    /// items. Gauges of items are forgotten, and few have any (`reconciler/src/item_gauges.rs`).
    #[test]
    fn nothing_but_a_gauge_has_a_series_for_each_item() {
        let labelled = CATALOGUE
            .iter()
            .filter(|metric| metric.labels.contains(&ITEM));
        for metric in labelled {
            assert!(is_of_items(metric), "{}", metric.name);
        }
    }

    #[test]
    fn a_series_that_is_no_number_is_not_shown() {
        let text = "# HELP lag seconds that are NaN\n# TYPE lag gauge\nlag{webhook=\"a\"} NaN\nlag{webhook=\"b\"} 0.5\n\nnext 1\n";
        let shown =
            "# HELP lag seconds that are NaN\n# TYPE lag gauge\nlag{webhook=\"b\"} 0.5\n\nnext 1\n";
        assert_eq!(without_ended(text), shown);
    }

    /// The library looks at a series when it renders it: a series is idle if it has not been set
    /// since the rendering before, and the time has passed.
    #[test]
    fn only_series_of_items_that_are_not_set_any_more_are_forgotten() {
        let (router, exporter) = recorders(Duration::from_nanos(1)).unwrap();
        let set = |item: &'static str| {
            metrics::gauge!("stockade_item_units", "item" => item, "state" => "held").set(1.0);
        };
        metrics::with_local_recorder(&router, || {
            metrics::gauge!("stockade_outbox_entries").set(3.0);
            metrics::counter!("stockade_audits_total").increment(1);
            set("vase");
            set("bowl");
            let text = exporter.render();
            assert!(text.contains("{item=\"vase\",state=\"held\"} 1"), "{text}");
            set("bowl");
            let text = exporter.render();
            assert!(!text.contains("vase"), "{text}");
            for kept in [
                "stockade_item_units{item=\"bowl\",state=\"held\"} 1",
                "stockade_outbox_entries 3",
                "stockade_audits_total 1",
            ] {
                assert!(text.contains(kept), "{kept}: {text}");
            }
        });
    }
}
