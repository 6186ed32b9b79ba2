//! Refunds of orders and carts, and reports about money that was returned.
//!
//! A provider sends its reports in any order. A refund that overtakes its payment must not be
//! dropped: the payment would then confirm an order whose money was returned. So the ledger
//! remembers it, and refuses the payment when it comes.

use std::sync::Arc;

use domain::{Cart, CartId, Order, OrderId, OrderState, PaymentId};
use jiff::Timestamp;
use ledger::{NotedRefund, Payer, PaymentReturn, RefundReport, RefundState, ReturnedPayment};
use tokio::time::Instant;
use uuid::Uuid;

use super::{Caller, Ended, Engine, EngineError, Paid, Payment, Purchase};

/// What a report about money says that it is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Payable {
    /// An order.
    Order(OrderId),
    /// A cart.
    Cart(CartId),
}

impl Payable {
    /// The id as the ledger has it beside a payment.
    pub fn as_uuid(&self) -> Uuid {
        match self {
            Self::Order(order) => order.first().as_uuid(),
            Self::Cart(cart) => cart.as_uuid(),
        }
    }
}

impl From<&Payer> for Payable {
    fn from(payer: &Payer) -> Self {
        match payer.cart.filter(|_| payer.is_cart) {
            Some(cart) => Self::Cart(cart),
            None => Self::Order(payer.order),
        }
    }
}

/// Result of a report that all money of a payment was returned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MoneyReturned {
    /// The payment has paid this order, which is `refunded` now.
    Order(Order),
    /// The payment has paid this cart, which is `refunded` now.
    Cart(Cart),
    /// The payment has paid nothing, and never will. It was reported for this.
    Unmatched(Payable),
    /// Nothing is known of the payment, and the report names nothing that exists.
    Unknown,
}

/// What an admin has returned the money of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Returned {
    /// An order that was paid.
    Order,
    /// An order of the list of money that is due.
    Row,
}

impl Returned {
    fn applies(self, order: &Order) -> bool {
        match self {
            Self::Order => is_paid_for(order),
            Self::Row => order.state == OrderState::RefundDue,
        }
    }
}

impl Engine {
    /// Records that `admin` has returned the money, and releases the units of the order if it has
    /// any.
    pub async fn refund(&self, id: OrderId, admin: &Arc<str>) -> Result<Ended<Order>, EngineError> {
        self.return_order(id, admin, Returned::Order).await
    }

    /// The step to `refunded` also spends the payment, and settles the refunds of it that are known
    /// to have failed: what an admin returns includes their money. It is one transaction, so a
    /// repeat does not settle a refund that has failed since.
    async fn return_order(
        &self,
        id: OrderId,
        admin: &Arc<str>,
        of: Returned,
    ) -> Result<Ended<Order>, EngineError> {
        let return_once = |until| async move {
            let Some(order) = self.recorded_order(id, None, until).await? else {
                return Ok(Some(Ended::NotFound));
            };
            if let Some(cart) = order.cart {
                return Ok(Some(Ended::InCart(cart)));
            }
            let is_done = match of {
                Returned::Order => order.state == OrderState::Refunded,
                // Not one that has left the list otherwise.
                Returned::Row if order.state == OrderState::Refunded => {
                    self.ledger.is_order_done(&order).await?
                }
                Returned::Row => false,
            };
            if is_done {
                return Ok(Some(Ended::Done(order)));
            }
            if !of.applies(&order) {
                return Ok(Some(Ended::Refused(order.state)));
            }
            let returned = match of {
                Returned::Order => self.ledger.return_order(&order, admin).await,
                Returned::Row => self.ledger.note_order_done(&order, admin).await,
            };
            let returned = returned.map_err(EngineError::of_change)?;
            if returned.is_some() {
                self.stepped(&order, OrderState::Refunded).await;
            }
            Ok(returned.map(Ended::Done))
        };
        self.in_rounds(return_once).await
    }

    /// What a payment has come to. One that was refused asks for its money, unless that was
    /// returned: the report may be in the journal by now.
    pub(super) async fn unless_returned<T: Purchase>(
        &self,
        paid: Paid<T>,
        payment: &Payment,
        payer: Uuid,
    ) -> Result<Paid<T>, EngineError> {
        if !paid.is_money_due() {
            return Ok(paid);
        }
        let returned = self.is_returned(&payment.id, payer).await;
        match returned.map_err(EngineError::after_change)? {
            true => Ok(Paid::Returned),
            false => Ok(paid),
        }
    }

