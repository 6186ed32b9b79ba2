//! Payments that no order and no cart can take: their entries in the journal, and the same as money
//! that must be returned.

use domain::{CartId, ItemId, Order, OrderId, OrderState};
use jiff::Timestamp;
use ledger::{JournalEntry, NewJournalEntry};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{Engine, EngineError, Payable, Payment};

/// The journal's words for such a payment, and for a refund that has failed. The ledger notes the
/// latter.
const UNMATCHED_PAYMENT: &str = "unmatched_payment";
const REFUND_FAILED: &str = "refund_failed";

/// A payment that no order could take, or whose refund has failed, as it was reported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnmatchedPayment {
    /// Number of the journal entry.
    pub entry: u64,
    /// When it was reported first.
    pub reported_at: Timestamp,
    /// The item of the order.
    pub item: ItemId,
    /// The order that it was reported for.
    pub order: OrderId,
    /// The cart that it was reported for, or whose line the order is.
    pub cart: Option<CartId>,
    /// The state of that order at the time.
    pub state: OrderState,
    /// The provider's id of the payment.
    pub payment: String,
    /// The amount, if it was reported. Of a failed refund: what is due.
    pub amount: Option<u64>,
    /// The currency that was reported, or that of the item, ISO 4217.
    pub currency: String,
    /// The provider's id of the refund that has failed. `None`: no order could take the payment.
    pub failed_refund: Option<String>,
}

/// What the journal has before the entry: the order of the payment, or the first line of its cart.
#[derive(Serialize, Deserialize)]
pub(super) struct PaidOrder {
    pub order: OrderId,
    pub state: OrderState,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cart: Option<CartId>,
}

impl From<&Order> for PaidOrder {
    fn from(order: &Order) -> Self {
        Self {
            order: order.id,
            state: order.state,
            cart: order.cart,
        }
    }
}

/// What it has after the entry: the payment, or the refund of it that has failed.
#[derive(Serialize, Deserialize)]
struct Reported {
    payment: String,
    amount: Option<u64>,
    /// `None`: that of the item.
    #[serde(skip_serializing_if = "Option::is_none")]
    currency: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    refund: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    due: Option<u64>,
}

impl From<&Payment> for Reported {
    fn from(payment: &Payment) -> Self {
        Self {
            payment: payment.id.to_string(),
            amount: payment.amount,
            currency: payment.currency.clone(),
            refund: None,
            due: None,
        }
    }
}

impl UnmatchedPayment {
    /// The payment of an entry, in this currency unless the report has named another. `None`: the
    /// entry was written by a release with other fields. The journal still shows it.
    pub(super) fn of(entry: JournalEntry, currency: String) -> Option<Self> {
        let JournalEntry { id, at, entry } = entry;
        if !matches!(&*entry.action, UNMATCHED_PAYMENT | REFUND_FAILED) {
            return None;
        }
        let paid: PaidOrder = serde_json::from_value(entry.before).ok()?;
        let reported: Reported = serde_json::from_value(entry.after).ok()?;
        Some(Self {
            entry: id,
            reported_at: at,
            item: entry.item,
            order: paid.order,
            cart: paid.cart,
            state: paid.state,
            payment: reported.payment,
            amount: reported.due.or(reported.amount),
            currency: reported.currency.unwrap_or(currency),
            failed_refund: reported.refund,
        })
    }
}

impl Engine {
    /// Journals a payment that `of` cannot take, because an operator has to return the money,
    /// unless that was done. Repeated reports of the payment write one entry.
    pub(super) async fn note_unmatched(
        &self,
        of: Payable,
        item: &ItemId,
        paid: PaidOrder,
        payment: &Payment,
    ) -> Result<(), EngineError> {
        let state = paid.state;
        if payment.is_of_nothing() {
            tracing::warn!(?of, %state, payment = %payment.id, "a payment of nothing: the order or cart cannot take it");
            return Ok(());
        }
        if self.ledger.is_returned(&payment.id).await? {
            return Ok(());
        }
        let entry = NewJournalEntry {
            item: item.clone(),
            actor: "payment".into(),
            action: UNMATCHED_PAYMENT.into(),
            token: None,
            before: json!(paid),
            after: json!(Reported::from(payment)),
        };
        let once = format!("{UNMATCHED_PAYMENT} {} {}", of.as_uuid(), payment.id);
        let noted = self.ledger.note_once(&entry, &once).await;
        if noted.map_err(EngineError::of_change)? {
            tracing::warn!(?of, %state, payment = %payment.id, "unmatched payment: the order or cart cannot take it");
        }
        Ok(())
    }
}
