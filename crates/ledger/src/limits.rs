//! The purchase limit, where the home segment cannot enforce it.
//!
//! The home segment counts the units that a buyer holds and takes nothing beyond the limit. Orders
//! that it takes itself are in its own outbox, on the same server as the count; as long as its
//! history is the recorded one, its count covers them. Orders that spill over are in the outbox of
//! another segment, perhaps of another shard. A failover can lose their count at home and keep
//! their entries. Until a repair, the promoted home counts from zero and lets the buyer's next
//! orders spill over as well, although every outbox is consistent.
//!
//! The recorder therefore checks orders against the units that the ledger itself has for the buyer.
//! It checks off-home orders and, once any order of an item was off-home, also orders at home of
//! buyers who already have units in the ledger. For other items home counts everything that the
//! ledger has, and no query is needed; most of a sale ends before any order has to spill over. (A
//! home that has lost its count and kept its outbox is detected: the script refuses to take units
//! without the placeholder that every such key contains, and the segment is repaired.)
//!
//! Two concurrent recorders could each accept part of an excess. Recording an off-home order
//! therefore locks the item's orders exclusively until commit; all other recorders share the lock.

use std::collections::{BTreeMap, HashMap};

use domain::{BuyerId, ItemId, OrderId, SafetyCheck};

use crate::{
    LedgerError,
    statements::{Shapes, Statements},
    terms::{Limit, Terms, UsageQuery},
};

/// Which orders are checked against the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Watch {
    /// Histories continue as recorded: check the orders that home's count may not cover.
    OffHome,
    /// A history has diverged, and home's counts are unreliable: check all buyers.
    AllBuyers,
}

/// A buyer who takes units at a segment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Taker<'a> {
    pub segment: u16,
    pub buyer: &'a BuyerId,
}

impl Taker<'_> {
    /// Whether the segment is not the buyer's home.
    fn off_home(&self, segments: u16) -> bool {
        self.buyer.home(segments) != self.segment
    }
}

/// An item's limit, and the units of those buyers who are checked against it.
#[derive(Debug, Default)]
pub(crate) struct Watched {
    limit: Limit,
    all_buyers: bool,
    without_spillover: bool,
    held: HashMap<BuyerId, u64>,
}

impl Watched {
    /// Whether the limit allows the buyer these units, taken at `taken_ms`.
    pub(crate) fn allows(&self, buyer: &BuyerId, units: u64, taken_ms: i64) -> bool {
        let held = match self.held.get(buyer) {
            Some(held) => *held,
            None if self.all_buyers => 0,
            None => return true,
        };
        self.limit
            .at(taken_ms)
            .is_none_or(|limit| held + units <= limit)
    }

    /// Adds the units to those that the buyer holds.
    pub(crate) fn count(&mut self, buyer: &BuyerId, units: u64) {
        if let Some(held) = self.held.get_mut(buyer) {
            *held += units;
        } else if self.all_buyers {
            self.held.insert(buyer.clone(), units);
        }
    }

    /// Whether the buyer's units must be read from the ledger. After the limit was lowered that is
    /// so for all buyers: home may not have received the new limit, a failover may have lost it,
    /// and off-home orders were not tracked while there was no limit.
    fn needs_usage(&self, buyer: &BuyerId) -> bool {
        !self.without_spillover
            || self.all_buyers
            || self.limit.before.is_some()
            || self.held.contains_key(buyer)
    }
}

/// Determines which of these buyers are checked against their item's limit, and the units that they
/// hold.
pub(crate) async fn check_limits(
    transaction: &mut impl Statements,
    takers: &BTreeMap<&ItemId, Vec<Taker<'_>>>,
    shapes: &Shapes,
    watch: Watch,
) -> Result<HashMap<ItemId, Watched>, LedgerError> {
    if takers.is_empty() || (watch == Watch::OffHome && !SafetyCheck::LimitInLedger.is_enabled()) {
        return Ok(HashMap::new());
    }
    let off_home: BTreeMap<&ItemId, Vec<&BuyerId>> = takers
        .iter()
        .filter_map(|(item, takers)| off_home(item, takers, shapes, watch))
        .collect();
    if off_home.is_empty() {
        return Ok(HashMap::new());
    }
    let exclusive = off_home
        .iter()
        .map(|(item, off_home)| (*item, watch == Watch::AllBuyers || !off_home.is_empty()))
        .collect();
    let limited = transaction.limits_of(&exclusive).await?;
    mark_first_spillover(transaction, &limited, &off_home).await?;
    let mut watched: HashMap<ItemId, Watched> = limited
        .into_iter()
        .map(|terms| {
            (
                terms.item.clone(),
                watched(&terms, &off_home[&terms.item], watch),
            )
        })
        .collect();
    let queries: Vec<UsageQuery<'_>> = takers
        .iter()
        .flat_map(|(item, takers)| queries(item, takers, watched.get(*item)))
        .collect();
    if queries.is_empty() {
        return Ok(watched);
    }
    for (place, units) in transaction.usage_of(&queries).await? {
        if let Some(UsageQuery { item, buyer, .. }) = queries.get(place)
            && let Some(watched) = watched.get_mut(item)
        {
            watched.held.insert((*buyer).clone(), units);
        }
    }
    Ok(watched)
}

