//! Gauges of single items: of those that sell, and of those with which something is wrong.
//!
//! A shop has tens of thousands of items, and each has ten series. A scrape of all of them would be
//! megabytes that tell of items that nothing happens to. So at most [`SHOWN_MAX`] items are shown
//! by name: first those with units that do not add up or with money to return, then those that
//! sold last. What is learned about an item after a start is no sale: otherwise the first audits of
//! all items would take turns in being shown, and each leaves its series behind for minutes. The others are in one sum, whose series have no label `item`. So a sum over all
//! series is that of all items, and an alert on the largest one misses no item.
//!
//! The exporter forgets the series of an item that is not set any more. So all shown ones are set
//! again regularly, whether they have changed or not.

use std::{
    cmp::Reverse,
    collections::{HashMap, HashSet},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use domain::ItemId;

/// Number of items that are shown by name. A scrape costs some ten microseconds for each of their
/// series.
const SHOWN_MAX: usize = 200;

/// Time for which the gauges of an item that is not live any more are kept after their last change.
const KEPT: Duration = Duration::from_secs(600);

/// Gauges of an item, as places in the table of series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ItemGauge {
    Allocated,
    Available,
    InFlight,
    Held,
    Confirmed,
    Returning,
    Drift,
    Oversold,
    RefundsDue,
    FailedRefunds,
}

/// Name of each gauge, and the state of the units that it counts, in the order of [`ItemGauge`].
const SERIES: [(&str, Option<&str>); 10] = [
    ("stockade_item_units", Some("allocated")),
    ("stockade_item_units", Some("available")),
    ("stockade_item_units", Some("in_flight")),
    ("stockade_item_units", Some("held")),
    ("stockade_item_units", Some("confirmed")),
    ("stockade_item_units", Some("returning")),
    ("stockade_drift_units", None),
    ("stockade_oversold_units", None),
    ("stockade_refund_due_orders", None),
    ("stockade_failed_refunds", None),
];

/// The gauges of which each value above 0 is for an operator to look at.
const TROUBLES: [ItemGauge; 4] = [
    ItemGauge::Drift,
    ItemGauge::Oversold,
    ItemGauge::RefundsDue,
    ItemGauge::FailedRefunds,
];

/// Values of one item. `None`: not known yet.
type Values = [Option<u64>; SERIES.len()];

/// The gauges of all items of one reconciler.
#[derive(Default)]
pub(crate) struct ItemGauges(Mutex<State>);

#[derive(Default)]
struct State {
    items: HashMap<ItemId, Figures>,
    /// Number of items that are shown by name.
    shown: usize,
    /// Whether the sums of the others are shown.
    has_sums: bool,
}

struct Figures {
    values: Values,
    changed: Instant,
    /// When a value that was known became another one.
    moved: Option<Instant>,
    is_shown: bool,
}

impl Figures {
    fn is_troubled(&self) -> bool {
        let is_above_0 = |gauge: &ItemGauge| self.values[*gauge as usize].is_some_and(|of| of > 0);
        TROUBLES.iter().any(is_above_0)
    }

    /// Those that come first are shown.
    fn rank(&self) -> Reverse<(bool, Option<Instant>, bool)> {
        Reverse((self.is_troubled(), self.moved, self.is_shown))
    }
}

impl ItemGauges {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes values of an item, and shows them if the item is shown by name, or can be.
    pub(crate) fn set(&self, id: &ItemId, values: impl IntoIterator<Item = (ItemGauge, u64)>) {
        let now = Instant::now();
        let mut state = self.state();
        let has_room = state.shown < SHOWN_MAX;
        let figures = state.items.entry(id.clone()).or_insert_with(|| Figures {
            values: Values::default(),
            changed: now,
            moved: None,
            is_shown: false,
        });
        let before = figures.values;
        for (gauge, value) in values {
            figures.values[gauge as usize] = Some(value);
        }
        if figures.values == before {
            return;
        }
        figures.changed = now;
        let mut known = before.iter().zip(figures.values);
        if known.any(|(before, after)| before.is_some() && *before != after) {
            figures.moved = Some(now);
        }
        let appears = has_room && !figures.is_shown;
        figures.is_shown |= appears;
        if figures.is_shown {
            publish(Some(id), &figures.values);
        }
        state.shown += usize::from(appears);
    }

