//! Orders that come before the item opens.
//!
//! A crowd gathers before the sale and tries early. Each of its orders would cost a place in a
//! batch to Redis, in the very seconds before the rush. So one of them reads all segments, and for
//! a moment the others are refused without asking ([`crate::StockSettings::sold_out_cache_ttl`], as
//! for an item that is sold out).
//!
//! The refusals stay true: a buyer who holds units or has released some may be repeating an order,
//! and is always asked for; and close to the opening every order goes to Redis, whose clock
//! decides.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use arc_swap::ArcSwapOption;
use domain::{BuyerId, ItemState};

use super::{ItemStock, Survey, survey::is_sound, turn::Turn};
use crate::{admission::Buyers, request::Gate, script::Inspection};

/// So long before the opening, orders go to Redis: the time by its clock is an estimate here.
const OPENING_MARGIN_MS: i64 = 50;

/// What is known of an item that does not sell yet.
#[derive(Default)]
pub(super) struct Early {
    seen: ArcSwapOption<Seen>,
    turn: Turn,
}

struct Seen {
    as_of: Instant,
    gate: Gate,
    buyers: Arc<Buyers>,
}

impl Seen {
    fn refuses(&self, buyer: u64, now_ms: i64, lifetime: Duration) -> bool {
        self.as_of.elapsed() < lifetime
            && opens_later(&self.gate, now_ms)
            && self.buyers.is_stranger(buyer)
    }
}

impl Early {
    /// Forgets what was seen, because it may have changed.
    pub(super) fn forget(&self) {
        self.seen.store(None);
    }
}

impl ItemStock {
    /// Why the buyer's order is refused without asking: the item opens later, and the buyer has
    /// nothing that the order could be a repeat of.
    pub(super) fn refused_early(&self, buyer: &BuyerId) -> Option<Gate> {
        let seen = self.early.seen.load();
        let seen = seen.as_ref()?;
        let now_ms = self.shared.clock.now_ms();
        let lifetime = self.shared.settings.sold_out_cache_ttl;
        seen.refuses(buyer.stable_hash(), now_ms, lifetime)
            .then(|| seen.gate.clone())
    }

    /// Reads the segments after one has refused an order, so that the next orders need not ask. One
    /// order does so for all.
    pub(super) async fn note_early(&self, gate: &Gate) {
        let lifetime = self.shared.settings.sold_out_cache_ttl;
        if !opens_later(gate, self.shared.clock.now_ms()) || !self.early.turn.is_due(lifetime) {
            return;
        }
        // If they cannot be read, the next order is refused by Redis too.
        if let Ok(survey) = self.survey(Instant::now()).await
            && let Some(gate) = self.common_gate(&survey)
            && let Some(checked) = &survey.checked
            && let Ok(Some(buyers)) = self.buyers_while_checked(&survey.segments, checked).await
        {
            let seen = Seen {
                as_of: survey.begun,
                gate,
                buyers,
            };
            self.early.seen.store(Some(Arc::new(seen)));
        }
    }

    /// The gate, if all segments have the same one, open later, and know their buyers.
    fn common_gate(&self, survey: &Survey) -> Option<Gate> {
        let gate = survey.closed_gate(self.shared.clock.now_ms())?;
        let agrees = |segment: &Inspection| {
            is_sound(segment)
                && segment.state == ItemState::Open
                && segment.opens_ms == gate.opens_ms
        };
        survey.segments.iter().all(agrees).then_some(gate)
    }
}

fn opens_later(gate: &Gate, now_ms: i64) -> bool {
    now_ms + OPENING_MARGIN_MS < gate.opens_ms
}

#[cfg(test)]
mod tests {
    use std::{
        collections::HashSet,
        sync::Arc,
        time::{Duration, Instant},
    };

    use super::{OPENING_MARGIN_MS, Seen};
    use crate::{admission::Buyers, request::Gate};

    const LIFETIME: Duration = Duration::from_secs(60);

    fn seen(buyers: Buyers) -> Seen {
        Seen {
            as_of: Instant::now(),
            gate: Gate {
                state: "open".into(),
                opens_ms: 10_000,
                closes_ms: 0,
            },
            buyers: Arc::new(buyers),
        }
    }

    #[test]
    fn a_stranger_is_refused_until_shortly_before_the_opening() {
        let seen = seen(Buyers::all(HashSet::from([7])));
        assert!(seen.refuses(8, 0, LIFETIME));
        assert!(seen.refuses(8, 10_000 - OPENING_MARGIN_MS - 1, LIFETIME));
        assert!(!seen.refuses(8, 10_000 - OPENING_MARGIN_MS, LIFETIME));
        assert!(!seen.refuses(8, 0, Duration::ZERO), "it is out of date");
        assert!(!seen.refuses(7, 0, LIFETIME), "it may be a repeat");
    }

    #[test]
    fn a_buyer_of_a_large_crowd_is_not_refused_unasked() {
        assert!(!seen(Buyers::default()).refuses(8, 0, LIFETIME));
    }
}
