//! The buyers' books against the rows of the orders.

use std::collections::{BTreeMap, HashMap};

use uuid::Uuid;

use super::Verdict;
use crate::{
    book::{Entry, Level, Offer, Placed},
    shop::State,
    view::Row,
};

/// Holds every acknowledgement of an item against its orders, and the orders against the limit of a buyer.
pub(super) fn judge(
    offer: &Offer,
    entries: &[Entry],
    rows: &HashMap<Uuid, Row>,
    redis_may_lose: bool,
    verdict: &mut Verdict,
) {
    let mut names = HashMap::new();
    for entry in entries
        .iter()
        .filter(|entry| entry.offer.item == offer.item)
    {
        let Placed::Acknowledged(id) = entry.placed else {
            continue;
        };
        match rows.get(&id) {
            Some(row) => judge_order(id, entry, row, verdict),
            None => judge_absence(id, entry, redis_may_lose, verdict),
        }
        if let Some(other) = names.insert(id, entry) {
            verdict.findings.push(format!(
                "{}: order {id} is of two keys: {} and {}",
                offer.item, entry.key, other.key
            ));
        }
    }
    judge_limit(offer, rows, verdict);
    // What a promoted replica has not heard of may be refused there while a recorder still commits it: that hold is over by now, and nobody paid for it.
    let allowed = |state| state == State::Rejected || (redis_may_lose && state == State::Expired);
    let unknown = rows
        .iter()
        .filter(|(id, row)| !names.contains_key(id) && !allowed(row.state));
    judge_refusals(offer, entries, unknown, verdict);
}

/// Every order in the ledger is one that its buyer knows of, or may not know of. The ledger does not have the keys, so what nobody acknowledged is counted.
fn judge_refusals<'a>(
    offer: &Offer,
    entries: &[Entry],
    unknown: impl Iterator<Item = (&'a Uuid, &'a Row)>,
    verdict: &mut Verdict,
) {
    let mut unseen = HashMap::<(&str, u64), usize>::new();
    for entry in entries
        .iter()
        .filter(|entry| entry.offer.item == offer.item && entry.may_be_there_unseen())
    {
        *unseen
            .entry((&entry.buyer, entry.quantity.into()))
            .or_default() += 1;
    }
    for (id, row) in unknown {
        match unseen.get_mut(&(&*row.buyer, row.quantity)) {
            Some(left) if *left > 0 => *left -= 1,
            _ => verdict.findings.push(format!(
                "{}: order {id} is in the ledger ({row:?}), and its buyer was refused for good",
                offer.item
            )),
        }
    }
}

fn judge_order(id: Uuid, entry: &Entry, row: &Row, verdict: &mut Verdict) {
    let (item, allowed) = (&entry.offer.item, entry.allowed());
    if !allowed.contains(&row.state) {
        let (
            Row { state, .. },
            Entry {
                acknowledged,
                wanted,
                ..
            },
        ) = (row, entry);
        verdict.lost += 1;
        verdict.findings.push(format!(
            "{item}: order {id} is {state:?} and may only be one of {allowed:?}: acknowledged {acknowledged:?}, asked for {wanted:?}"
        ));
    }
    if entry.payment.is_some() && entry.payment != row.payment {
        verdict.lost += 1;
        verdict.findings.push(format!(
            "{item}: order {id} was acknowledged as paid by {:?}, and in the ledger it is {row:?}",
            entry.payment
        ));
    }
    if row.quantity != u64::from(entry.quantity) || row.buyer != entry.buyer {
        verdict.lost += 1;
        verdict.findings.push(format!(
            "{item}: order {id} of {} units for {} is {row:?}",
            entry.quantity, entry.buyer
        ));
    }
}

fn judge_absence(id: Uuid, entry: &Entry, redis_may_lose: bool, verdict: &mut Verdict) {
    let Entry {
        offer,
        acknowledged,
        ..
    } = entry;
    if redis_may_lose && offer.level != Level::Recorded && *acknowledged == [State::Held] {
        verdict.lost_by_level += 1;
        return;
    }
    verdict.lost += entry.acknowledgements();
    verdict.findings.push(format!(
        "{}: order {id} was acknowledged ({acknowledged:?}) and is not in the ledger",
        offer.item
    ));
}

