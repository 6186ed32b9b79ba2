//! Placing an order, and finding one.

use std::time::Duration;

use domain::{BuyerId, Durability, IdempotencyKey, ItemId, Order, OrderId, OrderState, Quantity, TakenOrder};
use jiff::Timestamp;
use stock::{Acknowledge, Ask, Outcome, StockError, Unrecorded};
use tokio::time::Instant;

use super::{Engine, EngineError, KnownItem};

/// An order to be placed.
#[derive(Debug, Clone)]
pub struct Placement {
    /// What.
    pub item: ItemId,
    /// Who.
    pub buyer: BuyerId,
    /// Which of the buyer's orders.
    pub key: IdempotencyKey,
    /// How many.
    pub quantity: Quantity,
    /// The buyer does not want to wait for the ledger.
    pub respond_async: bool,
}

/// What became of it, in order of precedence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Placed {
    /// There is no such item.
    ItemNotFound,
    /// The key stands for an order of another quantity.
    KeyReused {
        /// That quantity.
        quantity: Quantity,
    },
    /// The item does not sell now.
    NotOpen {
        /// `open` outside its window, `paused` or `closed`.
        state: String,
        /// From when on it sells.
        opens_at: Option<Timestamp>,
    },
    /// The buyer would hold more than one may.
    BuyerLimitReached,
    /// The order is placed.
    Order {
        /// Its name.
        id: OrderId,
        /// How many.
        quantity: Quantity,
        /// Where it stands: `held`, unless it was placed before and has moved on.
        state: OrderState,
        /// When the hold is over.
        expires_at: Timestamp,
        /// It had been placed before this request.
        replayed: bool,
        /// The ledger has it.
        recorded: bool,
    },
    /// Nothing is left.
    SoldOut,
}

/// Pauses between looks for an order in the ledger.
const LOOK_FIRST: Duration = Duration::from_millis(4);
const LOOK_MOST: Duration = Duration::from_millis(64);

impl Engine {
    /// Places the order. The same item, buyer and key are always the same order, whoever is asked and however often.
    pub async fn place(&self, placement: Placement) -> Result<Placed, EngineError> {
        self.in_time(self.place_or_wait(placement)).await
    }

    async fn place_or_wait(&self, placement: Placement) -> Result<Placed, EngineError> {
        let until = Instant::now() + self.settings.order_within;
        let Some(known) = self.known(&placement.item).await? else { return Ok(Placed::ItemNotFound) };
        let id = OrderId::derive(&known.item.id, known.tag, &placement.buyer, &placement.key);
        let acknowledge = acknowledge(&known, placement.respond_async);
        let ask = Ask { order: id, buyer: placement.buyer, quantity: placement.quantity, acknowledge, within: self.settings.order_within };
        match known.stock.order(ask).await {
            Ok(outcome) => self.placed(id, acknowledge, outcome, placement.quantity, until).await,
            Err(StockError::OutcomeUnknown(after)) => Err(EngineError::OutcomeUnknown(after)),
            Err(error) => Err(error.into()),
        }
    }

    async fn placed(
        &self,
        id: OrderId,
        acknowledge: Acknowledge,
        outcome: Outcome,
        quantity: Quantity,
        until: Instant,
    ) -> Result<Placed, EngineError> {
        Ok(match outcome {
            Outcome::KeyReused { quantity } => Placed::KeyReused { quantity },
            Outcome::NotOpen { state, opens_at, .. } => Placed::NotOpen { state, opens_at },
            Outcome::TurnedAway | Outcome::Rejected => Placed::SoldOut,
            // Home may have forgotten, in a failover, an order that the ledger has, and is not mended yet. Those who are turned away at
            // the door are the crowd; of those who got as far as this there are few enough to ask for.
            Outcome::SoldOut => self.in_ledger(id, quantity).await?.unwrap_or(Placed::SoldOut),
            Outcome::BuyerLimitReached => self.in_ledger(id, quantity).await?.unwrap_or(Placed::BuyerLimitReached),
            Outcome::Held { expires_at, replayed, recorded } => {
                let held = Placed::Order { id, quantity, state: OrderState::Held, expires_at, replayed, recorded };
                match acknowledge {
                    Acknowledge::Recorded if !recorded => moved_on(self.wait_for_order(id, 0, until).await?, replayed),
                    // It may have been paid or cancelled since, and whoever repeats it wants to know. If the ledger does not have it, it has not.
                    Acknowledge::Accepted if replayed => self.ledger.order(id).await?.map_or(held, |order| moved_on(order, replayed)),
                    Acknowledge::Recorded | Acknowledge::Accepted => held,
                }
            }
            Outcome::Released => moved_on(self.wait_for_order(id, 0, until).await?, true),
        })
    }

    /// What the ledger says of an order that the stock does not know.
    async fn in_ledger(&self, id: OrderId, quantity: Quantity) -> Result<Option<Placed>, EngineError> {
        let placed = |order: Order| match order.quantity == quantity {
            true => moved_on(order, true),
            false => Placed::KeyReused { quantity: order.quantity },
        };
        Ok(self.ledger.order(id).await?.map(placed))
    }

    /// Waits until the ledger has the order, and this attempt of it.
    pub(super) async fn wait_for_order(&self, id: OrderId, attempt: u8, until: Instant) -> Result<Order, EngineError> {
        let mut pause = LOOK_FIRST;
        loop {
            if let Some(order) = self.ledger.order(id).await?.filter(|order| order.attempt >= attempt) {
                return Ok(order);
            }
            if Instant::now() + pause > until {
                return Err(EngineError::OutcomeUnknown(self.settings.order_within));
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LOOK_MOST);
        }
    }

    /// The order, if the ledger or a segment has it, and if it is the buyer's (`None`: whoever's it is).
    pub async fn find_order(&self, id: OrderId, buyer: Option<&BuyerId>) -> Result<Option<Order>, EngineError> {
        let mut found = self.ledger.order(id).await?;
        if found.is_none() {
            found = self.find_unrecorded(id).await?;
        }
        if found.is_none() {
            // It may have been recorded between the two looks.
            found = self.ledger.order(id).await?;
        }
        Ok(found.filter(|order| buyer.is_none_or(|buyer| *buyer == order.buyer)))
    }

    async fn find_unrecorded(&self, id: OrderId) -> Result<Option<Order>, EngineError> {
        for item in self.ledger.items_tagged(id.tag()).await? {
            let Some(known) = self.known(&item.id).await? else { continue };
            if let Some(Unrecorded { order, segment, expires_at }) = known.stock.find_unrecorded(id).await? {
                let TakenOrder { id, buyer, quantity } = order;
                return Ok(Some(Order {
                    id,
                    item: item.id,
                    segment,
                    buyer,
                    quantity,
                    state: OrderState::Held,
                    expires_at,
                    attempt: 0,
                    payment: None,
                    version: 0,
                }));
            }
        }
        Ok(None)
    }
}

/// An order that was placed before, as the ledger has it.
fn moved_on(order: Order, replayed: bool) -> Placed {
    let Order { id, quantity, state, expires_at, .. } = order;
    match state {
        OrderState::Rejected => Placed::SoldOut,
        state => Placed::Order { id, quantity, state, expires_at, replayed, recorded: true },
    }
}

fn acknowledge(known: &KnownItem, respond_async: bool) -> Acknowledge {
    match known.item.durability {
        Durability::Recorded if !respond_async => Acknowledge::Recorded,
        // What replicas must have confirmed, the stock answers when they have.
        Durability::Recorded | Durability::Accepted | Durability::Replicated => Acknowledge::Accepted,
    }
}
