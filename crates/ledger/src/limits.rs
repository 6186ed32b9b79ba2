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

use std::collections::{BTreeMap, HashMap};

use devices::Device;
use domain::{BuyerId, ItemId, OrderId};

use crate::{
    LedgerError,
    recording::{Statements, Widths},
};

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
    pub limit: Limit,
    /// Whether it is certain that every recorded order stands at its buyer's home.
    pub all_at_home: bool,
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
            Some((units, until_ms)) if taken_ms < until_ms => {
                units.zip(self.units).map(|(before, now)| before.max(now))
            }
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
    fn strays(&self, segments: u16) -> bool {
        self.buyer.home(segments) != self.segment
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
    all_at_home: bool,
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
        self.limit
            .at(taken_ms)
            .is_none_or(|limit| held + units <= limit)
    }

    /// Counts what the buyer has got.
    pub(crate) fn count(&mut self, buyer: &BuyerId, units: u64) {
        if let Some(held) = self.held.get_mut(buyer) {
            *held += units;
        } else if self.everyone {
            self.held.insert(buyer.clone(), units);
        }
    }

    /// Whether the ledger is to be asked what this buyer has. After the limit was lowered everybody is asked for: home may not have heard of it, a failover may
    /// have made it forget, and what strayed while there was no limit was not noticed.
    fn asks_of(&self, buyer: &BuyerId) -> bool {
        !self.all_at_home
            || self.everyone
            || self.limit.before.is_some()
            || self.held.contains_key(buyer)
    }
}

/// Finds out which of these takers are to be held against the limits of their items, and what they hold.
pub(crate) async fn look(
    transaction: &mut impl Statements,
    takers: &BTreeMap<&ItemId, Vec<Taker<'_>>>,
    widths: &Widths,
    watch: Watch,
) -> Result<HashMap<ItemId, Watched>, LedgerError> {
    if takers.is_empty() || (watch == Watch::Strays && !devices::is_on(Device::LimitInLedger)) {
        return Ok(HashMap::new());
    }
    let strays: BTreeMap<&ItemId, Vec<&BuyerId>> = takers
        .iter()
        .filter_map(|(item, takers)| strays(item, takers, widths, watch))
        .collect();
    if strays.is_empty() {
        return Ok(HashMap::new());
    }
    let alone = strays
        .iter()
        .map(|(item, strays)| (*item, watch == Watch::Everyone || !strays.is_empty()))
        .collect();
    let limited = transaction.limits_of(&alone).await?;
    not_at_home(transaction, &limited, &strays).await?;
    let mut watched: HashMap<ItemId, Watched> = limited
        .into_iter()
        .map(|terms| {
            (
                terms.item.clone(),
                watched(&terms, &strays[&terms.item], watch),
            )
        })
        .collect();
    let asked: Vec<Asked<'_>> = takers
        .iter()
        .flat_map(|(item, takers)| asked(item, takers, watched.get(*item)))
        .collect();
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

/// Those of the item's takers who are not at home. `None`: it does not matter, the only segment is everybody's.
fn strays<'a>(
    item: &&'a ItemId,
    takers: &[Taker<'a>],
    widths: &Widths,
    watch: Watch,
) -> Option<(&'a ItemId, Vec<&'a BuyerId>)> {
    let width = widths.get(*item).copied();
    // Where nobody knows how many there are, nobody is at home.
    let strays = takers
        .iter()
        .filter(|taker| width.is_none_or(|width| taker.strays(width)));
    (watch == Watch::Everyone || width != Some(1))
        .then(|| (*item, strays.map(|taker| taker.buyer).collect()))
}

/// Notes the first strays of items of which every recorded order was at home. Who records one is alone with the item.
async fn not_at_home(
    transaction: &mut impl Statements,
    limited: &[Terms],
    strays: &BTreeMap<&ItemId, Vec<&BuyerId>>,
) -> Result<(), LedgerError> {
    let first = limited
        .iter()
        .filter(|terms| terms.all_at_home && !strays[&terms.item].is_empty());
    let first: Vec<&ItemId> = first.map(|terms| &terms.item).collect();
    if !first.is_empty() {
        transaction.not_all_at_home(&first).await?;
    }
    Ok(())
}

fn watched(terms: &Terms, strays: &[&BuyerId], watch: Watch) -> Watched {
    let (everyone, all_at_home) = (
        watch == Watch::Everyone,
        terms.all_at_home && strays.is_empty(),
    );
    // Everyone is watched as they come.
    let held = if everyone {
        HashMap::new()
    } else {
        strays.iter().map(|buyer| ((*buyer).clone(), 0)).collect()
    };
    Watched {
        limit: terms.limit,
        everyone,
        all_at_home,
        held,
    }
}

fn asked<'a>(
    item: &'a ItemId,
    takers: &'a [Taker<'a>],
    watched: Option<&Watched>,
) -> impl Iterator<Item = Asked<'a>> {
    let tag = item.tag();
    let takers = takers
        .iter()
        .filter(move |taker| watched.is_some_and(|watched| watched.asks_of(taker.buyer)));
    takers.map(move |taker| Asked {
        item,
        buyer: taker.buyer,
        range: OrderId::range_of(tag, taker.buyer),
    })
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
        assert_eq!(
            limit(Some(2), Some((None, 100))).at(99),
            None,
            "there was none"
        );
        assert_eq!(
            limit(Some(9), Some((Some(5), 100))).at(99),
            Some(9),
            "it was raised again"
        );
        assert_eq!(
            limit(None, Some((Some(5), 100))).at(99),
            None,
            "it was lifted since"
        );
    }

    #[test]
    fn who_is_not_watched_may_have_everything() {
        let [ann, bob] = ["ann", "bob"].map(|name| BuyerId::new(name).unwrap());
        let limit = Limit {
            units: Some(3),
            before: None,
        };
        let mut strays = Watched {
            limit,
            held: HashMap::from([(ann.clone(), 1)]),
            ..Watched::default()
        };
        assert!(
            strays.allows(&ann, 2, 0) && !strays.allows(&ann, 3, 0) && strays.allows(&bob, 9, 0)
        );
        strays.count(&ann, 1);
        strays.count(&bob, 3);
        assert!(
            strays.allows(&ann, 1, 0) && !strays.allows(&ann, 2, 0) && strays.allows(&bob, 9, 0)
        );
        let mut everyone = Watched {
            limit,
            everyone: true,
            ..Watched::default()
        };
        assert!(everyone.allows(&bob, 3, 0) && !everyone.allows(&bob, 4, 0));
        everyone.count(&bob, 3);
        assert!(!everyone.allows(&bob, 1, 0) && everyone.allows(&ann, 1, 0));
    }
}