fn judge_limit(offer: &Offer, rows: &HashMap<Uuid, Row>, verdict: &mut Verdict) {
    let mut units = BTreeMap::<&str, u64>::new();
    for row in rows
        .values()
        .filter(|row| matches!(row.state, State::Held | State::Confirmed))
    {
        *units.entry(&row.buyer).or_default() += row.quantity;
    }
    for (buyer, units) in units
        .iter()
        .filter(|(_, units)| **units > u64::from(offer.limit))
    {
        verdict.oversold += units - u64::from(offer.limit);
        verdict.findings.push(format!(
            "{}: {buyer} has {units} units, and may have {}",
            offer.item, offer.limit
        ));
    }
}

#[cfg(test)]
mod tests {
    use std::{
        collections::{BTreeSet, HashMap},
        sync::Arc,
    };

    use uuid::Uuid;

    use super::judge;
    use crate::{
        book::{Entry, Level, Offer, Placed},
        judge::Verdict,
        shop::State::{self, *},
        view::Row,
    };

    const ID: Uuid = Uuid::from_u128(1);

    fn judged(
        level: Level,
        acknowledged: &[State],
        row: Option<(State, u64)>,
        redis_may_lose: bool,
    ) -> Verdict {
        let offer = Arc::new(Offer {
            item: "vase".into(),
            level,
            stock: 9,
            limit: 2,
            segments: 1,
            hold_seconds: 2,
        });
        let entry = Entry {
            acknowledged: acknowledged.into(),
            ..entry_of(&offer, "ann", Placed::Acknowledged(ID))
        };
        let row = row.map(|(state, quantity)| {
            (
                ID,
                Row {
                    quantity,
                    ..row_of("ann", state)
                },
            )
        });
        let (rows, mut verdict) = (
            row.into_iter().collect::<HashMap<_, _>>(),
            Verdict::default(),
        );
        judge(&offer, &[entry], &rows, redis_may_lose, &mut verdict);
        verdict
    }

    fn entry_of(offer: &Arc<Offer>, buyer: &str, placed: Placed) -> Entry {
        Entry {
            offer: Arc::clone(offer),
            buyer: buyer.into(),
            key: "k".into(),
            quantity: 1,
            requests: 1,
            placed,
            payment: None,
            acknowledged: Vec::new(),
            wanted: BTreeSet::new(),
            contradictions: Vec::new(),
        }
    }

    fn row_of(buyer: &str, state: State) -> Row {
        Row {
            buyer: buyer.into(),
            quantity: 1,
            state,
            payment: None,
        }
    }

    /// What a judge says of a buyer with these answers, each to so many requests, of whom the ledger has orders in these states.
    fn refused(answers: &[(Placed, u32)], states: &[State]) -> Verdict {
        refused_where(false, answers, states)
    }

    fn refused_where(redis_may_lose: bool, answers: &[(Placed, u32)], states: &[State]) -> Verdict {
        let offer = Arc::new(Offer {
            item: "vase".into(),
            level: Level::Recorded,
            stock: 9,
            limit: 9,
            segments: 1,
            hold_seconds: 2,
        });
        let entry = |(placed, requests): &(Placed, u32)| Entry {
            requests: *requests,
            ..entry_of(&offer, "ann", placed.clone())
        };
        let entries: Vec<_> = answers.iter().map(entry).collect();
        let rows = states
            .iter()
            .zip(2..)
            .map(|(state, id)| (Uuid::from_u128(id), row_of("ann", *state)))
            .collect();
        let mut verdict = Verdict::default();
        judge(&offer, &entries, &rows, redis_may_lose, &mut verdict);
        verdict
    }

