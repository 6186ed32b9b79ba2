//! Compares what subscribers have got with `GET /v1/events`, and these events with the ledger's
//! tables.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use anyhow::Result;
use client::CartState;
use serde_json::Value;
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use crate::{
    env::TestEnv,
    history::SaleItem,
    ledger_view::{CartRow, OrderRow},
    subscribers::{DeliveryCounts, EventCounts, Subscription, id_of, kind_of},
    verdict::Verdict,
};

/// Limit for the last events to be readable, and to arrive.
const DELIVERY_TIMEOUT: Duration = Duration::from_secs(120);
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Findings of one kind that are described. The numbers count all.
const FINDINGS_MAX: usize = 3;
/// What an order or a cart comes to once at most. Two events of it are one under two ids.
const ONCE: [&str; 2] = ["order.confirmed", "cart.confirmed"];

/// What the ledger has of the round's items.
#[derive(Default)]
struct Rows {
    orders: HashMap<Uuid, OrderRow>,
    carts: HashMap<Uuid, CartRow>,
}

/// Waits until the events of the round have arrived, and adds everything that is wrong with them.
pub async fn judge_events(env: &mut TestEnv, items: &[Arc<SaleItem>], verdict: &mut Verdict) {
    match rows(env, items).await {
        Ok(rows) => judge_log(env, &rows, verdict).await,
        Err(error) => verdict
            .findings
            .push(format!("events: the ledger could not be read: {error:#}")),
    }
    let api = env.api.clone();
    let caught_up = env.subscribers.catch_up(&api, DELIVERY_TIMEOUT).await;
    // What is lacking now is lost. Later events may still be on their way.
    let until = env.subscribers.log.events.len();
    let subscriptions = env.subscribers.subscriptions();
    // What has arrived can be read by now.
    if let Err(error) = env.subscribers.log.read(&api).await {
        let finding = format!("the events could not be read: {error:#}");
        verdict.findings.push(finding);
    }
    verdict.findings.extend(caught_up.err());
    let events = &env.subscribers.log.events;
    let mut found = judge(events, until, &subscriptions);
    let counts = EventCounts::of(&events[..until], &subscriptions);
    let judged = &mut env.subscribers.judged;
    // A subscriber keeps what it got in earlier rounds.
    for findings in [&mut found.lost, &mut found.reordered, &mut found.altered] {
        findings.retain(|finding| judged.findings.insert(finding.clone()));
    }
    counts.clone().since(&judged.counts).add_to(verdict);
    judged.counts = counts;
    found.add_to(verdict);
}

impl EventCounts {
    fn of(log: &[Value], subscriptions: &[Subscription]) -> Self {
        let known: HashSet<_> = log.iter().map(id_of).collect();
        let counts = |subscription: &Subscription| {
            let sent = log.iter().skip(subscription.first);
            let sent = sent.filter(|event| subscription.wants(event)).count();
            let (deliveries, mut before) = (&subscription.inbox.deliveries, HashSet::new());
            let ids = deliveries.iter().map(|delivery| &*delivery.id);
            let doubled = ids.filter(|id| known.contains(id) && !before.insert(*id));
            DeliveryCounts {
                sent,
                deliveries: deliveries.len(),
                doubled: doubled.count(),
            }
        };
        let subscribers = subscriptions.iter();
        let subscribers = subscribers.map(|one| (one.name.clone(), counts(one)));
        Self {
            events: log.len(),
            subscribers: subscribers.collect(),
        }
    }

    /// What has come since these counts.
    fn since(mut self, before: &Self) -> Self {
        self.events -= before.events;
        for (name, counts) in &mut self.subscribers {
            let before = before.subscribers.get(name).copied().unwrap_or_default();
            counts.sent -= before.sent;
            counts.deliveries -= before.deliveries;
            // A repeat of an event that was not readable then counts now.
            counts.doubled -= before.doubled;
        }
        self
    }

    /// Adds the numbers. A round in which a subscriber was to get nothing proves nothing about it.
    fn add_to(&self, verdict: &mut Verdict) {
        verdict.events += self.events;
        for (name, counts) in &self.subscribers {
            verdict.events_sent += counts.sent;
            verdict.deliveries += counts.deliveries;
            verdict.events_doubled += counts.doubled;
            if counts.sent == 0 {
                let finding = format!("too little seen: no event was sent to {name}");
                verdict.findings.push(finding);
            }
        }
        if self.subscribers.is_empty() {
            let finding = "too little seen: there is nothing that gets events";
            verdict.findings.push(finding.into());
        }
    }
}

