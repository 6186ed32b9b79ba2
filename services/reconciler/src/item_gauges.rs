//! Gauges of single items: of those that sell, and of those with which something is wrong.
//!
//! A shop has tens of thousands of items, and each has ten series. A scrape of all of them would be
//! megabytes that tell of items that nothing happens to. So at most [`SHOWN_MAX`] items are shown
//! by name: first those with units that do not add up or with money to return, then those that
//! sold last. What is learned about an item after a start is no sale: otherwise the first audits of
//! all items would take turns in being shown, and each leaves its series behind for minutes. The
//! others are in one sum, whose series have no label `item`. So a sum over all series is that of all
//! items, and an alert on the largest one misses no item.
//!
//! The exporter forgets the series of an item that is not set any more. So all shown ones are set
//! again regularly, whether they have changed or not.

use std::{
    cmp::Reverse,
    collections::{BTreeSet, HashMap, HashSet},
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

/// The gauges that tell of money to return.
const REFUNDS: [ItemGauge; 2] = [ItemGauge::RefundsDue, ItemGauge::FailedRefunds];

/// Values of one item. `None`: not known yet.
type Values = [Option<u64>; SERIES.len()];

/// Those that come first are shown: those in trouble, then those that sold last.
type Rank = Reverse<(bool, Option<Instant>, bool)>;

/// The gauges of all items of one reconciler. An item that does not change costs nothing.
#[derive(Default)]
pub(crate) struct ItemGauges(Mutex<State>);

#[derive(Default)]
struct State {
    items: HashMap<ItemId, Figures>,
    /// Items with a rank.
    ranked: BTreeSet<(Rank, ItemId)>,
    /// Items that are shown by name.
    shown: HashSet<ItemId>,
    /// Sums of the others.
    others: [u128; SERIES.len()],
    /// Whether these are shown.
    has_sums: bool,
    /// Items that may not be live: those that are new, and those that have left.
    unsure: HashSet<ItemId>,
    /// Items with money to return.
    owing: HashSet<ItemId>,
    /// Whether all items with money to return are known, so that the others have none.
    knows_owing: bool,
}

struct Figures {
    values: Values,
    changed: Instant,
    /// When a value that was known became another one.
    moved: Option<Instant>,
    is_shown: bool,
}

impl Figures {
    fn new(now: Instant) -> Self {
        Self {
            values: Values::default(),
            changed: now,
            moved: None,
            is_shown: false,
        }
    }

    fn have(&self, values: &[(ItemGauge, u64)]) -> bool {
        let mut values = values.iter();
        values.all(|(gauge, value)| self.values[*gauge as usize] == Some(*value))
    }

    fn note(&mut self, values: &[(ItemGauge, u64)], now: Instant) {
        for (gauge, value) in values {
            let before = self.values[*gauge as usize].replace(*value);
            if before.is_some_and(|before| before != *value) {
                self.moved = Some(now);
            }
        }
        self.changed = now;
    }

    fn is_above_0(&self, gauges: &[ItemGauge]) -> bool {
        let is_above_0 = |gauge: &ItemGauge| self.values[*gauge as usize].is_some_and(|of| of > 0);
        gauges.iter().any(is_above_0)
    }

    fn is_troubled(&self) -> bool {
        self.is_above_0(&TROUBLES)
    }

    /// `None`: nothing sets it apart from the others.
    fn rank(&self) -> Option<Rank> {
        let is_troubled = self.is_troubled();
        let has_rank = is_troubled || self.moved.is_some() || self.is_shown;
        has_rank.then_some(Reverse((is_troubled, self.moved, self.is_shown)))
    }
}

impl ItemGauges {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes values of an item, and shows them if the item is shown by name, or can be.
    pub(crate) fn set<const N: usize>(&self, id: &ItemId, values: [(ItemGauge, u64); N]) {
        self.state().set(id, &values, Instant::now());
    }

    /// Notes the money that is to be returned: of the items that have some, and of no other.
    pub(crate) fn set_refunds(&self, due: &HashMap<ItemId, u64>, failed: &HashMap<ItemId, u64>) {
        let now = Instant::now();
        let mut state = self.state();
        let owing = due.keys().chain(failed.keys()).cloned();
        let owing: HashSet<_> = owing.chain(state.owing.iter().cloned()).collect();
        for id in owing {
            let values = REFUNDS
                .into_iter()
                .zip([due, failed])
                .map(|(gauge, counts)| (gauge, counts.get(&id).copied().unwrap_or(0)));
            let values: Vec<_> = values.collect();
            state.set(&id, &values, now);
        }
        state.know_owing();
    }

    /// The item is not live any more. It is forgotten, unless something is wrong with it.
    pub(crate) fn leave(&self, id: &ItemId) {
        self.state().unsure.insert(id.clone());
    }

    /// Decides which items are shown by name, and shows them and the sums of the others. Forgets
    /// items that are not live, unless something is wrong with them.
    pub(crate) fn refresh(&self, is_live: impl Fn(&ItemId) -> bool) {
        self.state().refresh(is_live, Instant::now());
    }
}

impl State {
    fn set(&mut self, id: &ItemId, values: &[(ItemGauge, u64)], now: Instant) {
        let known = self.items.get(id);
        if known.is_some_and(|figures| figures.have(values)) {
            return;
        }
        if known.is_none() {
            self.add(id, now);
        }
        let has_room = self.shown.len() < SHOWN_MAX;
        self.change(id, |figures| {
            figures.note(values, now);
            figures.is_shown |= has_room;
        });
        if let Some(figures) = self.items.get(id).filter(|figures| figures.is_shown) {
            publish(id, &figures.values);
        }
    }

    fn add(&mut self, id: &ItemId, now: Instant) {
        let mut figures = Figures::new(now);
        if self.knows_owing {
            owe_nothing(&mut figures);
        }
        self.items.insert(id.clone(), figures);
        self.unsure.insert(id.clone());
    }

    /// Changes the figures of an item, and what follows from them.
    fn change(&mut self, id: &ItemId, change: impl FnOnce(&mut Figures)) {
        if let Some(mut figures) = self.remove(id) {
            change(&mut figures);
            self.insert(id, figures);
        }
    }

    fn remove(&mut self, id: &ItemId) -> Option<Figures> {
        let figures = self.items.remove(id)?;
        if let Some(rank) = figures.rank() {
            self.ranked.remove(&(rank, id.clone()));
        }
        if figures.is_shown {
            self.shown.remove(id);
        } else {
            for (sum, value) in self.others.iter_mut().zip(figures.values) {
                *sum -= u128::from(value.unwrap_or(0));
            }
        }
        self.owing.remove(id);
        Some(figures)
    }

    fn insert(&mut self, id: &ItemId, figures: Figures) {
        if let Some(rank) = figures.rank() {
            self.ranked.insert((rank, id.clone()));
        }
        if figures.is_shown {
            self.shown.insert(id.clone());
        } else {
            for (sum, value) in self.others.iter_mut().zip(figures.values) {
                *sum += u128::from(value.unwrap_or(0));
            }
        }
        if figures.is_above_0(&REFUNDS) {
            self.owing.insert(id.clone());
        }
        self.items.insert(id.clone(), figures);
    }

    /// An item of which nothing else is known has no money to return.
    fn know_owing(&mut self) {
        if !std::mem::replace(&mut self.knows_owing, true) {
            self.items.values_mut().for_each(owe_nothing);
        }
    }

    fn refresh(&mut self, is_live: impl Fn(&ItemId) -> bool, now: Instant) {
        self.forget(is_live, now);
        self.name();
        for id in &self.shown {
            publish(id, &self.items[id].values);
        }
        self.show_sums();
    }

    fn forget(&mut self, is_live: impl Fn(&ItemId) -> bool, now: Instant) {
        for id in std::mem::take(&mut self.unsure) {
            let Some(figures) = self.items.get(&id).filter(|_| !is_live(&id)) else {
                continue;
            };
            let is_recent = now.saturating_duration_since(figures.changed) < KEPT;
            if figures.is_troubled() || is_recent {
                self.unsure.insert(id);
            } else if self.remove(&id).is_some_and(|figures| figures.is_shown) {
                hide(Some(&id));
            }
        }
    }

    /// Decides which items are shown by name.
    fn name(&mut self) {
        let ranked = self.ranked.iter().take(SHOWN_MAX);
        let mut named: HashSet<_> = ranked.map(|(_, id)| id.clone()).collect();
        let room = SHOWN_MAX - named.len();
        if room > 0 && self.items.len() > named.len() {
            let others = self.items.keys().filter(|id| !named.contains(*id));
            let others: Vec<_> = others.take(room).cloned().collect();
            named.extend(others);
        }
        let shown = self.shown.clone();
        for id in shown.difference(&named) {
            self.change(id, |figures| figures.is_shown = false);
            hide(Some(id));
        }
        for id in named.difference(&shown) {
            self.change(id, |figures| figures.is_shown = true);
        }
    }

    fn show_sums(&mut self) {
        let has_sums = self.items.len() > self.shown.len();
        if has_sums {
            #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
            let sums = self.others.map(|sum| sum as f64);
            let places = sums.into_iter().enumerate();
            places.for_each(|(place, sum)| gauge(None, place).set(sum));
        } else if self.has_sums {
            hide(None);
        }
        self.has_sums = has_sums;
    }
}

fn owe_nothing(figures: &mut Figures) {
    for gauge in REFUNDS {
        figures.values[gauge as usize].get_or_insert(0);
    }
}

fn publish(id: &ItemId, values: &Values) {
    for (place, value) in values.iter().enumerate() {
        if let Some(value) = value {
            #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
            gauge(Some(id), place).set(*value as f64);
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
    use std::{
        collections::{HashMap, HashSet},
        time::Instant,
    };

    use domain::ItemId;
    use metrics_exporter_prometheus::PrometheusBuilder;

    use super::{ItemGauge, ItemGauges, KEPT, REFUNDS, SERIES, SHOWN_MAX, State, TROUBLES};

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

    /// What is kept besides the figures, made anew from them.
    fn assert_is_consistent(state: &State) {
        let of = |is_shown: bool| {
            state
                .items
                .iter()
                .filter(move |(_, of)| of.is_shown == is_shown)
        };
        let shown: HashSet<_> = of(true).map(|(id, _)| id.clone()).collect();
        assert_eq!(state.shown, shown);
        assert!(shown.len() <= SHOWN_MAX);
        let mut sums = [0; SERIES.len()];
        for (_, figures) in of(false) {
            for (sum, value) in sums.iter_mut().zip(figures.values) {
                *sum += u128::from(value.unwrap_or(0));
            }
        }
        assert_eq!(state.others, sums);
        let ranked = state
            .items
            .iter()
            .filter_map(|(id, of)| Some((of.rank()?, id.clone())));
        assert_eq!(state.ranked, ranked.collect());
        let owing = state.items.iter().filter(|(_, of)| of.is_above_0(&REFUNDS));
        assert_eq!(state.owing, owing.map(|(id, _)| id.clone()).collect());
    }

    #[test]
    fn sums_and_ranks_follow_the_figures() {
        let (gauges, mut live) = (ItemGauges::default(), HashSet::new());
        let start = Instant::now();
        // Numbers that look like chance, and are the same in each run.
        let mut seed = 1_u64;
        let mut next = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % below
        };
        for round in 0..3_000_u32 {
            let id = id(usize::try_from(next(600)).unwrap());
            let now = start + KEPT / 100 * round;
            match next(8) {
                0 => {
                    live.remove(&id);
                    gauges.leave(&id);
                }
                1 => {
                    let due = HashMap::from([(id.clone(), next(2))]);
                    live.insert(id);
                    gauges.set_refunds(&due, &HashMap::new());
                }
                gauge => {
                    let gauge = [ItemGauge::Available, ItemGauge::Drift][usize::from(gauge == 2)];
                    gauges.state().set(&id, &[(gauge, next(3))], now);
                    live.insert(id);
                }
            }
            if next(20) == 0 {
                gauges.state().refresh(|id| live.contains(id), now);
            }
            if round % 50 == 0 {
                assert_is_consistent(&gauges.state());
            }
        }
        assert_is_consistent(&gauges.state());
    }

    #[test]
    fn an_item_that_has_left_is_forgotten_unless_something_is_wrong_with_it() {
        let gauges = ItemGauges::default();
        let (good, bad, live) = (id(0), id(1), id(2));
        for id in [&good, &bad, &live] {
            gauges.set(id, [(ItemGauge::Available, 1)]);
            gauges.leave(id);
        }
        gauges.set(&bad, [(ItemGauge::RefundsDue, 1)]);
        let known = |now: Instant| {
            let mut state = gauges.state();
            state.refresh(|id| *id == live, now);
            let mut known: Vec<_> = state.items.keys().cloned().collect();
            known.sort();
            known
        };
        let now = Instant::now();
        assert_eq!(known(now), [good.clone(), bad.clone(), live.clone()]);
        assert_eq!(known(now + KEPT), [bad.clone(), live.clone()]);
        gauges.set_refunds(&HashMap::new(), &HashMap::new());
        assert_eq!(known(now + KEPT * 2), [live]);
    }

    #[test]
    fn items_without_money_to_return_say_so_once_it_is_known() {
        let recorder = PrometheusBuilder::new().build_recorder();
        metrics::with_local_recorder(&recorder, || {
            let gauges = ItemGauges::default();
            let live = [id(0), id(1), id(2)];
            gauges.set(&live[0], [(ItemGauge::Available, 1)]);
            let due = HashMap::from([(live[1].clone(), 7)]);
            gauges.set_refunds(&due, &HashMap::new());
            gauges.set(&live[2], [(ItemGauge::Available, 1)]);
            gauges.refresh(|id| live.contains(id));
        });
        let text = recorder.handle().render();
        for (item, due) in [(0, 0), (1, 7), (2, 0)] {
            let line = format!("stockade_refund_due_orders{{item=\"item-{item}\"}} {due}");
            assert!(text.lines().any(|shown| shown == line), "{line}: {text}");
        }
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
