//! The buyer's limit, where home cannot see to it.
//!
//! Home counts what a buyer holds and takes nothing beyond the limit. What it takes itself stands in its outbox, on the same server as the count: as long as
//! its history is the recorded one, its count covers that. What it lets go on stands in the outbox of another segment, of another shard perhaps. A
//! failover can lose the count of it and leave that entry; and until somebody mends, the promoted home counts anew and lets the buyer's next orders go
//! on as well. Nothing in their outboxes is wrong. So whoever records holds them against what the ledger itself knows of the buyer: orders
//! that strayed from their home, and, of an item of which any order ever strayed, those at home of buyers of whom the ledger has something already. Of
//! other items home knows all that the ledger has, and nobody asks: most of a sale is over before an order has to stray. (A home that has lost its count and
//! kept its outbox is not believed: what takes refuses without the placeholder that every such key has, and it is mended.)
//!
//! Two recorders could each pass what is too much together. Who records a stray order of an item is therefore alone with the item's orders until the commit;
//! all others share.

use std::collections::{BTreeMap, HashMap, HashSet};

use devices::Device;
use domain::{BuyerId, ItemId, OrderId};

use crate::{LedgerError, recording::Statements};

/// Orders that were taken before a limit was lowered may be recorded after it. Whatever was taken until this long afterwards, by the outbox's clock, may be
/// within the limit as it was before: the segments have long been told, and whoever had not taken yet has given up.
pub(crate) const LENIENT_MS: i64 = 600_000;

/// What `limit_before` holds if there was no limit.
pub(crate) const NO_LIMIT: i64 = i64::MAX;

/// Whose orders are held against the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Watch {
    /// History is as recorded: the orders that home's count may not cover.
    Strays,
    /// History has diverged: what home counted then is worth nothing.
    Everyone,
}

/// An item's terms, as its row has them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Terms {
    pub item: ItemId,
    pub segments: u16,
    pub limit: Limit,
}

/// How many units one buyer may hold. `None`: any number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Limit {
    pub units: Option<u64>,
    /// What it was before it was lowered, and until when it is gone by.
    pub before: Option<(Option<u64>, i64)>,
}

impl Limit {
    /// The limit for what was taken then.
    fn at(&self, taken_ms: i64) -> Option<u64> {
        match self.before {
            Some((units, until_ms)) if taken_ms < until_ms => units.zip(self.units).map(|(before, now)| before.max(now)),
            _ => self.units,
        }
    }
}

/// Units that somebody takes at a segment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Taker<'a> {
    pub segment: u16,
    pub buyer: &'a BuyerId,
}

impl Taker<'_> {
    /// Whether this is another segment than the buyer's home.
    fn strays(&self, terms: &Terms) -> bool {
        self.buyer.home(terms.segments) != self.segment
    }
}

/// What one buyer of an item may have in the ledger: a question.
pub(crate) struct Asked<'a> {
    pub item: &'a ItemId,
    pub buyer: &'a BuyerId,
    /// The orders of the buyer are in this range of ids, and others may be.
    pub range: [OrderId; 2],
}

/// An item's limit, and those of its buyers who are held against it.
#[derive(Debug, Default)]
pub(crate) struct Watched {
    limit: Limit,
    everyone: bool,
    /// Some of these takers are not at home.
    strayed: bool,
    held: HashMap<BuyerId, u64>,
}

impl Watched {
    /// Whether the buyer may have these units, taken then, as well.
    pub(crate) fn allows(&self, buyer: &BuyerId, units: u64, taken_ms: i64) -> bool {
        let held = match self.held.get(buyer) {
            Some(held) => *held,
            None if self.everyone => 0,
            None => return true,
        };
        self.limit.at(taken_ms).is_none_or(|limit| held + units <= limit)
    }

    /// Counts what the buyer has got.
    pub(crate) fn count(&mut self, buyer: &BuyerId, units: u64) {
        if let Some(held) = self.held.get_mut(buyer) {
            *held += units;
        } else if self.everyone {
            self.held.insert(buyer.clone(), units);
        }
    }

    /// Whether nobody is watched, until the ledger says otherwise.
    fn is_idle(&self) -> bool {
        !self.everyone && self.held.is_empty()
    }

    /// Whether the ledger is to be asked what this buyer has. After the limit was lowered everybody is asked for: home may not have heard of it, a failover may
    /// have made it forget, and what strayed while there was no limit was not noticed.
    fn asks_of(&self, buyer: &BuyerId, all_at_home: bool) -> bool {
        !all_at_home || self.everyone || self.limit.before.is_some() || self.held.contains_key(buyer)
    }
}

