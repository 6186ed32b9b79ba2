//! Refusing a cart before its row is written.
//!
//! A refusal by a segment comes after the row, and leaves it behind with an event. So what this
//! process knows comes first, and then what the buyer's home of each item says. Only what the segments
//! alone can decide fails later: the last unit, the last moment of the sale, the buyer's other orders
//! at the same time.
//!
//! All of it holds for a new cart alone. A cart that the ledger has gets its recorded answer, so a
//! refused one is looked up before it is answered.

use std::sync::Arc;

use domain::{Cart, RefusalReason};
use futures::future::join_all;
use stock::Foreseen;

use super::super::{Engine, EngineError, KnownItem};

impl Engine {
    /// The first line that would be refused if the cart is new, and why.
    pub(super) async fn foreseen_refusal(
        &self,
        cart: &Cart,
        items: &[Arc<KnownItem>],
    ) -> Result<Option<(usize, RefusalReason)>, EngineError> {
        let known = items.iter().map(|known| match known.is_archived() {
            true => Some(RefusalReason::NotOpen),
            false => known.stock.foresees().and_then(reason),
        });
        if let Some(refused) = first(known) {
            return Ok(Some(refused));
        }
        let homes = items.iter().zip(&cart.lines);
        let homes = homes.map(|(known, line)| known.stock.foresee(&cart.buyer, line.quantity));
        let homes = join_all(homes).await;
        for (line, _) in homes
            .iter()
            .enumerate()
            .filter(|(_, home)| **home == Some(Foreseen::Missing))
        {
            if self.archived(&items[line].item.id).await?.is_some() {
                return Ok(Some((line, RefusalReason::NotOpen)));
            }
        }
        Ok(first(homes.into_iter().map(|home| home.and_then(reason))))
    }
}

fn first(lines: impl Iterator<Item = Option<RefusalReason>>) -> Option<(usize, RefusalReason)> {
    let mut refused = lines.enumerate();
    refused.find_map(|(line, reason)| reason.map(|reason| (line, reason)))
}

/// `None`: the segments decide.
fn reason(foreseen: Foreseen) -> Option<RefusalReason> {
    match foreseen {
        Foreseen::NotOpen => Some(RefusalReason::NotOpen),
        Foreseen::BuyerLimitReached => Some(RefusalReason::BuyerLimitReached),
        Foreseen::SoldOut => Some(RefusalReason::SoldOut),
        Foreseen::Missing => None,
    }
}
