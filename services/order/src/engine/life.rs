//! The life of an order after it was placed: payment, cancellation, refund.
//!
//! Every step is decided on the order in the ledger, and is committed there first by
//! compare-and-set on its version. If two steps race, one wins and the other reads the order again.
//! Only then do units return to their segment.

use std::sync::Arc;

use domain::{Order, OrderId, OrderState, PaymentId};
use ledger::Transition;
use stock::{Acknowledge, ItemStock, Release, StockError};
use tokio::time::Instant;

use super::{Caller, Ended, Engine, EngineError, Paid, Payable, Price, reacquire::Reacquired};

/// A payment that the provider reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Payment {
    /// The provider's id of the payment.
    pub id: PaymentId,
    /// Amount paid in the currency's smallest unit. An order that costs nothing needs none.
    pub amount: Option<u64>,
    /// ISO 4217. `None`: that of the order.
    pub currency: Option<String>,
}

impl Payment {
    /// No money has moved, so there is none to return. A checkout with a full discount reports
    /// this.
    pub(super) fn is_of_nothing(&self) -> bool {
        self.amount == Some(0)
    }
}

impl Engine {
    /// Applies a payment to its order. Providers may report a payment repeatedly: the result is the
    /// same. No answer asks for money that was returned already.
    pub async fn pay(&self, id: OrderId, payment: &Payment) -> Result<Paid<Order>, EngineError> {
        // Boxed: it holds the futures of all its steps, and payments are rare beside orders.
        let paid = self
            .in_rounds(|until| Box::pin(self.pay_once(id, payment, until)))
            .await?;
        self.unless_returned(paid, payment, id.first().as_uuid())
            .await
    }

    /// `None`: the order has changed meanwhile, and must be read again.
    async fn pay_once(
        &self,
        id: OrderId,
        payment: &Payment,
        until: Instant,
    ) -> Result<Option<Paid<Order>>, EngineError> {
        let Some(order) = self.recorded_order(id, None, until).await? else {
            return Ok(Some(Paid::NotFound));
        };
        if let Some(cart) = order.cart {
            let refused = self.refuse(&order, payment, Paid::InCart(cart));
            return refused.await.map(Some);
        }
        if let Some(refused) = self.other_amount(&order, payment).await? {
            return Ok(Some(refused));
        }
        let paid = match order.state {
            OrderState::Held => self
                .step(&order, OrderState::Confirmed, Some(&payment.id), None)
                .await?
                .map(Paid::Done),
            OrderState::Expired => self.pay_late(&order, payment, until).await?,
            OrderState::Confirmed | OrderState::RefundDue | OrderState::Refunded
                if order.payment.as_ref() == Some(&payment.id) =>
            {
                Some(Paid::Done(order.clone()))
            }
            OrderState::Confirmed | OrderState::RefundDue => {
                Some(self.refuse(&order, payment, Paid::Already).await?)
            }
            OrderState::Cancelled | OrderState::Refunded | OrderState::Rejected => {
                let refused = Paid::NotPayable(order.state);
                Some(self.refuse(&order, payment, refused).await?)
            }
        };
        if paid.is_some() {
            return Ok(paid);
        }
        // A concurrent transition was faster, or the payment cannot pay this order.
        let refused = self.spent(payment, &order).await;
        refused.map_err(EngineError::after_change)
    }

    /// `None`: the amount is what the order costs.
    async fn other_amount(
        &self,
        order: &Order,
        payment: &Payment,
    ) -> Result<Option<Paid<Order>>, EngineError> {
        let Some(known) = self.known(&order.item).await? else {
            return Ok(None);
        };
        let currency = &known.item.currency;
        if payment
            .currency
            .as_ref()
            .is_some_and(|paid| paid != currency)
        {
            let expected = currency.clone();
            let refused = self.refuse(order, payment, Paid::OtherCurrency { expected });
            return refused.await.map(Some);
        }
        let expected = Price::of(&known.item).of_order(order);
        match payment.amount {
            Some(amount) if amount != expected => self
                .refuse(order, payment, Paid::OtherAmount { expected })
                .await
                .map(Some),
            None if expected > 0 => Ok(Some(Paid::NoAmount {
                expected: Some(expected),
            })),
            _ => Ok(None),
        }
    }

    /// Why the payment can pay no order any more, or not this one. `None`: it may pay this one.
    async fn spent(
        &self,
        payment: &Payment,
        order: &Order,
    ) -> Result<Option<Paid<Order>>, EngineError> {
        if self.is_returned(&payment.id, order.id.as_uuid()).await? {
            return Ok(Some(Paid::Returned));
        }
        let paid = self.ledger.paid_order(&payment.id).await?;
        if paid.is_some_and(|paid| paid != order.id) {
            let refused = self.refuse(order, payment, Paid::OtherOrder);
            return refused.await.map(Some);
        }
        Ok(None)
    }

