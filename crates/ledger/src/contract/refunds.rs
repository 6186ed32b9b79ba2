//! What became of the money of a payment.

use async_trait::async_trait;
use domain::PaymentId;

use crate::{LedgerError, NotedRefund, PaymentReturn, RefundReport, ReturnedPayment};

/// What the order service needs to note that money was returned, or was not after all.
#[async_trait]
pub trait Refunds: Send + Sync + 'static {
    /// Notes that all money of a payment was returned. From then on it pays nothing, whatever is
    /// reported of it later. An order or a cart that it has paid is left as it is: moving it to
    /// `refunded` is a transition of its own.
    async fn note_return(&self, returned: &PaymentReturn) -> Result<ReturnedPayment, LedgerError>;

    /// Notes the state of a refund. A repeat changes nothing, and neither does an older state that
    /// arrives later. A failed refund is kept for a while even if nothing is known of its payment.
    async fn note_refund(&self, report: &RefundReport) -> Result<NotedRefund, LedgerError>;

    /// Notes that an admin has returned the money that the journal entry `entry` tells of. Returns
    /// whether it was due, or was returned before. `false`: no such money is due.
    async fn note_refund_done(&self, entry: u64, actor: &str) -> Result<bool, LedgerError>;

    /// Notes that an admin returns the money of the order or cart that the payment has paid: the refunds
    /// of it that are known to have failed are settled. To be called before it becomes `refunded`. A
    /// refund that fails later makes the money due again.
    async fn settle_refunds(&self, payment: &PaymentId) -> Result<(), LedgerError>;

    /// Whether the money of the payment was returned, so that it can pay nothing.
    async fn is_returned(&self, payment: &PaymentId) -> Result<bool, LedgerError>;
}