/// What is wrong with events.
#[derive(Debug, Default)]
struct Found {
    lost: Vec<String>,
    reordered: Vec<String>,
    altered: Vec<String>,
}

impl Found {
    fn add_to(self, verdict: &mut Verdict) {
        verdict.events_lost += self.lost.len();
        verdict.events_reordered += self.reordered.len();
        verdict.events_altered += self.altered.len();
        for findings in [self.lost, self.reordered, self.altered] {
            verdict
                .findings
                .extend(findings.into_iter().take(FINDINGS_MAX));
        }
    }
}

async fn rows(env: &TestEnv, items: &[Arc<SaleItem>]) -> Result<Rows> {
    let mut rows = Rows::default();
    for item in items {
        rows.orders.extend(env.ledger_view.orders(&item.id).await?);
        rows.carts.extend(env.ledger_view.carts(&item.id).await?);
    }
    Ok(rows)
}

/// Every state of the ledger has an event. A transaction that was open may have delayed the last
/// ones.
async fn judge_log(env: &mut TestEnv, rows: &Rows, verdict: &mut Verdict) {
    let deadline = Instant::now() + DELIVERY_TIMEOUT;
    loop {
        let api = env.api.clone();
        let read = env.subscribers.log.read(&api).await;
        let missing = missing_states(&env.subscribers.log.events, rows);
        if missing.is_empty() || Instant::now() > deadline {
            verdict.events_lost += missing.len();
            let findings = missing.into_iter().take(FINDINGS_MAX);
            verdict.findings.extend(findings);
            return;
        }
        drop(read);
        sleep(POLL_INTERVAL).await;
    }
}

/// Orders and carts whose state in the ledger is not the one of their last event. Held ones may end
/// at any time.
fn missing_states(log: &[Value], rows: &Rows) -> Vec<String> {
    let mut states = HashMap::<Uuid, Vec<(&str, &str)>>::new();
    for event in log {
        let Some((about, state)) = kind_of(event).split_once('.') else {
            continue;
        };
        let data = &event["data"];
        let ids: Vec<_> = match (about, state) {
            (_, "extended") => continue,
            ("order", _) => data["orders"].as_array().into_iter().flatten().collect(),
            ("cart", _) => vec![&data["cart"]],
            _ => continue,
        };
        let ids = ids
            .iter()
            .filter_map(|id| id.as_str()?.parse::<Uuid>().ok());
        for id in ids {
            let known: &mut Vec<_> = states.entry(id).or_default();
            known.push((state, id_of(event)));
        }
    }
    let orders = rows.orders.iter();
    let orders = orders.map(|(id, row)| ("order", *id, row.state.as_str().to_owned()));
    let carts = rows
        .carts
        .iter()
        .filter(|(_, cart)| cart.state != CartState::Placing);
    let carts = carts.map(|(id, row)| ("cart", *id, word_of(row.state)));
    let is_missing = |(about, id, state): (&str, Uuid, String)| {
        let known = states.get(&id).map(Vec::as_slice).unwrap_or_default();
        let last = known.last().map(|(state, _)| *state);
        let is_known = last == Some(&*state) || (state == "held" && last.is_some());
        (!is_known).then(|| format!("{about} {id} is {state}, and its events tell {known:?}"))
    };
    orders.chain(carts).filter_map(is_missing).collect()
}

fn word_of(state: CartState) -> String {
    let word = serde_json::to_value(state).unwrap_or_default();
    word.as_str().unwrap_or_default().to_owned()
}

/// Compares what has arrived with the events. Those from `until` on may still be on their way.
fn judge(log: &[Value], until: usize, subscriptions: &[Subscription]) -> Found {
    let mut found = Found::default();
    let positions: HashMap<_, _> = (0..)
        .zip(log)
        .map(|(at, event)| (id_of(event), at))
        .collect();
    if positions.len() < log.len() {
        found.altered.push("events have the same id".into());
    }
    found.altered.extend(under_two_ids(log));
    for subscription in subscriptions {
        let log = Log {
            log,
            positions: &positions,
        };
        let named = |finding| format!("{}: {finding}", subscription.name);
        let lost = log.lost(until, subscription).into_iter();
        found.lost.extend(lost.map(named));
        let reordered = log.reordered(subscription).into_iter();
        found.reordered.extend(reordered.map(named));
        let altered = log.altered(subscription).into_iter();
        found.altered.extend(altered.map(named));
    }
    found
}

