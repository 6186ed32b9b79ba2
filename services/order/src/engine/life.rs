//! What becomes of an order after it was placed: paid, cancelled, refunded.
//!
//! Every step is decided on the order as the ledger has it, and made there first, checked against its version: of two that race one wins, and the
//! other looks again. Units go back to their segment only then.

use domain::{BuyerId, Order, OrderId, OrderState, PaymentId, TakenOrder};
use ledger::{NewJournalEntry, Transition};
use serde_json::json;
use stock::{Acknowledge, Ask, GiveBack, Outcome, StockError};
use tokio::time::Instant;

use super::{Engine, EngineError};

/// A payment that the provider reports.
#[derive(Debug, Clone)]
pub struct Payment {
    /// The provider's name for it.
    pub id: PaymentId,
    /// What was paid, in the currency's smallest unit, if the provider says so.
    pub amount_cents: Option<u64>,
}

/// What a payment came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Paid {
    /// The order is confirmed; or it is `refund_due`, because its hold was over and its units could not be had again.
    Order(Order),
    /// There is no such order.
    NotFound,
    /// The order has ended: the money is to be given back. The journal has it.
    NotPayable(OrderState),
    /// Another payment had paid the order: this one is to be given back. The journal has it.
    Already,
    /// The amount is not what the order costs. The journal has the payment.
    OtherAmount {
        /// What it costs.
        expected: u64,
    },
}

/// What a cancellation or a refund came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// The order as it is now, whether this or an earlier request ended it.
    Order(Order),
    /// There is no such order, or it is somebody else's.
    NotFound,
    /// An order in this state cannot be ended so.
    Refused(OrderState),
}

impl Engine {
    /// Takes in a payment. May be repeated, as providers do: the same payment has the same outcome.
    pub async fn pay(&self, id: OrderId, payment: &Payment) -> Result<Paid, EngineError> {
        self.in_time(self.pay_or_wait(id, payment)).await
    }

    async fn pay_or_wait(&self, id: OrderId, payment: &Payment) -> Result<Paid, EngineError> {
        let until = Instant::now() + self.settings.order_within;
        while Instant::now() < until {
            let Some(order) = self.recorded_order(id, until).await? else {
                return Ok(Paid::NotFound);
            };
            if let Some(expected) = self.other_amount(&order, payment).await? {
                return self.paid_otherwise(&order, payment, expected).await;
            }
            let paid = match order.state {
                OrderState::Held => self
                    .step(&order, OrderState::Confirmed, Some(&payment.id))
                    .await?
                    .map(Paid::Order),
                OrderState::Expired => self.pay_late(&order, payment, until).await?,
                OrderState::Confirmed | OrderState::RefundDue | OrderState::Refunded
                    if order.payment.as_ref() == Some(&payment.id) =>
                {
                    Some(Paid::Order(order))
                }
                OrderState::Confirmed | OrderState::RefundDue => {
                    Some(self.paid_twice(&order, payment).await?)
                }
                OrderState::Cancelled | OrderState::Refunded | OrderState::Rejected => {
                    Some(self.paid_in_vain(&order, payment).await?)
                }
            };
            if let Some(paid) = paid {
                return Ok(paid);
            }
        }
        Err(EngineError::OutcomeUnknown(self.settings.order_within))
    }

    async fn other_amount(
        &self,
        order: &Order,
        payment: &Payment,
    ) -> Result<Option<u64>, EngineError> {
        let Some(amount) = payment.amount_cents else {
            return Ok(None);
        };
        let Some(known) = self.known(&order.item).await? else {
            return Ok(None);
        };
        let expected = known
            .item
            .price_cents
            .saturating_mul(u64::from(order.quantity.get()));
        Ok((amount != expected).then_some(expected))
    }

    /// The hold was over. If units can be had again the order is held anew, and the next look pays it; if not, the money is to be given back.
    ///
    /// Whoever ended the hold may not have given its units back yet, and while they are on their way the buyer's own would stand in the buyer's way,
    /// by the limit or as the last ones. So they go back first.
    async fn pay_late(
        &self,
        order: &Order,
        payment: &Payment,
        until: Instant,
    ) -> Result<Option<Paid>, EngineError> {
        let given_back = self.give_back(order).await;
        if order.attempt < OrderId::MAX_RETAKES && self.retake(order, until).await? {
            return Ok(None);
        }
        // As long as that is not certain, neither is that there are no units for it.
        given_back?;
        Ok(self
            .step(order, OrderState::RefundDue, Some(&payment.id))
            .await?
            .map(Paid::Order))
    }

    /// Takes units for the order anew, under its next id. Whoever repeats it, at any instance, ends in the same place.
    async fn retake(&self, order: &Order, until: Instant) -> Result<bool, EngineError> {
        let Some(known) = self.known(&order.item).await? else {
            return Ok(false);
        };
        let attempt = order.attempt + 1;
        let ask = Ask {
            order: order.id.retake(attempt),
            buyer: order.buyer.clone(),
            quantity: order.quantity,
            acknowledge: Acknowledge::Recorded,
            within: until.saturating_duration_since(Instant::now()),
        };
        match known.stock.order(ask).await {
            Ok(Outcome::Held { .. }) => self
                .wait_for_order(order.id, attempt, until)
                .await
                .map(|_| true),
            // Somebody took them and they have been given back since: the order has moved on, and is to be looked at again.
            Ok(Outcome::Released) => Ok(true),
            Ok(_) => Ok(false),
            Err(StockError::OutcomeUnknown(after)) => Err(EngineError::OutcomeUnknown(after)),
            Err(error) => Err(error.into()),
        }
    }