    /// Decides which items are shown by name, and shows them and the sums of the others. Forgets
    /// items that are not live, unless something is wrong with them.
    pub(crate) fn refresh(&self, is_live: impl Fn(&ItemId) -> bool) {
        let now = Instant::now();
        let mut state = self.state();
        state.forget(is_live, now);
        let named = state.named();
        state.show(&named);
        state.show_sums();
    }
}

impl State {
    fn forget(&mut self, is_live: impl Fn(&ItemId) -> bool, now: Instant) {
        self.items.retain(|id, figures| {
            let is_recent = now.saturating_duration_since(figures.changed) < KEPT;
            let is_kept = is_live(id) || figures.is_troubled() || is_recent;
            if !is_kept && figures.is_shown {
                hide(Some(id));
            }
            is_kept
        });
    }

    /// The items to show by name.
    fn named(&self) -> HashSet<ItemId> {
        let mut ranked: Vec<_> = self.items.iter().collect();
        if ranked.len() > SHOWN_MAX {
            ranked.select_nth_unstable_by_key(SHOWN_MAX - 1, |(_, figures)| figures.rank());
            ranked.truncate(SHOWN_MAX);
        }
        ranked.into_iter().map(|(id, _)| id.clone()).collect()
    }

    fn show(&mut self, named: &HashSet<ItemId>) {
        for (id, figures) in &mut self.items {
            let is_named = named.contains(id);
            if is_named {
                publish(Some(id), &figures.values);
            } else if figures.is_shown {
                hide(Some(id));
            }
            figures.is_shown = is_named;
        }
        self.shown = named.len();
    }

    fn show_sums(&mut self) {
        let mut others = self.items.values().filter(|of| !of.is_shown).peekable();
        let has_sums = others.peek().is_some();
        if has_sums {
            publish(None, &sums(others));
        } else if self.has_sums {
            hide(None);
        }
        self.has_sums = has_sums;
    }
}

fn sums<'a>(items: impl Iterator<Item = &'a Figures>) -> Values {
    items.fold([Some(0); SERIES.len()], |mut sums, figures| {
        for (sum, value) in sums.iter_mut().zip(figures.values) {
            *sum = sum.map(|sum: u64| sum.saturating_add(value.unwrap_or(0)));
        }
        sums
    })
}

fn publish(id: Option<&ItemId>, values: &Values) {
    for (place, value) in values.iter().enumerate() {
        if let Some(value) = value {
            #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
            gauge(id, place).set(*value as f64);
        }
    }
}

/// A gauge that is no number is not shown.
fn hide(id: Option<&ItemId>) {
    for place in 0..SERIES.len() {
        gauge(id, place).set(f64::NAN);
    }
}