/// The item's buyers whose order is off-home. `None`: the item's only segment is the home of every
/// buyer.
fn off_home<'a>(
    item: &&'a ItemId,
    takers: &[Taker<'a>],
    shapes: &Shapes,
    watch: Watch,
) -> Option<(&'a ItemId, Vec<&'a BuyerId>)> {
    let width = shapes.get(*item).map(|shape| shape.segments);
    // If the number of segments is unknown, every order counts as off-home.
    let off_home = takers
        .iter()
        .filter(|taker| width.is_none_or(|width| taker.off_home(width)));
    (watch == Watch::AllBuyers || width != Some(1))
        .then(|| (*item, off_home.map(|taker| taker.buyer).collect()))
}

/// Marks the items whose first off-home orders these are. The item's orders are locked exclusively
/// at this point.
async fn mark_first_spillover(
    transaction: &mut impl Statements,
    limited: &[Terms],
    off_home: &BTreeMap<&ItemId, Vec<&BuyerId>>,
) -> Result<(), LedgerError> {
    let first = limited
        .iter()
        .filter(|terms| terms.without_spillover && !off_home[&terms.item].is_empty());
    let first: Vec<&ItemId> = first.map(|terms| &terms.item).collect();
    if !first.is_empty() {
        transaction.mark_spillover(&first).await?;
    }
    Ok(())
}

fn watched(terms: &Terms, off_home: &[&BuyerId], watch: Watch) -> Watched {
    let (all_buyers, without_spillover) = (
        watch == Watch::AllBuyers,
        terms.without_spillover && off_home.is_empty(),
    );
    // With all buyers watched, entries are added as they occur.
    let held = if all_buyers {
        HashMap::new()
    } else {
        off_home.iter().map(|buyer| ((*buyer).clone(), 0)).collect()
    };
    Watched {
        limit: terms.limit,
        all_buyers,
        without_spillover,
        held,
    }
}

fn queries<'a>(
    item: &'a ItemId,
    takers: &'a [Taker<'a>],
    watched: Option<&Watched>,
) -> impl Iterator<Item = UsageQuery<'a>> {
    let tag = item.tag();
    let takers = takers
        .iter()
        .filter(move |taker| watched.is_some_and(|watched| watched.needs_usage(taker.buyer)));
    takers.map(move |taker| UsageQuery {
        item,
        buyer: taker.buyer,
        range: OrderId::range_of(tag, taker.buyer),
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use domain::BuyerId;

    use super::Watched;
    use crate::terms::Limit;

    #[test]
    fn the_limit_applies_only_to_watched_buyers() {
        let [ann, bob] = ["ann", "bob"].map(|name| BuyerId::new(name).unwrap());
        let limit = Limit {
            units: Some(3),
            before: None,
        };
        let mut off_home = Watched {
            limit,
            held: HashMap::from([(ann.clone(), 1)]),
            ..Watched::default()
        };
        assert!(
            off_home.allows(&ann, 2, 0)
                && !off_home.allows(&ann, 3, 0)
                && off_home.allows(&bob, 9, 0)
        );
        off_home.count(&ann, 1);
        off_home.count(&bob, 3);
        assert!(
            off_home.allows(&ann, 1, 0)
                && !off_home.allows(&ann, 2, 0)
                && off_home.allows(&bob, 9, 0)
        );
        let mut all_buyers = Watched {
            limit,
            all_buyers: true,
            ..Watched::default()
        };
        assert!(all_buyers.allows(&bob, 3, 0) && !all_buyers.allows(&bob, 4, 0));
        all_buyers.count(&bob, 3);
        assert!(!all_buyers.allows(&bob, 1, 0) && all_buyers.allows(&ann, 1, 0));
    }
}