    /// Handles a payment after the hold has expired. If units can be reacquired, the order is held
    /// again and the caller's next round confirms it. If not, the order becomes `refund_due`.
    async fn pay_late(
        &self,
        order: &Order,
        payment: &Payment,
        until: Instant,
    ) -> Result<Option<Paid<Order>>, EngineError> {
        // Before the order takes units again: the hold of those would have to expire once more.
        if let Some(refused) = self.spent(payment, order).await? {
            return Ok(Some(refused));
        }
        match self.reacquire(order, Acknowledge::Recorded, until).await? {
            Reacquired::Taken => {
                let recorded = self
                    .wait_for_order(order.id, order.attempt + 1, until)
                    .await;
                recorded.map(|_| None).map_err(EngineError::after_change)
            }
            Reacquired::Overtaken => Ok(None),
            Reacquired::Refused => Ok(self
                .step(order, OrderState::RefundDue, Some(&payment.id), None)
                .await?
                .map(Paid::Done)),
        }
    }

    /// Answers a payment that the order cannot take. The journal has it, unless it is the order's
    /// own, reported again with another amount.
    async fn refuse(
        &self,
        order: &Order,
        payment: &Payment,
        refused: Paid<Order>,
    ) -> Result<Paid<Order>, EngineError> {
        if order.payment.as_ref() != Some(&payment.id) {
            let of = Payable::Order(order.id);
            self.note_unmatched(of, &order.item, order.into(), payment)
                .await?;
        }
        Ok(refused)
    }

    /// Cancels a held order and releases its units.
    pub async fn cancel(&self, id: OrderId, caller: &Caller) -> Result<Ended<Order>, EngineError> {
        let target =
            |order: &Order| (order.state == OrderState::Held).then_some(OrderState::Cancelled);
        self.end(id, caller, OrderState::Cancelled, target).await
    }

    pub(super) async fn end(
        &self,
        id: OrderId,
        caller: &Caller,
        done: OrderState,
        target: impl Fn(&Order) -> Option<OrderState>,
    ) -> Result<Ended<Order>, EngineError> {
        let target = &target;
        let end_once = |until| async move {
            let order = self.recorded_order(id, caller.buyer(), until).await?;
            let order = order.filter(|order| caller.may_change(&order.buyer));
            let Some(order) = order else {
                return Ok(Some(Ended::NotFound));
            };
            if let Some(cart) = order.cart {
                return Ok(Some(Ended::InCart(cart)));
            }
            if order.state == done {
                return Ok(Some(Ended::Done(order)));
            }
            let Some(to) = target(&order) else {
                return Ok(Some(Ended::Refused(order.state)));
            };
            let admin = caller.admin().cloned();
            let ended = self.step(&order, to, None, admin).await?;
            Ok(ended.map(Ended::Done))
        };
        self.in_rounds(end_once).await
    }

    /// Makes one transition in the ledger, and then returns the units if the new state has none.
    /// `None`: a concurrent transition was faster. `admin`: whom the journal names.
    pub(super) async fn step(
        &self,
        order: &Order,
        to: OrderState,
        payment: Option<&PaymentId>,
        admin: Option<Arc<str>>,
    ) -> Result<Option<Order>, EngineError> {
        let transition = Transition {
            order: order.clone(),
            to,
            payment: payment.cloned(),
        };
        let stepped = self.transitions.make(transition, admin).await?;
        if stepped.is_some() {
            self.stepped(order, to).await;
        }
        Ok(stepped)
    }

    /// Counts a transition that was made, and returns the units if the new state has none.
    pub(super) async fn stepped(&self, order: &Order, to: OrderState) {
        metrics::counter!("stockade_transitions_total", "to" => to.as_str()).increment(1);
        if order.state.units() != domain::Units::None && to.units() == domain::Units::None {
            self.return_units_or_defer(order).await;
        }
    }

    /// Returns the units of the order. After a failure the ledger has a pending return, which a
    /// reconciler repeats.
    pub(super) async fn return_units_or_defer(&self, order: &Order) {
        let release = async |stock: &Arc<ItemStock>| {
            let released = stock.release_on_the_beat(Release::from(order)).await;
            released.map(drop)
        };
        if let Err(error) = self.returned(order, release).await {
            tracing::warn!(order = %order.id, error = &error as &dyn std::error::Error, "could not return the order's units; a reconciler will repeat it");
        }
    }

    /// Releases the units of the order's latest attempt at once. A repeat changes nothing.
    pub(super) async fn return_units(&self, order: &Order) -> Result<(), EngineError> {
        let release = async |stock: &Arc<ItemStock>| {
            let released = stock.release(&[Release::from(order)]).await;
            released.map(drop)
        };
        self.returned(order, release).await
    }

    /// Releases the units of the order in this way. Those of an archived item have returned in the
    /// ledger.
    async fn returned(
        &self,
        order: &Order,
        release: impl AsyncFnOnce(&Arc<ItemStock>) -> Result<(), StockError>,
    ) -> Result<(), EngineError> {
        let Some(known) = self.known(&order.item).await? else {
            return Ok(());
        };
        if known.is_archived() {
            return Ok(());
        }
        match release(&known.stock).await {
            Err(error) if !self.is_of_archived(&order.item, &error).await? => Err(error.into()),
            _ => Ok(()),
        }
    }
}