fn gauge(id: Option<&ItemId>, place: usize) -> metrics::Gauge {
    let (name, state) = SERIES[place];
    let item = id.map(|id| metrics::Label::new("item", id.to_string()));
    let state = state.map(|state| metrics::Label::new("state", state));
    let labels: Vec<_> = item.into_iter().chain(state).collect();
    metrics::gauge!(name, labels)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use domain::ItemId;
    use metrics_exporter_prometheus::PrometheusBuilder;

    use super::{ItemGauge, ItemGauges, SERIES, SHOWN_MAX, TROUBLES};

    /// More items than are shown.
    const ITEMS: usize = 20_000;

    fn id(number: usize) -> ItemId {
        ItemId::new(format!("item-{number}")).unwrap()
    }

    /// The series as they are exported, those that are no number left out.
    struct Shown(Vec<String>);

    impl Shown {
        fn after(act: impl FnOnce()) -> Self {
            let recorder = PrometheusBuilder::new().build_recorder();
            metrics::with_local_recorder(&recorder, act);
            let lines = recorder.handle().render();
            let series = lines.lines().filter(|line| !line.starts_with('#'));
            Self(
                series
                    .filter(|line| !line.is_empty() && !line.ends_with(" NaN"))
                    .map(str::to_owned)
                    .collect(),
            )
        }

        fn has(&self, line: &str) -> bool {
            self.0.iter().any(|shown| shown == line)
        }
    }

    fn fill(gauges: &ItemGauges) -> HashSet<ItemId> {
        for number in 0..ITEMS {
            gauges.set(
                &id(number),
                [(ItemGauge::Available, 2), (ItemGauge::Drift, 0)],
            );
        }
        (0..ITEMS).map(id).collect()
    }

    #[test]
    fn the_places_are_those_of_the_table() {
        assert_eq!(ItemGauge::FailedRefunds as usize, SERIES.len() - 1);
        for gauge in TROUBLES {
            assert_eq!(SERIES[gauge as usize].1, None);
        }
        assert_eq!(SERIES[ItemGauge::Held as usize].1, Some("held"));
    }

    #[test]
    fn twenty_thousand_items_make_the_series_of_a_few_and_a_sum() {
        let shown = Shown::after(|| {
            let gauges = ItemGauges::default();
            let live = fill(&gauges);
            gauges.refresh(|id| live.contains(id));
        });
        // Two gauges of each item that is shown were set. A sum is 0 where no item has a value.
        assert_eq!(shown.0.len(), SHOWN_MAX * 2 + SERIES.len());
        let others = (ITEMS - SHOWN_MAX) * 2;
        assert!(shown.has(&format!(
            "stockade_item_units{{state=\"available\"}} {others}"
        )));
        let bytes: usize = shown.0.iter().map(|line| line.len() + 1).sum();
        assert!(bytes < 1 << 20, "{bytes}");
    }

    #[test]
    fn an_item_that_sells_or_is_in_trouble_is_shown_by_name() {
        let shown = Shown::after(|| {
            let gauges = ItemGauges::default();
            let live = fill(&gauges);
            gauges.refresh(|id| live.contains(id));
            let (troubled, selling) = (id(3), id(4));
            gauges.set(&troubled, [(ItemGauge::Drift, 5)]);
            gauges.set(&selling, [(ItemGauge::Available, 1)]);
            // Others sell later, and those in trouble stay in view.
            for number in ITEMS - SHOWN_MAX + 2..ITEMS {
                gauges.set(&id(number), [(ItemGauge::Available, 1)]);
            }
            gauges.refresh(|id| live.contains(id));
        });
        assert!(shown.has("stockade_drift_units{item=\"item-3\"} 5"));
        assert!(shown.has("stockade_item_units{item=\"item-4\",state=\"available\"} 1"));
        assert!(shown.has("stockade_drift_units 0"), "it is in no sum");
        assert_eq!(shown.0.len(), SHOWN_MAX * 2 + SERIES.len());
    }

    #[test]
    fn what_is_learned_of_items_shows_no_others() {
        let recorder = PrometheusBuilder::new().build_recorder();
        metrics::with_local_recorder(&recorder, || {
            let gauges = ItemGauges::default();
            let live = fill(&gauges);
            for number in 0..ITEMS {
                gauges.set(&id(number), [(ItemGauge::Held, 0)]);
                if number % 1000 == 0 {
                    gauges.refresh(|id| live.contains(id));
                }
            }
            gauges.refresh(|id| live.contains(id));
        });
        let hidden = recorder.handle().render();
        let hidden = hidden.lines().filter(|line| line.ends_with(" NaN"));
        assert_eq!(hidden.count(), 0);
    }

    #[test]
    fn few_items_are_all_shown_and_make_no_sum() {
        let shown = Shown::after(|| {
            let gauges = ItemGauges::default();
            gauges.set(&id(0), [(ItemGauge::Held, 1)]);
            gauges.refresh(|live| *live == id(0));
            gauges.set(&id(0), [(ItemGauge::Held, 2)]);
        });
        assert_eq!(
            shown.0,
            ["stockade_item_units{item=\"item-0\",state=\"held\"} 2"]
        );
    }
}