/// Events that tell what an earlier event with another id has told.
fn under_two_ids(log: &[Value]) -> Vec<String> {
    let mut first = HashMap::<(&str, &str), &str>::new();
    let mut found = Vec::new();
    for event in log.iter().filter(|event| ONCE.contains(&kind_of(event))) {
        let data = &event["data"];
        let about = data["cart"].as_str().filter(|_| kind_of(event) == ONCE[1]);
        let about = about.or_else(|| data["orders"][0].as_str());
        let about = (kind_of(event), about.unwrap_or_default());
        match first.insert(about, id_of(event)) {
            Some(before) if before != id_of(event) => {
                found.push(format!("event {event} repeats {before} under another id"));
            }
            _ => {}
        }
    }
    found
}

/// The events, and their positions by id.
#[derive(Clone, Copy)]
struct Log<'a> {
    log: &'a [Value],
    positions: &'a HashMap<&'a str, usize>,
}

impl Log<'_> {
    /// Events that the subscriber was to get, and has not accepted.
    fn lost(self, until: usize, subscription: &Subscription) -> Vec<String> {
        let events = self.log[..until].iter().skip(subscription.first);
        events
            .filter(|event| subscription.wants(event))
            .filter(|event| !subscription.inbox.has(id_of(event)))
            .map(|event| format!("event {event} is lost"))
            .collect()
    }

    /// Events that came, or were accepted, for the first time after a later one of the same item.
    fn reordered(self, subscription: &Subscription) -> Vec<String> {
        let inbox = &subscription.inbox;
        let mut known = HashSet::new();
        let arrived = inbox.deliveries.iter().map(|delivery| &*delivery.id);
        let arrived = arrived.filter(|id| known.insert(*id));
        let mut reordered = self.overtaken(arrived);
        reordered.extend(self.overtaken(inbox.accepted.iter().map(String::as_str)));
        reordered
    }

    fn overtaken<'a>(self, ids: impl Iterator<Item = &'a str>) -> Vec<String> {
        let mut last = BTreeMap::<&str, usize>::new();
        let mut overtaken = Vec::new();
        for position in ids.filter_map(|id| self.positions.get(id).copied()) {
            let event = &self.log[position];
            let subject = event["subject"].as_str().unwrap_or_default();
            match last.insert(subject, position) {
                Some(before) if before > position => {
                    overtaken.push(format!("event {event} came after {}", self.log[before]))
                }
                _ => {}
            }
        }
        overtaken
    }

    /// Messages that are wrong in themselves, that are of no event, of one that the subscriber does
    /// not want, or that differ from the event.
    fn altered(self, subscription: &Subscription) -> Vec<String> {
        let wrong = |delivery: &crate::subscribers::Delivery| {
            let id = &delivery.id;
            if let Some(defect) = &delivery.defect {
                return Some(format!("message {id:?}: {defect}"));
            }
            let Some(position) = self.positions.get(&**id) else {
                return Some(format!("message {id} is of no event: {}", delivery.event));
            };
            let event = &self.log[*position];
            if *event != delivery.event {
                return Some(format!("event {event} came as {}", delivery.event));
            }
            let is_unwanted = !subscription.wants(event) || *position < subscription.first;
            is_unwanted.then(|| format!("event {event} was not to come"))
        };
        let deliveries = subscription.inbox.deliveries.iter();
        deliveries.filter_map(wrong).collect()
    }
}

#[cfg(test)]
mod tests {
    use client::{CartState, OrderState};
    use serde_json::{Value, json};
    use uuid::Uuid;

    use super::{Rows, judge, missing_states};
    use crate::{
        ledger_view::{CartRow, OrderRow},
        subscribers::{Delivery, DeliveryCounts, EventCounts, Inbox, Subscription},
        verdict::Verdict,
    };

    fn event(number: usize, item: &str, kind: &str) -> Value {
        json!({
            "id": format!("7-{number}"), "subject": item, "type": format!("stockade.{kind}"),
            "data": { "orders": [Uuid::from_u128(number as u128)] },
        })
    }

    fn log() -> Vec<Value> {
        vec![
            event(1, "vase", "order.held"),
            event(2, "bowl", "order.held"),
            event(3, "vase", "order.confirmed"),
            event(4, "vase", "order.expired"),
        ]
    }

    fn delivery(event: &Value) -> Delivery {
        Delivery::new(event["id"].as_str().unwrap(), event.to_string().as_bytes())
    }

