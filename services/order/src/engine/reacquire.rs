//! Taking units again for an order whose hold has expired, because it is paid late.

use domain::{Order, OrderId};
use stock::{Acknowledge, Outcome, Reservation, StockError};
use tokio::time::Instant;

use super::{
    Engine, EngineError,
    orders::{POLL_PAUSE_MAX, POLL_PAUSE_MIN},
};

/// What became of an order that wants its units again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reacquired {
    /// It has units, under the id of its next attempt. The ledger may not have recorded them yet.
    Taken,
    /// There are none for it.
    Refused,
    /// A concurrent request took units under this id and released them since. The order has
    /// changed, and must be read again.
    Overtaken,
}

impl Engine {
    /// Reserves units for the expired order again, under the id of its next attempt. A repeat at
    /// any instance has the same result.
    ///
    /// The expired units may still be returning. Until then they count against the buyer's limit,
    /// and they may be the last units of the item. So this returns them first: an order never has
    /// twice as many, of which other buyers would hear that the item is sold out.
    pub(super) async fn reacquire(
        &self,
        order: &Order,
        acknowledge: Acknowledge,
        until: Instant,
    ) -> Result<Reacquired, EngineError> {
        // The rest of the time belongs to the reservation.
        let half = Instant::now() + until.saturating_duration_since(Instant::now()) / 2;
        self.return_first(order, half).await?;
        if order.attempt >= OrderId::MAX_REACQUISITIONS {
            return Ok(Reacquired::Refused);
        }
        self.reserve_again(order, acknowledge, until).await
    }

    /// Returns the units of the order, with the patience of a reservation.
    async fn return_first(&self, order: &Order, until: Instant) -> Result<(), EngineError> {
        let mut pause = POLL_PAUSE_MIN;
        loop {
            match self.return_units(order).await {
                Err(EngineError::Stock(_)) if Instant::now() + pause < until => {
                    tokio::time::sleep(pause).await;
                }
                returned => return returned,
            }
            pause = (pause * 2).min(POLL_PAUSE_MAX);
        }
    }

    async fn reserve_again(
        &self,
        order: &Order,
        acknowledge: Acknowledge,
        until: Instant,
    ) -> Result<Reacquired, EngineError> {
        let Some(known) = self.known(&order.item).await? else {
            return Ok(Reacquired::Refused);
        };
        if known.is_archived() {
            return Ok(Reacquired::Refused);
        }
        let reservation = Reservation {
            order: order.id.reacquire(order.attempt + 1),
            buyer: order.buyer.clone(),
            quantity: order.quantity,
            acknowledge,
            within: until.saturating_duration_since(Instant::now()),
        };
        match known.stock.order(reservation).await {
            Ok(Outcome::Held { .. }) => Ok(Reacquired::Taken),
            Ok(Outcome::Released) => Ok(Reacquired::Overtaken),
            Ok(_) => Ok(Reacquired::Refused),
            Err(StockError::OutcomeUnknown(after)) => Err(EngineError::OutcomeUnknown(after)),
            Err(error) if self.is_of_archived(&order.item, &error).await? => {
                Ok(Reacquired::Refused)
            }
            Err(error) => Err(error.into()),
        }
    }
}