/// Finds out which of these takers are to be held against the limits of their items, and what they hold.
pub(crate) async fn look(
    transaction: &mut impl Statements,
    takers: &BTreeMap<&ItemId, Vec<Taker<'_>>>,
    watch: Watch,
) -> Result<HashMap<ItemId, Watched>, LedgerError> {
    if takers.is_empty() || (watch == Watch::Strays && !devices::is_on(Device::LimitInLedger)) {
        return Ok(HashMap::new());
    }
    let items: Vec<&ItemId> = takers.keys().copied().collect();
    let mut terms = transaction.terms(&items).await?;
    // The only segment is everybody's home.
    terms.retain(|terms| terms.limit != Limit::default() && (watch == Watch::Everyone || terms.segments > 1));
    if terms.is_empty() {
        return Ok(HashMap::new());
    }
    let mut watched: HashMap<ItemId, Watched> =
        terms.iter().map(|terms| (terms.item.clone(), watched(terms, &takers[&terms.item], watch))).collect();
    let locks: BTreeMap<&ItemId, bool> = terms.iter().map(|terms| (&terms.item, !watched[&terms.item].is_idle())).collect();
    transaction.lock_limits(&locks).await?;
    let at_home = all_at_home(transaction, &watched).await?;
    let asked: Vec<Asked<'_>> =
        terms.iter().flat_map(|terms| asked(terms, &takers[&terms.item], &watched[&terms.item], &at_home)).collect();
    if asked.is_empty() {
        return Ok(watched);
    }
    for (place, units) in transaction.held_by(&asked).await? {
        if let Some(Asked { item, buyer, .. }) = asked.get(place)
            && let Some(watched) = watched.get_mut(item)
        {
            watched.held.insert((*buyer).clone(), units);
        }
    }
    Ok(watched)
}

/// Items of which every recorded order stands at its buyer's home, and these takers do not change it. Asked when nobody can be in between any more: who
/// records the first stray of an item is alone with it.
async fn all_at_home(transaction: &mut impl Statements, watched: &HashMap<ItemId, Watched>) -> Result<HashSet<ItemId>, LedgerError> {
    let items: Vec<&ItemId> = watched.keys().collect();
    let mut at_home = transaction.all_at_home(&items).await?;
    let first: Vec<&ItemId> = items.into_iter().filter(|item| watched[item].strayed && at_home.contains(*item)).collect();
    if !first.is_empty() {
        transaction.not_all_at_home(&first).await?;
        at_home.retain(|item| !first.contains(&item));
    }
    Ok(at_home)
}

fn watched(terms: &Terms, takers: &[Taker<'_>], watch: Watch) -> Watched {
    let strays: Vec<_> = takers.iter().filter(|taker| taker.strays(terms)).collect();
    let (strayed, everyone) = (!strays.is_empty(), watch == Watch::Everyone);
    // Everyone is watched as they come.
    let held = if everyone { HashMap::new() } else { strays.into_iter().map(|taker| (taker.buyer.clone(), 0)).collect() };
    Watched { limit: terms.limit, everyone, strayed, held }
}

fn asked<'a>(terms: &'a Terms, takers: &'a [Taker<'a>], watched: &Watched, at_home: &HashSet<ItemId>) -> impl Iterator<Item = Asked<'a>> {
    let (tag, all_at_home) = (terms.item.tag(), at_home.contains(&terms.item));
    let takers = takers.iter().filter(move |taker| watched.asks_of(taker.buyer, all_at_home));
    takers.map(move |taker| Asked { item: &terms.item, buyer: taker.buyer, range: OrderId::range_of(tag, taker.buyer) })
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use domain::BuyerId;

    use super::{Limit, Watched};

    #[test]
    fn what_was_taken_before_a_limit_was_lowered_may_be_within_the_old_one() {
        let limit = |units, before| Limit { units, before };
        assert_eq!(limit(Some(2), None).at(5), Some(2));
        assert_eq!(limit(Some(2), Some((Some(5), 100))).at(99), Some(5));
        assert_eq!(limit(Some(2), Some((Some(5), 100))).at(100), Some(2));
        assert_eq!(limit(Some(2), Some((None, 100))).at(99), None, "there was none");
        assert_eq!(limit(Some(9), Some((Some(5), 100))).at(99), Some(9), "it was raised again");
        assert_eq!(limit(None, Some((Some(5), 100))).at(99), None, "it was lifted since");
    }

    #[test]
    fn who_is_not_watched_may_have_everything() {
        let [ann, bob] = ["ann", "bob"].map(|name| BuyerId::new(name).unwrap());
        let limit = Limit { units: Some(3), before: None };
        let mut strays = Watched { limit, held: HashMap::from([(ann.clone(), 1)]), ..Watched::default() };
        assert!(strays.allows(&ann, 2, 0) && !strays.allows(&ann, 3, 0) && strays.allows(&bob, 9, 0));
        strays.count(&ann, 1);
        strays.count(&bob, 3);
        assert!(strays.allows(&ann, 1, 0) && !strays.allows(&ann, 2, 0) && strays.allows(&bob, 9, 0));
        let mut everyone = Watched { limit, everyone: true, ..Watched::default() };
        assert!(everyone.allows(&bob, 3, 0) && !everyone.allows(&bob, 4, 0));
        everyone.count(&bob, 3);
        assert!(!everyone.allows(&bob, 1, 0) && everyone.allows(&ann, 1, 0));
    }
}