    /// Whether the money of a payment that is reported for this order or cart was returned. A
    /// return that came before anything was known of the payment belongs to `payer` from now on,
    /// with the refunds of it that have failed: their money is due.
    pub(super) async fn is_returned(
        &self,
        payment: &PaymentId,
        payer: Uuid,
    ) -> Result<bool, EngineError> {
        if !self.ledger.is_returned(payment).await? {
            return Ok(false);
        }
        let returned = PaymentReturn {
            payment: payment.clone(),
            payer: Some(payer),
            at: None,
        };
        self.note_return(&returned).await.map(|_| true)
    }

    /// The same as the provider reports it, if this payment has paid the order. Another payment of
    /// its buyer may have been returned because the order was paid already.
    async fn refund_payment(
        &self,
        id: OrderId,
        payment: &PaymentId,
    ) -> Result<Ended<Order>, EngineError> {
        let target = |order: &Order| {
            let applies = is_paid_for(order) && order.payment.as_ref() == Some(payment);
            applies.then_some(OrderState::Refunded)
        };
        self.end(id, &Caller::Provider, OrderState::Refunded, target)
            .await
    }

    /// The same for an admin, if the order is `refund_due`: its payment found no units.
    pub(super) async fn refund_due_order(
        &self,
        id: OrderId,
        admin: &Arc<str>,
    ) -> Result<Ended<Order>, EngineError> {
        self.return_order(id, admin, Returned::Row).await
    }

    /// Applies the report that all money of a payment was returned, at `at` by the provider's
    /// clock. What the payment has paid is refunded, whatever the report names. A payment that has
    /// paid nothing leaves the list of money that is due, and pays nothing later.
    pub async fn money_returned(
        &self,
        payment: &PaymentId,
        named: Option<Payable>,
        at: Option<Timestamp>,
    ) -> Result<MoneyReturned, EngineError> {
        let returned = PaymentReturn {
            payment: payment.clone(),
            payer: named.map(|named| named.as_uuid()),
            at,
        };
        let mut noted = self.note_return(&returned).await?;
        if noted == ReturnedPayment::Unknown {
            let recorded = self.is_recorded_soon(named).await;
            if recorded.map_err(EngineError::after_change)? {
                let again = self.note_return(&returned).await;
                noted = again.map_err(EngineError::after_change)?;
            }
        }
        let ReturnedPayment::Of(payer) = noted else {
            return Ok(MoneyReturned::Unknown);
        };
        let of = Payable::from(&payer);
        if !payer.is_paid {
            return Ok(MoneyReturned::Unmatched(of));
        }
        let refunded = match of {
            Payable::Order(order) => {
                let ended = self.refund_payment(order, payment).await;
                match ended.map_err(EngineError::after_change)? {
                    Ended::Done(order) => Some(MoneyReturned::Order(order)),
                    _ => None,
                }
            }
            Payable::Cart(cart) => {
                let ended = self.refund_cart_payment(cart, payment).await;
                match ended.map_err(EngineError::after_change)? {
                    Ended::Done(cart) => Some(MoneyReturned::Cart(cart)),
                    _ => None,
                }
            }
        };
        Ok(refunded.unwrap_or(MoneyReturned::Unmatched(of)))
    }

    async fn note_return(&self, returned: &PaymentReturn) -> Result<ReturnedPayment, EngineError> {
        let noted = self.ledger.note_return(returned).await;
        noted.map_err(EngineError::of_change)
    }

    /// Waits for an order that only its segment has yet.
    async fn is_recorded_soon(&self, named: Option<Payable>) -> Result<bool, EngineError> {
        let Some(Payable::Order(order)) = named else {
            return Ok(false);
        };
        let until = Instant::now() + self.settings.order_timeout;
        let recorded = self.recorded_order(order, None, until);
        Ok(self.with_timeout(recorded).await?.is_some())
    }

    /// Applies a report about one refund. A refund that has failed makes its money due again.
    pub async fn refund_reported(&self, report: &RefundReport) -> Result<NotedRefund, EngineError> {
        let noted = self.ledger.note_refund(report).await;
        let noted = noted.map_err(EngineError::of_change)?;
        if let NotedRefund::Of {
            payer,
            is_due: true,
        } = &noted
        {
            tracing::warn!(order = %payer.order, payment = %report.payment, refund = %report.id, state = report.state.as_str(), "a refund has failed: the money must be returned again");
        }
        let has_failed = matches!(report.state, RefundState::Failed | RefundState::Canceled);
        if noted == NotedRefund::Unknown && has_failed {
            tracing::warn!(payment = %report.payment, refund = %report.id, state = report.state.as_str(), "a refund has failed whose payment is not known: it is of something else, or of an order that was dropped");
        }
        Ok(noted)
    }
}

fn is_paid_for(order: &Order) -> bool {
    matches!(order.state, OrderState::Confirmed | OrderState::RefundDue)
}
