//! What became of the money of a payment.

use std::sync::Arc;

use async_trait::async_trait;
use domain::{Order, PaymentId};

use crate::{LedgerError, NotedRefund, PaymentReturn, RefundReport, ReturnedPayment};

/// What the order service needs to note that money was returned, or was not after all.
#[async_trait]
pub trait Refunds: Send + Sync + 'static {
    /// Notes that all money of a payment was returned. From then on it pays nothing, whatever is
    /// reported of it later, also if nothing is known of it yet. An order or a cart that it has
    /// paid is left as it is: moving it to `refunded` is a transition of its own.
    async fn note_return(&self, returned: &PaymentReturn) -> Result<ReturnedPayment, LedgerError>;

    /// Notes the state of a refund. A repeat changes nothing, and neither does an older state that
    /// arrives later. A failed refund is kept for a while even if nothing is known of its payment.
    async fn note_refund(&self, report: &RefundReport) -> Result<NotedRefund, LedgerError>;

    /// Notes that an admin has returned the money that the journal entry `entry` tells of. Returns
    /// whether it was due, or was noted before. `false`: no such money is due, because something
    /// has taken the payment, or it was returned otherwise.
    async fn note_refund_done(&self, entry: u64, actor: &str) -> Result<bool, LedgerError>;

    /// Moves a paid order to `refunded` because the admin `actor` has returned its money, if the
    /// order still has this version. In the same transaction its payment is returned, and pays
    /// nothing more, and the refunds of it that are known to have failed are settled. A refund that
    /// fails later makes the money due again. `None`: a concurrent change came first, or it is the
    /// line of a cart, which [`Carts::step_cart`](crate::Carts::step_cart) returns as a whole.
    async fn return_order(
        &self,
        order: &Order,
        actor: &Arc<str>,
    ) -> Result<Option<Order>, LedgerError>;

    /// The same for an order that is `refund_due`, of the list of money that is due.
    async fn note_order_done(
        &self,
        order: &Order,
        actor: &Arc<str>,
    ) -> Result<Option<Order>, LedgerError>;

    /// Whether [`note_order_done`](Self::note_order_done) has moved the order, so that this call
    /// repeats it.
    async fn is_order_done(&self, order: &Order) -> Result<bool, LedgerError>;

    /// Whether the money of the payment was returned, so that it can pay nothing.
    async fn is_returned(&self, payment: &PaymentId) -> Result<bool, LedgerError>;
}
