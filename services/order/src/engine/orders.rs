//! Placing an order, and finding one.

use std::time::Duration;

use domain::{
    BuyerId, Durability, IdempotencyKey, ItemId, Order, OrderId, OrderState, Quantity, TakenOrder,
};
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
    ///
    /// It has one time for all of its steps, and a timer only for those that wait: nearly every order meets a known item and an outcome that says all,
    /// and has the stock's own timer alone.
    pub async fn place(&self, placement: Placement) -> Result<Placed, EngineError> {
        let until = Instant::now() + self.settings.order_within;
        let known = match self.items.get(&placement.item) {
            Some(known) => known,
            None => match self
                .in_time_until(until, self.known(&placement.item))
                .await?
            {
                Some(known) => known,
                None => return Ok(Placed::ItemNotFound),
            },
        };
        let id = OrderId::derive(&known.item.id, known.tag, &placement.buyer, &placement.key);
        let acknowledge = acknowledge(&known, placement.respond_async);
        let within = until.saturating_duration_since(Instant::now());
        let ask = Ask {
            order: id,
            buyer: placement.buyer,
            quantity: placement.quantity,
            acknowledge,
            within,
        };
        let outcome = match known.stock.order(ask).await {
            Ok(outcome) => outcome,
            Err(StockError::OutcomeUnknown(_)) => {
                return Err(EngineError::OutcomeUnknown(self.settings.order_within));
            }
            Err(error) => return Err(error.into()),
        };
        match said(acknowledge, outcome, id, placement.quantity) {
            Said::Placed(placed) => Ok(placed),
            // Boxed, since it is rare, and would make the future of every order larger.
            Said::Open(question) => {
                Box::pin(self.in_time_until(
                    until,
                    self.ask_ledger(question, id, placement.quantity, until),
                ))
                .await
            }
        }
    }

    async fn ask_ledger(
        &self,
        question: Question,
        id: OrderId,
        quantity: Quantity,
        until: Instant,
    ) -> Result<Placed, EngineError> {
        Ok(match question {
            Question::IsThereOne { otherwise } => {
                self.in_ledger(id, quantity).await?.unwrap_or(otherwise)
            }
            Question::HasItMoved { held } => self
                .ledger
                .order(id)
                .await?
                .map_or(held, |order| moved_on(order, true)),
            Question::WhatBecameOfIt { replayed } => {
                moved_on(self.wait_for_order(id, 0, until).await?, replayed)
            }
        })
    }

    /// What the ledger says of an order that the stock does not know.
    async fn in_ledger(
        &self,
        id: OrderId,
        quantity: Quantity,
    ) -> Result<Option<Placed>, EngineError> {
        let placed = |order: Order| match order.quantity == quantity {
            true => moved_on(order, true),
            false => Placed::KeyReused {
                quantity: order.quantity,
            },
        };
        Ok(self.ledger.order(id).await?.map(placed))
    }

    /// Waits until the ledger has the order, and this attempt of it.
    pub(super) async fn wait_for_order(
        &self,
        id: OrderId,
        attempt: u8,
        until: Instant,
    ) -> Result<Order, EngineError> {
        let mut pause = LOOK_FIRST;
        loop {
            if let Some(order) = self
                .ledger
                .order(id)
                .await?
                .filter(|order| order.attempt >= attempt)
            {
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
    pub async fn find_order(
        &self,
        id: OrderId,
        buyer: Option<&BuyerId>,
    ) -> Result<Option<Order>, EngineError> {
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
            let Some(known) = self.known(&item.id).await? else {
                continue;
            };
            if let Some(Unrecorded {
                order,
                segment,
                expires_at,
            }) = known.stock.find_unrecorded(id).await?
            {
                let TakenOrder {
                    id,
                    buyer,
                    quantity,
                } = order;
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

/// What an outcome of the stock says of an order.
enum Said {
    Placed(Placed),
    /// The ledger knows more.
    Open(Question),
}

/// What the ledger is asked of an order.
enum Question {
    /// Home may have forgotten, in a failover, an order that the ledger has, and is not mended yet. Those who are turned away at the door are the
    /// crowd; of those who got as far as this there are few enough to ask for.
    IsThereOne { otherwise: Placed },
    /// It may have been paid or cancelled since, and whoever repeats it wants to know. If the ledger does not have it, it has not.
    HasItMoved { held: Placed },
    /// It is there, or will be.
    WhatBecameOfIt { replayed: bool },
}

fn said(acknowledge: Acknowledge, outcome: Outcome, id: OrderId, quantity: Quantity) -> Said {
    match outcome {
        Outcome::KeyReused { quantity } => Said::Placed(Placed::KeyReused { quantity }),
        Outcome::NotOpen {
            state, opens_at, ..
        } => Said::Placed(Placed::NotOpen { state, opens_at }),
        Outcome::TurnedAway | Outcome::Rejected => Said::Placed(Placed::SoldOut),
        Outcome::SoldOut => Said::Open(Question::IsThereOne {
            otherwise: Placed::SoldOut,
        }),
        Outcome::BuyerLimitReached => Said::Open(Question::IsThereOne {
            otherwise: Placed::BuyerLimitReached,
        }),
        Outcome::Held {
            expires_at,
            replayed,
            recorded,
        } => {
            let held = Placed::Order {
                id,
                quantity,
                state: OrderState::Held,
                expires_at,
                replayed,
                recorded,
            };
            match acknowledge {
                Acknowledge::Recorded if !recorded => {
                    Said::Open(Question::WhatBecameOfIt { replayed })
                }
                Acknowledge::Accepted if replayed => Said::Open(Question::HasItMoved { held }),
                Acknowledge::Recorded | Acknowledge::Accepted => Said::Placed(held),
            }
        }
        Outcome::Released => Said::Open(Question::WhatBecameOfIt { replayed: true }),
    }
}

/// An order that was placed before, as the ledger has it.
fn moved_on(order: Order, replayed: bool) -> Placed {
    let Order {
        id,
        quantity,
        state,
        expires_at,
        ..
    } = order;
    match state {
        OrderState::Rejected => Placed::SoldOut,
        state => Placed::Order {
            id,
            quantity,
            state,
            expires_at,
            replayed,
            recorded: true,
        },
    }
}

fn acknowledge(known: &KnownItem, respond_async: bool) -> Acknowledge {
    match known.item.durability {
        Durability::Recorded if !respond_async => Acknowledge::Recorded,
        // What replicas must have confirmed, the stock answers when they have.
        Durability::Recorded | Durability::Accepted | Durability::Replicated => {
            Acknowledge::Accepted
        }
    }
}