    async fn paid_twice(&self, order: &Order, payment: &Payment) -> Result<Paid, EngineError> {
        self.note_stray_payment(order, payment).await?;
        Ok(Paid::Already)
    }

    async fn paid_in_vain(&self, order: &Order, payment: &Payment) -> Result<Paid, EngineError> {
        self.note_stray_payment(order, payment).await?;
        Ok(Paid::NotPayable(order.state))
    }

    /// The order has it all the same if it is its own payment, which is reported once more and otherwise.
    async fn paid_otherwise(
        &self,
        order: &Order,
        payment: &Payment,
        expected: u64,
    ) -> Result<Paid, EngineError> {
        if order.payment.as_ref() != Some(&payment.id) {
            self.note_stray_payment(order, payment).await?;
        }
        Ok(Paid::OtherAmount { expected })
    }

    /// Money that belongs to no order: somebody has to give it back, so it must not be known to the provider alone. Once, however often it is reported.
    async fn note_stray_payment(
        &self,
        order: &Order,
        payment: &Payment,
    ) -> Result<(), EngineError> {
        let entry = NewJournalEntry {
            item: order.item.clone(),
            actor: "payment".into(),
            action: "stray_payment".into(),
            token: None,
            before: json!({ "order": order.id, "state": order.state }),
            after: json!({ "payment": payment.id, "amount_cents": payment.amount_cents }),
        };
        if self
            .ledger
            .note_once(
                &entry,
                &format!("stray_payment {} {}", order.id, payment.id),
            )
            .await?
        {
            tracing::warn!(order = %order.id, state = %order.state, payment = %payment.id, "a payment for an order that cannot take it");
        }
        Ok(())
    }

    /// Gives the units of a held order back; `buyer` must be its buyer (`None`: whoever's it is).
    pub async fn cancel(&self, id: OrderId, buyer: Option<&BuyerId>) -> Result<Ended, EngineError> {
        let target = |state| (state == OrderState::Held).then_some(OrderState::Cancelled);
        self.in_time(self.end(id, buyer, OrderState::Cancelled, target))
            .await
    }

    /// Notes that the money was given back; units that the order has go back with it.
    pub async fn refund(&self, id: OrderId) -> Result<Ended, EngineError> {
        let target = |state| {
            matches!(state, OrderState::Confirmed | OrderState::RefundDue)
                .then_some(OrderState::Refunded)
        };
        self.in_time(self.end(id, None, OrderState::Refunded, target))
            .await
    }

    async fn end(
        &self,
        id: OrderId,
        buyer: Option<&BuyerId>,
        done: OrderState,
        target: impl Fn(OrderState) -> Option<OrderState>,
    ) -> Result<Ended, EngineError> {
        let until = Instant::now() + self.settings.order_within;
        while Instant::now() < until {
            let order = self
                .recorded_order(id, until)
                .await?
                .filter(|order| buyer.is_none_or(|buyer| *buyer == order.buyer));
            let Some(order) = order else {
                return Ok(Ended::NotFound);
            };
            if order.state == done {
                return Ok(Ended::Order(order));
            }
            let Some(to) = target(order.state) else {
                return Ok(Ended::Refused(order.state));
            };
            if let Some(ended) = self.step(&order, to, None).await? {
                return Ok(Ended::Order(ended));
            }
        }
        Err(EngineError::OutcomeUnknown(self.settings.order_within))
    }

    /// One step in the ledger, and then the units go back, if they do. `None`: somebody else was faster.
    async fn step(
        &self,
        order: &Order,
        to: OrderState,
        payment: Option<&PaymentId>,
    ) -> Result<Option<Order>, EngineError> {
        let stepped = self
            .transitions
            .make(Transition {
                order: order.clone(),
                to,
                payment: payment.cloned(),
            })
            .await?;
        if stepped.is_some() {
            metrics::counter!("stockade_transitions_total", "to" => to.as_str()).increment(1);
            if order.state.units() != domain::Units::None && to.units() == domain::Units::None {
                self.give_back_or_leave(order).await;
            }
        }
        Ok(stepped)
    }

    /// The ledger has it as a pending return, so if this fails a reconciler repeats it.
    async fn give_back_or_leave(&self, order: &Order) {
        if let Err(error) = self.give_back(order).await {
            tracing::warn!(order = %order.id, error = &error as &dyn std::error::Error, "its units did not go back at once; a reconciler repeats it");
        }
    }

    /// Gives back what the order's latest attempt took. A repeat changes nothing.
    async fn give_back(&self, order: &Order) -> Result<(), EngineError> {
        let Some(known) = self.known(&order.item).await? else {
            return Ok(());
        };
        let taken = TakenOrder {
            id: order.take_id(),
            buyer: order.buyer.clone(),
            quantity: order.quantity,
        };
        known
            .stock
            .give_back(&[GiveBack {
                segment: order.segment,
                order: taken,
            }])
            .await?;
        Ok(())
    }

    /// The order once the ledger has it; waits for it if only its segment has it yet. `None`: there is no such order.
    async fn recorded_order(
        &self,
        id: OrderId,
        until: Instant,
    ) -> Result<Option<Order>, EngineError> {
        let id = id.first();
        if let Some(order) = self.ledger.order(id).await? {
            return Ok(Some(order));
        }
        if self.find_order(id, None).await?.is_none() {
            return Ok(None);
        }
        self.wait_for_order(id, 0, until).await.map(Some)
    }
}
