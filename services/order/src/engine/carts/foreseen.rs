//! Refusing a cart before its row is written.
//!
//! A refusal by a segment comes after the row, and leaves it behind with an event. So what this
//! process knows comes first, and then what the buyer's home of each item says. Only what the
//! segments alone can decide fails later: the last unit, the last moment of the sale, the buyer's
//! other orders at the same time.
//!
//! All of it holds for a new cart alone. A cart that the ledger has gets its recorded answer, so a
//! refused one is looked up before it is answered.

use std::sync::Arc;

use domain::{Cart, RefusalReason};
use futures::future::join_all;
use stock::Foreseen;

use super::super::{Engine, EngineError, KnownItem};

/// What is known of a cart's lines before its row is written.
pub(super) struct ForeseenLines {
    /// The first line that would be refused if the cart is new, and why.
    pub refusal: Option<(usize, RefusalReason)>,
    /// The price of a unit of each line, as the buyer's home of its item has it: `Some(None)` is
    /// the first price of the item. Empty if this process alone has refused a line.
    pub prices: Vec<Option<Option<u64>>>,
}

impl Engine {
    pub(super) async fn foresee_lines(
        &self,
        cart: &Cart,
        items: &[Arc<KnownItem>],
    ) -> Result<ForeseenLines, EngineError> {
        let known = items.iter().map(|known| match known.is_archived() {
            true => Some(RefusalReason::NotOpen),
            false => known.stock.foresees().and_then(reason),
        });
        if let Some(refused) = first(known) {
            return Ok(ForeseenLines {
                refusal: Some(refused),
                prices: Vec::new(),
            });
        }
        let homes = items.iter().zip(&cart.lines);
        let homes = homes.map(|(known, line)| known.stock.foresee(&cart.buyer, line.quantity));
        let homes = join_all(homes).await;
        let prices = homes.iter().map(|home| home.price).collect();
        for (line, _) in homes
            .iter()
            .enumerate()
            .filter(|(_, home)| home.refusal == Some(Foreseen::Missing))
        {
            if self.archived(&items[line].item.id).await?.is_some() {
                let refusal = Some((line, RefusalReason::NotOpen));
                return Ok(ForeseenLines { refusal, prices });
            }
        }
        let refusals = homes.into_iter();
        let refusal = first(refusals.map(|home| home.refusal.and_then(reason)));
        Ok(ForeseenLines { refusal, prices })
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