    #[test]
    fn an_order_of_a_buyer_who_was_refused_is_found() {
        let sold_out = || Placed::Refused("sold_out".into());
        let limit = || Placed::Refused("buyer_limit_reached".into());
        for state in [Held, Confirmed, Expired, Cancelled] {
            assert!(
                !refused(&[(sold_out(), 1)], &[state]).is_good(),
                "{state:?}"
            );
            assert!(!refused(&[(limit(), 1)], &[state]).is_good(), "{state:?}");
        }
        assert!(refused(&[(sold_out(), 1), (limit(), 1)], &[]).is_good());
        assert!(
            refused(&[(sold_out(), 1)], &[Rejected]).is_good(),
            "that is how the ledger refuses"
        );
        assert!(
            refused(&[(sold_out(), 2)], &[Expired]).is_good(),
            "the other request may have been served"
        );
        assert!(refused(&[(Placed::Unknown, 1)], &[Expired]).is_good());
        assert!(
            refused_where(true, &[(sold_out(), 1)], &[Expired]).is_good()
                && !refused_where(true, &[(sold_out(), 1)], &[Confirmed]).is_good()
        );
        assert!(
            !refused(
                &[(Placed::Unknown, 1), (sold_out(), 1)],
                &[Expired, Expired]
            )
            .is_good(),
            "one of them was refused"
        );
    }

    #[test]
    fn an_order_that_another_payment_paid_is_found() {
        let offer = Arc::new(Offer {
            item: "vase".into(),
            level: Level::Recorded,
            stock: 9,
            limit: 9,
            segments: 1,
            hold_seconds: 2,
        });
        let entry = Entry {
            acknowledged: vec![Held, Confirmed],
            payment: Some("pay-1".into()),
            ..entry_of(&offer, "ann", Placed::Acknowledged(ID))
        };
        for (payment, good) in [(Some("pay-1"), true), (Some("pay-2"), false), (None, false)] {
            let row = Row {
                payment: payment.map(Into::into),
                ..row_of("ann", Confirmed)
            };
            let mut verdict = Verdict::default();
            judge(
                &offer,
                std::slice::from_ref(&entry),
                &HashMap::from([(ID, row)]),
                false,
                &mut verdict,
            );
            assert_eq!(
                verdict.is_good(),
                good,
                "{payment:?}: {:?}",
                verdict.findings
            );
        }
    }

    #[test]
    fn what_was_acknowledged_and_is_not_there_is_lost() {
        for level in [Level::Recorded, Level::Replicated, Level::Accepted] {
            assert_eq!(judged(level, &[Held], None, false).lost, 1, "{level:?}");
            assert_eq!(
                judged(level, &[Held, Confirmed], None, true).lost,
                2,
                "{level:?}"
            );
        }
        assert_eq!(judged(Level::Recorded, &[Held], None, true).lost, 1);
        let verdict = judged(Level::Accepted, &[Held], None, true);
        assert!(
            verdict.is_good() && verdict.lost_by_level == 1,
            "its level allows it"
        );
    }

    #[test]
    fn what_is_in_another_state_than_was_acknowledged_is_lost() {
        let table = [
            (&[Held][..], Expired, true),
            (&[Held], Held, false),
            (&[Held], Rejected, false),
            (&[Held], Confirmed, false),
            (&[Held, Confirmed], Confirmed, true),
            (&[Held, Confirmed], Expired, false),
            (&[Held, Cancelled], Confirmed, false),
        ];
        for (acknowledged, state, good) in table {
            assert_eq!(
                judged(Level::Recorded, acknowledged, Some((state, 1)), false).is_good(),
                good,
                "{acknowledged:?} {state:?}"
            );
        }
    }

    #[test]
    fn another_quantity_and_more_than_the_limit_are_found() {
        assert_eq!(
            judged(
                Level::Recorded,
                &[Held, Confirmed],
                Some((Confirmed, 2)),
                false
            )
            .lost,
            1
        );
        assert_eq!(
            judged(
                Level::Recorded,
                &[Held, Confirmed],
                Some((Confirmed, 4)),
                false
            )
            .oversold,
            2
        );
    }
}
