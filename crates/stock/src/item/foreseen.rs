//! What is known against an order before anything is written for it.
//!
//! A cart has a row in the ledger before its first line takes units, so a refusal by a segment
//! comes too late to leave nothing behind. The buyer's home tells most refusals before: state,
//! window, limit and the buyer's count are there. It only reads them, so the segments still decide:
//! an order with nothing against it may be refused all the same. That the item has fewer units than
//! the order wants is proven by two snapshots of all segments, as it is for an order
//! (`item/survey.rs`).
//!
//! That an item does not sell is kept for a moment, as the sold-out cache is.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use arc_swap::ArcSwapOption;
use domain::{BuyerId, ItemState, Quantity};

use super::{ItemStock, Segment};
use crate::StockError;

/// So close to the start or the end of the sale, the segments decide: the time by their clock is an
/// estimate here.
const WINDOW_MARGIN_MS: i64 = 50;

/// Why the segments would refuse an order that they do not know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Foreseen {
    /// The item does not sell now.
    NotOpen,
    /// The order would raise the buyer's units above the limit.
    BuyerLimitReached,
    /// Fewer units are left, by the sold-out cache or by snapshots of all segments.
    SoldOut,
    /// The buyer's home is not there: it was lost, or the item is archived.
    Missing,
}

/// When the item was last seen not to sell.
#[derive(Default)]
pub(super) struct Closed {
    seen: ArcSwapOption<Seen>,
    /// Rises with each change that may open the item, so that a reading from before is not kept.
    changes: AtomicU64,
}

struct Seen {
    as_of: Instant,
    gate: Gate,
}

/// Whether and when an item sells, by its home segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Gate {
    is_open: bool,
    opens_ms: i64,
    /// 0: there is no end.
    closes_ms: i64,
}

impl Gate {
    /// Whether it certainly does not sell at about `now_ms`.
    fn refuses(&self, now_ms: i64) -> bool {
        !self.is_open
            || now_ms + WINDOW_MARGIN_MS < self.opens_ms
            || (self.closes_ms != 0 && now_ms - WINDOW_MARGIN_MS >= self.closes_ms)
    }
}

impl Closed {
    /// Forgets what was seen, because it may have changed.
    pub(super) fn forget(&self) {
        self.changes.fetch_add(1, Ordering::SeqCst);
        self.seen.store(None);
    }

    fn refuses(&self, now_ms: i64, lifetime: Duration) -> bool {
        let seen = self.seen.load();
        seen.as_ref()
            .is_some_and(|seen| seen.as_of.elapsed() < lifetime && seen.gate.refuses(now_ms))
    }

    /// Keeps a gate that was read after `changes` changes, if there was none since.
    fn keep(&self, gate: Gate, as_of: Instant, changes: u64) {
        self.seen.store(Some(Arc::new(Seen { as_of, gate })));
        if self.changes.load(Ordering::SeqCst) != changes {
            self.seen.store(None);
        }
    }
}

/// What a buyer's home says before an order is placed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Foresight {
    /// Why it would refuse the order. `None`: nothing is known against it.
    pub refusal: Option<Foreseen>,
    /// The price of a unit: `Some(None)` is the item's first one. `None`: the home did not answer.
    pub price: Option<Option<u64>>,
}

/// What a buyer's home has of the item and of the buyer.
struct Home {
    price: Option<u64>,
    gate: Gate,
    /// 0: no limit.
    limit: u64,
    count: u64,
}

impl ItemStock {
    /// Why an order that no segment knows would be refused, as far as this process knows. It calls
    /// no store, and counts as shed what is sold out.
    pub fn foresees(&self) -> Option<Foreseen> {
        let known = self.known_refusal();
        if known == Some(Foreseen::SoldOut) {
            self.shed_orders.increment(1);
        }
        known
    }

    /// Whether this process knows why an order that no segment knows would be refused. It calls no
    /// store, and counts nothing.
    pub fn refuses_new_orders(&self) -> bool {
        self.known_refusal().is_some()
    }

    fn known_refusal(&self) -> Option<Foreseen> {
        let lifetime = self.shared.settings.sold_out_cache_ttl;
        if self.closed.refuses(self.shared.clock.now_ms(), lifetime) {
            return Some(Foreseen::NotOpen);
        }
        let is_sold_out = self.admission.is_sold_out();
        is_sold_out.then_some(Foreseen::SoldOut)
    }

    /// Why an order of the buyer that no segment knows would be refused, and what it would cost, by
    /// the buyer's home.
    pub async fn foresee(&self, buyer: &BuyerId, quantity: Quantity) -> Foresight {
        let Some(home) = self.ring(buyer).next() else {
            return Foresight::default();
        };
        let (as_of, changes) = (Instant::now(), self.closed.changes.load(Ordering::SeqCst));
        let home = match self.read_home(home, buyer).await {
            Ok(Some(home)) => home,
            Ok(None) => {
                return Foresight {
                    refusal: Some(Foreseen::Missing),
                    price: None,
                };
            }
            Err(error) => {
                tracing::debug!(item = %self.id, %error, "could not read a buyer's home");
                return Foresight::default();
            }
        };
        let now_ms = self.shared.clock.now_ms();
        if home.gate.refuses(now_ms) {
            self.closed.keep(home.gate, as_of, changes);
        }
        let refusal = match home.refusal(now_ms, quantity) {
            None if self.has_fewer(u64::from(quantity.get())).await => Some(Foreseen::SoldOut),
            refusal => refusal,
        };
        Foresight {
            refusal,
            price: Some(home.price),
        }
    }