    fn subscription(deliveries: impl IntoIterator<Item = (Delivery, bool)>) -> Subscription {
        let mut inbox = Inbox::default();
        for (delivery, accepted) in deliveries {
            inbox.add(delivery, accepted);
        }
        Subscription {
            name: "receiver".into(),
            kinds: Vec::new(),
            first: 0,
            inbox,
        }
    }

    /// Deliveries of the events with these numbers, all accepted.
    fn of(numbers: &[usize]) -> Subscription {
        let log = log();
        let deliveries = numbers.iter().map(|number| delivery(&log[number - 1]));
        subscription(deliveries.map(|delivery| (delivery, true)))
    }

    /// Numbers of lost, reordered and altered events, each with a finding.
    fn judged(subscription: Subscription) -> (usize, usize, usize) {
        let mut verdict = Verdict::default();
        judge(&log(), log().len(), &[subscription]).add_to(&mut verdict);
        let found = (
            verdict.events_lost,
            verdict.events_reordered,
            verdict.events_altered,
        );
        assert_eq!(verdict.is_good(), found == (0, 0, 0), "{verdict:?}");
        assert_eq!(
            verdict.findings.is_empty(),
            verdict.is_good(),
            "{verdict:?}"
        );
        found
    }

    #[test]
    fn all_events_in_the_order_of_each_item_are_good_with_any_repeats() {
        assert_eq!(judged(of(&[1, 2, 3, 4])), (0, 0, 0));
        assert_eq!(
            judged(of(&[2, 1, 3, 4])),
            (0, 0, 0),
            "items are independent"
        );
        assert_eq!(judged(of(&[1, 2, 3, 1, 3, 4, 2, 4])), (0, 0, 0), "repeats");
    }

    fn counted(subscription: Subscription) -> DeliveryCounts {
        let counts = EventCounts::of(&log(), &[subscription]);
        assert_eq!(counts.events, log().len());
        counts.subscribers["receiver"]
    }

    #[test]
    fn a_doubled_event_is_counted_and_allowed() {
        let [once, doubled] = [of(&[1, 2, 3, 4]), of(&[1, 2, 3, 1, 3, 4, 2, 4, 4])];
        let counts = |deliveries, doubled| DeliveryCounts {
            sent: 4,
            deliveries,
            doubled,
        };
        assert_eq!(counted(once), counts(4, 0));
        assert_eq!(counted(doubled.clone()), counts(9, 5));
        assert_eq!(judged(doubled), (0, 0, 0));
        // One that was refused and came again is a repeat as well.
        let log = log();
        let refused = [(delivery(&log[0]), false), (delivery(&log[0]), true)];
        assert_eq!(counted(subscription(refused)), counts(2, 1));
        let unknown = delivery(&event(9, "vase", "order.held"));
        let unknown = [(unknown.clone(), true), (unknown, true)];
        assert_eq!(counted(subscription(unknown)), counts(2, 0), "of no event");
    }

    #[test]
    fn an_event_that_is_doubled_under_another_id_is_found() {
        let again = |kind: &str, data: &Value| {
            let (mut log, mut other) = (log(), event(5, "vase", kind));
            other["data"] = data.clone();
            log.push(other);
            let mut verdict = Verdict::default();
            judge(&log, log.len(), &[]).add_to(&mut verdict);
            verdict.events_altered
        };
        let of_third = log()[2]["data"].clone();
        assert_eq!(again("order.confirmed", &of_third), 1);
        assert_eq!(again("order.confirmed", &json!({ "orders": ["other"] })), 0);
        assert_eq!(again("order.held", &of_third), 0, "it may be held again");
        let cart = json!({ "cart": "basket", "orders": [of_third["orders"][0]] });
        assert_eq!(
            again("cart.confirmed", &cart),
            0,
            "its line has an event too"
        );
        let mut carts = [6, 7].map(|number| event(number, "basket", "cart.confirmed"));
        for event in &mut carts {
            event["data"] = cart.clone();
        }
        let mut verdict = Verdict::default();
        judge(&carts, 2, &[]).add_to(&mut verdict);
        assert_eq!(verdict.events_altered, 1);
    }

