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
pub(super) fn judge(offer: &Offer, entries: &[Entry], rows: &HashMap<Uuid, Row>, redis_may_lose: bool, verdict: &mut Verdict) {
    let mut names = HashMap::new();
    for entry in entries.iter().filter(|entry| entry.offer.item == offer.item) {
        let Placed::Acknowledged(id) = entry.placed else { continue };
        match rows.get(&id) {
            Some(row) => judge_order(id, entry, row, verdict),
            None => judge_absence(id, entry, redis_may_lose, verdict),
        }
        if let Some(other) = names.insert(id, entry) {
            verdict.findings.push(format!("{}: order {id} is of two keys: {} and {}", offer.item, entry.key, other.key));
        }
    }
    judge_limit(offer, rows, verdict);
}

fn judge_order(id: Uuid, entry: &Entry, row: &Row, verdict: &mut Verdict) {
    let (item, allowed) = (&entry.offer.item, entry.allowed());
    if !allowed.contains(&row.state) {
        let (Row { state, .. }, Entry { acknowledged, wanted, .. }) = (row, entry);
        verdict.lost += 1;
        verdict.findings.push(format!(
            "{item}: order {id} is {state:?} and may only be one of {allowed:?}: acknowledged {acknowledged:?}, asked for {wanted:?}"
        ));
    }
    if row.quantity != u64::from(entry.quantity) || row.buyer != entry.buyer {
        verdict.lost += 1;
        verdict.findings.push(format!("{item}: order {id} of {} units for {} is {row:?}", entry.quantity, entry.buyer));
    }
}

fn judge_absence(id: Uuid, entry: &Entry, redis_may_lose: bool, verdict: &mut Verdict) {
    let Entry { offer, acknowledged, .. } = entry;
    if redis_may_lose && offer.level != Level::Recorded && *acknowledged == [State::Held] {
        verdict.lost_by_level += 1;
        return;
    }
    verdict.lost += entry.acknowledgements();
    verdict.findings.push(format!("{}: order {id} was acknowledged ({acknowledged:?}) and is not in the ledger", offer.item));
}

fn judge_limit(offer: &Offer, rows: &HashMap<Uuid, Row>, verdict: &mut Verdict) {
    let mut units = BTreeMap::<&str, u64>::new();
    for row in rows.values().filter(|row| matches!(row.state, State::Held | State::Confirmed)) {
        *units.entry(&row.buyer).or_default() += row.quantity;
    }
    for (buyer, units) in units.iter().filter(|(_, units)| **units > u64::from(offer.limit)) {
        verdict.oversold += units - u64::from(offer.limit);
        verdict.findings.push(format!("{}: {buyer} has {units} units, and may have {}", offer.item, offer.limit));
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

    fn judged(level: Level, acknowledged: &[State], row: Option<(State, u64)>, redis_may_lose: bool) -> Verdict {
        let offer = Arc::new(Offer { item: "vase".into(), level, stock: 9, limit: 2, segments: 1, hold_seconds: 2 });
        let entry = Entry {
            offer: Arc::clone(&offer),
            buyer: "ann".into(),
            key: "k".into(),
            quantity: 1,
            placed: Placed::Acknowledged(ID),
            acknowledged: acknowledged.into(),
            wanted: BTreeSet::new(),
            contradictions: Vec::new(),
        };
        let row = row.map(|(state, quantity)| (ID, Row { buyer: "ann".into(), quantity, state }));
        let (rows, mut verdict) = (row.into_iter().collect::<HashMap<_, _>>(), Verdict::default());
        judge(&offer, &[entry], &rows, redis_may_lose, &mut verdict);
        verdict
    }

    #[test]
    fn what_was_acknowledged_and_is_not_there_is_lost() {
        for level in [Level::Recorded, Level::Replicated, Level::Accepted] {
            assert_eq!(judged(level, &[Held], None, false).lost, 1, "{level:?}");
            assert_eq!(judged(level, &[Held, Confirmed], None, true).lost, 2, "{level:?}");
        }
        assert_eq!(judged(Level::Recorded, &[Held], None, true).lost, 1);
        let verdict = judged(Level::Accepted, &[Held], None, true);
        assert!(verdict.is_good() && verdict.lost_by_level == 1, "its level allows it");
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
            assert_eq!(judged(Level::Recorded, acknowledged, Some((state, 1)), false).is_good(), good, "{acknowledged:?} {state:?}");
        }
    }

    #[test]
    fn another_quantity_and_more_than_the_limit_are_found() {
        assert_eq!(judged(Level::Recorded, &[Held, Confirmed], Some((Confirmed, 2)), false).lost, 1);
        assert_eq!(judged(Level::Recorded, &[Held, Confirmed], Some((Confirmed, 4)), false).oversold, 2);
    }
}