    /// Whether the item certainly has fewer free units than these. It takes snapshots only if the
    /// last replies of the segments had fewer, and none while there is one that is as young as the
    /// sold-out cache has to be: a crowd of carts shares them.
    async fn has_fewer(&self, units: u64) -> bool {
        let now = Instant::now();
        let recent = now.checked_sub(self.shared.settings.sold_out_cache_ttl);
        // The first one may not agree with the one before, which may be old. The second one may.
        for since in [recent.unwrap_or(now), now] {
            if !self.admission.has_seen_fewer(units) {
                return false;
            }
            match self.survey(since).await {
                // As for an order, a home that is not checked may have lost what it knew.
                Ok(survey)
                    if survey.checked.is_some()
                        && survey.free_at_most.is_some_and(|free| free < units) =>
                {
                    return true;
                }
                Ok(_) => {}
                Err(error) => {
                    tracing::debug!(item = %self.id, %error, "could not read the segments");
                    return false;
                }
            }
        }
        false
    }

    /// `None`: the segment is not there, or has lost a key.
    async fn read_home(&self, home: &Segment, buyer: &BuyerId) -> Result<Option<Home>, StockError> {
        let mut stock = redis::cmd("HMGET");
        stock.arg(&home.keys.stock);
        stock.arg(&["state", "opens_ms", "closes_ms", "limit", "price"]);
        let mut count = redis::cmd("HMGET");
        // The placeholder: a key that was lost knows no buyer.
        count.arg(&home.keys.buyers).arg("").arg(buyer.as_str());
        let (bulk, runtime) = (&self.shared.bulk, &self.shared.runtime);
        let read = async {
            let stock = bulk.query::<StockFields>(&stock);
            let count = bulk.query::<[Option<i64>; 2]>(&count);
            tokio::try_join!(stock, count)
        };
        let (stock, [placeholder, count]) = runtime.host(read).await?;
        let (Some(state), Some(opens_ms), Some(closes_ms), Some(limit), price) = stock else {
            return Ok(None);
        };
        if placeholder.is_none() {
            return Ok(None);
        }
        Ok(Some(Home {
            price: price.and_then(|price| price.parse().ok()),
            gate: Gate {
                is_open: state == ItemState::Open.as_str(),
                opens_ms,
                closes_ms,
            },
            limit,
            count: count.map_or(0, |count| u64::try_from(count).unwrap_or(0)),
        }))
    }
}

/// State, start and end of the sale in milliseconds, limit, and price: empty is the first one.
type StockFields = (
    Option<String>,
    Option<i64>,
    Option<i64>,
    Option<u64>,
    Option<String>,
);

impl Home {
    fn refusal(&self, now_ms: i64, quantity: Quantity) -> Option<Foreseen> {
        if self.gate.refuses(now_ms) {
            return Some(Foreseen::NotOpen);
        }
        let wanted = self.count.saturating_add(quantity.get().into());
        (self.limit > 0 && wanted > self.limit).then_some(Foreseen::BuyerLimitReached)
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::Ordering,
        time::{Duration, Instant},
    };

    use super::{Closed, Gate, WINDOW_MARGIN_MS};

    const LIFETIME: Duration = Duration::from_secs(60);

    const GATE: Gate = Gate {
        is_open: true,
        opens_ms: 10_000,
        closes_ms: 20_000,
    };

    #[test]
    fn a_gate_refuses_what_is_certainly_outside_of_the_sale() {
        for (now_ms, refuses) in [
            (0, true),
            (10_000 - WINDOW_MARGIN_MS - 1, true),
            (10_000 - WINDOW_MARGIN_MS, false),
            (20_000 + WINDOW_MARGIN_MS - 1, false),
            (20_000 + WINDOW_MARGIN_MS, true),
        ] {
            assert_eq!(GATE.refuses(now_ms), refuses, "{now_ms}");
        }
        let paused = Gate {
            is_open: false,
            ..GATE
        };
        assert!(paused.refuses(15_000));
        let endless = Gate {
            closes_ms: 0,
            ..GATE
        };
        assert!(!endless.refuses(i64::MAX / 2));
    }

    #[test]
    fn a_gate_is_kept_until_it_is_old_or_the_item_may_have_changed() {
        let closed = Closed::default();
        let changes = closed.changes.load(Ordering::SeqCst);
        closed.keep(GATE, Instant::now(), changes);
        assert!(closed.refuses(0, LIFETIME) && !closed.refuses(15_000, LIFETIME));
        assert!(!closed.refuses(0, Duration::ZERO), "it is out of date");
        closed.forget();
        assert!(!closed.refuses(0, LIFETIME));
        closed.keep(GATE, Instant::now(), changes);
        assert!(!closed.refuses(0, LIFETIME), "it was read before a change");
    }
}