    #[test]
    fn a_round_with_too_few_events_is_not_good() {
        let counts = EventCounts::of(&log(), &[of(&[1, 2, 3, 4])]);
        let judged = |counts: &EventCounts| {
            let mut verdict = Verdict::default();
            counts.add_to(&mut verdict);
            verdict
        };
        let verdict = judged(&counts.clone().since(&EventCounts::default()));
        assert!(verdict.is_good(), "{verdict:?}");
        assert_eq!((verdict.events, verdict.events_sent), (4, 4));
        assert_eq!((verdict.deliveries, verdict.events_doubled), (4, 0));
        // The round after it has no new event.
        let none = judged(&counts.clone().since(&counts));
        assert_eq!((none.events, none.events_sent, none.deliveries), (0, 0, 0));
        let of_no_kind = Subscription {
            kinds: vec!["cart.confirmed".into()],
            ..of(&[])
        };
        let nothing_for_it = judged(&EventCounts::of(&log(), &[of_no_kind]));
        let no_subscriber = judged(&EventCounts::of(&log(), &[]));
        for verdict in [none, nothing_for_it, no_subscriber] {
            assert!(!verdict.is_good(), "{verdict:?}");
            assert!(verdict.findings[0].starts_with("too little seen: "));
        }
    }

    #[test]
    fn a_lost_event_is_found() {
        assert_eq!(judged(of(&[1, 2, 4])), (1, 0, 0));
        assert_eq!(judged(of(&[])), (4, 0, 0));
        let log = log();
        let refused = log
            .iter()
            .map(|event| (delivery(event), event["id"] != "7-2"));
        assert_eq!(judged(subscription(refused)), (1, 0, 0), "not accepted");
    }

    #[test]
    fn a_reordered_event_is_found() {
        assert_eq!(
            judged(of(&[1, 2, 4, 3])),
            (0, 2, 0),
            "came and was accepted late"
        );
        let log = log();
        let [held, other, confirmed, expired] = [0, 1, 2, 3].map(|at| delivery(&log[at]));
        // The third was refused, and the fourth did not wait for it.
        let overtaken = subscription([
            (held, true),
            (other, true),
            (confirmed.clone(), false),
            (expired, true),
            (confirmed, true),
        ]);
        assert_eq!(judged(overtaken), (0, 1, 0));
    }

    #[test]
    fn an_altered_event_is_found() {
        let log = log();
        let changes: [fn(&mut Delivery); 4] = [
            |delivery| delivery.event["data"]["orders"] = json!([]),
            |delivery| delivery.event["type"] = json!("stockade.order.cancelled"),
            |delivery| delivery.defect = Some("no signature matches".into()),
            |delivery| *delivery = Delivery::new("7-3", b"{\"id\":\"7-4\"}"),
        ];
        for change in changes {
            let mut changed = delivery(&log[2]);
            change(&mut changed);
            let all = log.iter().map(delivery).chain([changed]);
            let all = all.map(|delivery| (delivery, true));
            assert_eq!(judged(subscription(all)), (0, 0, 1));
        }
        let unknown = delivery(&event(9, "vase", "order.held"));
        let all = log.iter().map(delivery).chain([unknown]);
        let all = all.map(|delivery| (delivery, true));
        assert_eq!(judged(subscription(all)), (0, 0, 1), "of no event");
    }

    #[test]
    fn a_webhook_gets_the_kinds_that_it_wants_from_its_beginning_on() {
        let of_kind = |numbers| Subscription {
            kinds: vec!["order.held".into()],
            first: 1,
            ..of(numbers)
        };
        assert_eq!(judged(of_kind(&[2])), (0, 0, 0));
        assert_eq!(judged(of_kind(&[])), (1, 0, 0));
        assert_eq!(judged(of_kind(&[2, 3])), (0, 0, 1), "another kind");
        assert_eq!(judged(of_kind(&[1, 2])), (0, 0, 1), "before it was created");
    }

    #[test]
    fn a_state_without_its_event_is_found() {
        let row = |state| OrderRow {
            buyer: "ann".into(),
            quantity: 1,
            state,
            payment: None,
        };
        let cart = |state| CartRow {
            buyer: "ann".into(),
            state,
            payment: None,
            lines: Vec::new(),
        };
        let missing = |number: u128, state| {
            let orders = [(Uuid::from_u128(number), row(state))].into();
            let rows = Rows {
                orders,
                ..Rows::default()
            };
            missing_states(&log(), &rows).len()
        };
        assert_eq!(missing(3, OrderState::Confirmed), 0);
        assert_eq!(missing(4, OrderState::Held), 0, "it has expired since");
        assert_eq!(missing(3, OrderState::Refunded), 1, "an older state");
        assert_eq!(missing(9, OrderState::Held), 1, "no event");
        let carts = [(Uuid::from_u128(1), cart(CartState::Confirmed))].into();
        let rows = Rows {
            carts,
            ..Rows::default()
        };
        assert_eq!(missing_states(&log(), &rows).len(), 1);
    }
}
