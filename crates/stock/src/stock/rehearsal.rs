//! A dry order on an item of its own, for operators who prepare a sale. It calls the scripts of a
//! real order, and leaves nothing behind.

use std::time::Duration;

use domain::{BuyerId, Entry, IdempotencyKey, Item, OrderId, Quantity};

use crate::{
    InspectionEntries, ItemStock, Opened, Outcome, Stock, StockError,
    keys::Keys,
    request::{Acknowledge, Reservation},
    stock::segments,
};

/// Time limit of the order.
const WITHIN: Duration = Duration::from_secs(5);

/// What came of a dry order.
#[derive(Debug)]
pub struct Rehearsed {
    /// Its outcome.
    pub outcome: Outcome,
    /// The outbox that it has left, with the entry that opened the segment.
    pub entries: Vec<Entry>,
}

impl Stock {
    /// Opens the item, which must be new and in no ledger, orders one unit of it, and removes its
    /// keys. A process that dies in between leaves six keys of an item that nothing knows.
    pub async fn rehearse(&self, item: &Item) -> Result<Rehearsed, StockError> {
        for segment in segments(item) {
            if self.open_segment(item, segment.segment).await? != Opened::New {
                // It is not ours to remove.
                return Err(StockError::Moved(segment));
            }
        }
        let ordered = self.order_once(item).await;
        let removed = self.remove_rehearsal(item).await;
        let rehearsed = ordered?;
        removed?;
        Ok(rehearsed)
    }

    async fn order_once(&self, item: &Item) -> Result<Rehearsed, StockError> {
        // Not one of the items that this process sells: it is forgotten with the order.
        let stock = ItemStock::new(item, &self.shared);
        let name = item.id.as_str();
        let (Ok(buyer), Ok(key)) = (BuyerId::new(name), IdempotencyKey::new(name)) else {
            return Err(StockError::OutcomeUnknown(WITHIN));
        };
        let reservation = Reservation {
            order: OrderId::derive(&item.id, item.id.tag(), &buyer, &key),
            buyer,
            quantity: Quantity::ONE,
            acknowledge: Acknowledge::Accepted,
            within: WITHIN,
        };
        let outcome = stock.order(reservation).await?;
        let segments = stock.inspect(InspectionEntries::All).await?;
        Ok(Rehearsed {
            outcome,
            entries: segments
                .into_iter()
                .flat_map(|segment| segment.entries)
                .collect(),
        })
    }

    /// These keys are no stock of an item that is sold, so no script guards them.
    async fn remove_rehearsal(&self, item: &Item) -> Result<(), StockError> {
        for segment in segments(item) {
            let keys = Keys::of(&segment);
            let mut cmd = redis::cmd("DEL");
            cmd.arg(&keys.stock)
                .arg(&keys.decisions)
                .arg(&keys.buyers)
                .arg(&keys.outbox)
                .arg(&keys.spillovers)
                .arg(&keys.replicated);
            cmd.exec_async(&mut self.shared.connection.clone()).await?;
        }
        Ok(())
    }
}
