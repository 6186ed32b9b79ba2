//! What became of the money of a payment, for every database.
//!
//! A refund has a state at the provider, and the last one is not the first: a refund that succeeded
//! may fail days later, when the buyer's bank sends the money back. Then it is due again. Reports
//! arrive in any order and any number of times, so nothing here depends on the order of arrival:
//!
//! * A refund is known by its id, and its state moves in one direction only
//!   ([`RefundState::rank`]).
//! * What is due is computed anew from all known refunds of the payment ([`owed`]), by the
//!   provider's times. A full return counts against the failures before it. A repeat of an old
//!   report has its old time, and so does not hide a failure that came after it.
//!
//! Each transaction locks the payment before any segment, and acts on it by the one rule
//! ([`Money::after`]).

mod done;
mod owed;
mod rule;

use async_trait::async_trait;
use domain::{CartId, ItemId, OrderId, OrderState, PaymentId};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::{
    JournalEntry, LedgerError, NewJournalEntry,
    events::{PAYMENT_REFUNDED, REFUND_FAILED},
    transaction::{Outcome, Transact, end_as},
};
pub use owed::RefundState;
use owed::{advanced, latest_open, owed};
pub(crate) use {
    done::{note_order_done, note_refund_done, order_done_name, return_order, spend, spend_only},
    owed::KnownRefund,
    rule::{Act, Money, Ruling},
};

/// How long a return or a failed refund is kept of whose payment nothing is known: providers repeat
/// a report for some days.
const UNCLAIMED_FOR: SignedDuration = SignedDuration::from_hours(30 * 24);

/// A report of the provider that all money of a payment was returned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PaymentReturn {
    /// The payment.
    pub payment: PaymentId,
    /// The order or the cart that the report names, if any. It counts only for a payment of which
    /// nothing else is known, and only if it exists.
    pub payer: Option<Uuid>,
    /// When it was returned, by the provider's clock. `None`: the report has no time, so it does
    /// not count against a refund that failed.
    pub at: Option<Timestamp>,
}

/// A report of the provider about one refund.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefundReport {
    /// The provider's id of the refund.
    pub id: String,
    /// The payment that it returns, or a part of it.
    pub payment: PaymentId,
    /// The order or the cart that the report names, if any.
    pub payer: Option<Uuid>,
    /// Its state.
    pub state: RefundState,
    /// The amount in the currency's smallest unit.
    pub amount: u64,
    /// ISO 4217, if it was reported.
    pub currency: Option<String>,
    /// When the refund was made, by the provider's clock. `None`: now.
    pub created_at: Option<Timestamp>,
    /// When it got this state, by the provider's clock. `None`: now.
    pub at: Option<Timestamp>,
}

/// What a payment was reported for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Payer {
    /// The order, or the first line of the cart.
    pub order: OrderId,
    /// The cart, if there is one.
    pub cart: Option<CartId>,
    /// Whether the payment was reported for the cart as a whole.
    pub is_cart: bool,
    /// The item of the order.
    pub item: ItemId,
    /// The state of the order.
    pub state: OrderState,
    /// Whether the payment has paid it.
    pub is_paid: bool,
}

/// Result of noting that a payment was returned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReturnedPayment {
    /// The payment was reported for this.
    Of(Payer),
    /// Nothing is known of the payment, and the report names nothing that exists. It is remembered:
    /// the payment pays nothing if it is reported later.
    Unknown,
}

/// Result of noting a refund.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotedRefund {
    /// The payment was reported for this.
    Of {
        /// What it was reported for.
        payer: Payer,
        /// Whether money is due because a refund of the payment has failed.
        is_due: bool,
    },
    /// Nothing is known of the payment, and the report names nothing that exists.
    Unknown,
}

/// A payment as its row has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PaymentRow {
    /// What has it, or what it was reported for. `None`: it was returned before anything was known
    /// of it.
    pub payer: Option<Uuid>,
    pub returned_at: Option<Timestamp>,
    pub due: Option<Due>,
    /// A drop has deleted the order or cart that the payment has paid.
    pub is_settled: bool,
    /// What that was. `None` for a drop by a release that did not note it.
    pub dropped: Option<Dropped>,
}

impl PaymentRow {
    /// What the payment had paid, if a drop has deleted that. Money that was not returned by then
    /// has kept it paid.
    fn dropped_payer(&self) -> Option<Payer> {
        let (payer, dropped) = (self.payer?, self.dropped.clone()?);
        let cart = Some(payer).filter(|payer| *payer != dropped.order.as_uuid());
        Some(Payer {
            order: dropped.order,
            cart: cart.map(CartId::from),
            is_cart: cart.is_some(),
            item: dropped.item,
            state: match self.returned_at {
                Some(_) => OrderState::Refunded,
                None => OrderState::Confirmed,
            },
            is_paid: true,
        })
    }
}

/// An order that a drop has deleted, of a cart the first of its lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Dropped {
    pub order: OrderId,
    pub item: ItemId,
}

/// Money that is due because refunds of a payment have failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Due {
    /// The failed refund whose journal entry is listed: the latest one.
    pub refund: String,
    /// All that is due, which other failed refunds may add to. It changes while the refund stays.
    pub amount: u64,
}

/// SQL statements of a transaction about the money of a payment.
#[async_trait]
pub(crate) trait Statements: Transact {
    /// Makes other transactions about this payment wait, and returns its row if there is one.
    async fn lock_payment(
        &mut self,
        payment: &PaymentId,
    ) -> Result<Option<PaymentRow>, LedgerError>;

    /// Marks the payment as returned, at the later of this time and the one that it has. A payment
    /// without a row or a payer gets `payer`. Returns the payer of the row. It waits for a
    /// transaction that binds the payment, and one that comes later finds the mark.
    async fn mark_returned(
        &mut self,
        payment: &PaymentId,
        payer: Option<Uuid>,
        at: Timestamp,
    ) -> Result<Option<Uuid>, LedgerError>;

    /// Notes that the payment was returned and has no payer, and deletes some such payments that
    /// were noted before `before`: nothing else of them has come.
    async fn mark_return_unclaimed(
        &mut self,
        payment: &PaymentId,
        before: Timestamp,
    ) -> Result<(), LedgerError>;

    /// Writes what is due. Not called without a row.
    async fn write_due(
        &mut self,
        payment: &PaymentId,
        due: Option<&Due>,
    ) -> Result<(), LedgerError>;

    /// The journal entry of what the payment was reported for first, without being accepted.
    async fn unmatched(&mut self, payment: &PaymentId)
    -> Result<Option<JournalEntry>, LedgerError>;

    /// The order or the cart with this id, and whether the payment has paid it.
    async fn payer(&mut self, id: Uuid, payment: &PaymentId) -> Result<Option<Payer>, LedgerError>;

    /// All known refunds of the payment.
    async fn refunds(&mut self, payment: &PaymentId) -> Result<Vec<KnownRefund>, LedgerError>;

    /// Inserts the refund, or updates its state and what goes with it.
    async fn write_refund(
        &mut self,
        payment: &PaymentId,
        refund: &KnownRefund,
    ) -> Result<(), LedgerError>;

    /// Marks a refund of a payment of which nothing is known, and deletes some that were marked
    /// before `before`: nothing else of their payments has come.
    async fn mark_unclaimed(&mut self, refund: &str, before: Timestamp) -> Result<(), LedgerError>;

    /// Takes these marks from the payment and its refunds: what it was reported for is known.
    async fn claim(&mut self, payment: &PaymentId) -> Result<(), LedgerError>;

    /// Adds the entry with its event, unless the item has one under the name `once`.
    async fn note_once(&mut self, entry: &NewJournalEntry, once: &str)
    -> Result<bool, LedgerError>;

    /// Whether the item has an entry under the name `once`.
    async fn is_noted(&mut self, item: &ItemId, once: &str) -> Result<bool, LedgerError>;

    /// The journal entry with this number.
    async fn journal_entry(&mut self, id: u64) -> Result<Option<JournalEntry>, LedgerError>;
}

/// Notes the return in the transaction.
pub(crate) async fn note_return(
    mut transaction: impl Statements,
    returned: &PaymentReturn,
) -> Result<ReturnedPayment, LedgerError> {
    let noted = apply_return(&mut transaction, returned).await;
    end_as(transaction, noted).await
}

async fn apply_return(
    transaction: &mut impl Statements,
    returned: &PaymentReturn,
) -> Result<Outcome<ReturnedPayment>, LedgerError> {
    let payment = &returned.payment;
    let row = transaction.lock_payment(payment).await?;
    let named = find_payer(transaction, payment, row.as_ref(), returned.payer).await?;
    let at = returned.at.unwrap_or(Timestamp::UNIX_EPOCH);
    // The row comes before the look at the payer: a step that binds the payment has ended by then.
    let bound = transaction.mark_returned(payment, named, at).await?;
    let payer = match bound {
        Some(bound) => payer_of(transaction, bound, payment, row.as_ref()).await?,
        None => {
            let before = Timestamp::now() - UNCLAIMED_FOR;
            transaction.mark_return_unclaimed(payment, before).await?;
            None
        }
    };
    let Some(payer) = payer else {
        return Ok(Outcome::Done(ReturnedPayment::Unknown));
    };
    transaction.claim(payment).await?;
    // Of an unclaimed return nothing is noted yet: an entry belongs to an item.
    let claimed = row.as_ref().filter(|row| row.payer.is_some());
    let was_returned = claimed.is_some_and(|row| row.returned_at.is_some());
    if !was_returned {
        note_returned(transaction, payment, &payer).await?;
    }
    let row = PaymentRow {
        payer: bound,
        returned_at: row.as_ref().and_then(|row| row.returned_at).max(Some(at)),
        is_settled: row.as_ref().is_some_and(|row| row.is_settled),
        dropped: row.as_ref().and_then(|row| row.dropped.clone()),
        due: row.and_then(|row| row.due),
    };
    update_due(transaction, payment, &row, &payer, None).await?;
    Ok(Outcome::Done(ReturnedPayment::Of(payer)))
}

/// Notes that a payment was returned that has paid nothing, once.
async fn note_returned(
    transaction: &mut impl Statements,
    payment: &PaymentId,
    payer: &Payer,
) -> Result<(), LedgerError> {
    if payer.is_paid {
        return Ok(());
    }
    // Not the bare id: the note about a row has the row's number there, and an id may be a number.
    let once = format!("{PAYMENT_REFUNDED} payment {payment}");
    let entry = entry(payer, PAYMENT_REFUNDED, json!({ "payment": payment }));
    transaction.note_once(&entry, &once).await.map(drop)
}

/// Notes the refund in the transaction.
pub(crate) async fn note_refund(
    mut transaction: impl Statements,
    report: &RefundReport,
) -> Result<NotedRefund, LedgerError> {
    let noted = apply_refund(&mut transaction, report).await;
    end_as(transaction, noted).await
}

async fn apply_refund(
    transaction: &mut impl Statements,
    report: &RefundReport,
) -> Result<Outcome<NotedRefund>, LedgerError> {
    let payment = &report.payment;
    let row = transaction.lock_payment(payment).await?;
    let named = find_payer(transaction, payment, row.as_ref(), report.payer).await?;
    let payer = match named {
        Some(id) => payer_of(transaction, id, payment, row.as_ref()).await?,
        None => None,
    };
    let refunds = transaction.refunds(payment).await?;
    let refund = advanced(&refunds, report, Timestamp::now());
    let Some(payer) = payer else {
        return keep_unclaimed(transaction, payment, refund).await;
    };
    let Some(refund) = refund else {
        let is_due = row.is_some_and(|row| row.due.is_some());
        return Ok(Outcome::Unchanged(NotedRefund::Of { payer, is_due }));
    };
    transaction.write_refund(payment, &refund).await?;
    if row.as_ref().is_some_and(|row| row.payer.is_none()) {
        // It was returned before anything was known of it.
        let at = Timestamp::UNIX_EPOCH;
        transaction.mark_returned(payment, named, at).await?;
        note_returned(transaction, payment, &payer).await?;
    }
    transaction.claim(payment).await?;
    let currency = report.currency.as_deref();
    // Without a row nothing has taken the payment, and it was not returned: it is due anyway.
    let due = match row {
        Some(row) => update_due(transaction, payment, &row, &payer, currency).await?,
        None => None,
    };
    if let Some(due) = &due
        && refund.state.is_failure()
    {
        note_failed(transaction, payment, &payer, &refund, due, currency).await?;
    }
    let is_due = due.is_some();
    Ok(Outcome::Done(NotedRefund::Of { payer, is_due }))
}

/// Remembers a refund that has failed before anything is known of its payment: the report that the
/// payment was returned may come later, and tells nothing of the failure. Most such refunds are
/// those of another shop with the same account, so they are kept for a while only.
async fn keep_unclaimed(
    transaction: &mut impl Statements,
    payment: &PaymentId,
    refund: Option<KnownRefund>,
) -> Result<Outcome<NotedRefund>, LedgerError> {
    let Some(refund) = refund.filter(|refund| refund.state.is_failure()) else {
        return Ok(Outcome::Unchanged(NotedRefund::Unknown));
    };
    transaction.write_refund(payment, &refund).await?;
    let before = Timestamp::now() - UNCLAIMED_FOR;
    transaction.mark_unclaimed(&refund.id, before).await?;
    Ok(Outcome::Done(NotedRefund::Unknown))
}

/// What the payment was reported for: what it has paid, what the journal has it for, or what the
/// report itself names, if that exists.
async fn find_payer(
    transaction: &mut impl Statements,
    payment: &PaymentId,
    row: Option<&PaymentRow>,
    named: Option<Uuid>,
) -> Result<Option<Uuid>, LedgerError> {
    if let Some(payer) = row.and_then(|row| row.payer) {
        return Ok(Some(payer));
    }
    let unmatched = transaction.unmatched(payment).await?;
    let unmatched = unmatched.and_then(|noted| id_in(&noted.entry.before, "order"));
    match unmatched.or(named) {
        Some(id) if unmatched.is_some() || transaction.payer(id, payment).await?.is_some() => {
            Ok(Some(id))
        }
        _ => Ok(None),
    }
}

/// The order or the cart with this id. A drop deletes it, but neither the payment's row, which
/// tells what it has paid, nor the journal: a payment that it could not take can still be returned,
/// and is known by its entry then.
async fn payer_of(
    transaction: &mut impl Statements,
    id: Uuid,
    payment: &PaymentId,
    row: Option<&PaymentRow>,
) -> Result<Option<Payer>, LedgerError> {
    if let Some(payer) = transaction.payer(id, payment).await? {
        return Ok(Some(payer));
    }
    if let Some(payer) = row.and_then(PaymentRow::dropped_payer) {
        return Ok(Some(payer));
    }
    let unmatched = transaction.unmatched(payment).await?;
    Ok(unmatched.and_then(|noted| noted_payer(noted.entry)))
}

fn noted_payer(entry: NewJournalEntry) -> Option<Payer> {
    Some(Payer {
        order: id_in(&entry.before, "order")?.into(),
        cart: id_in(&entry.before, "cart").map(CartId::from),
        is_cart: false,
        item: entry.item,
        state: serde_json::from_value(entry.before["state"].clone()).ok()?,
        is_paid: false,
    })
}

/// The id of an order or a cart in a journal entry.
fn id_in(value: &Value, name: &str) -> Option<Uuid> {
    value[name].as_str().and_then(|id| id.parse().ok())
}

/// Writes what is due after what the transaction has changed, and notes it if it is new, or if
/// nothing is due any more. The latest failure names it: its journal entry is listed.
async fn update_due(
    transaction: &mut impl Statements,
    payment: &PaymentId,
    row: &PaymentRow,
    payer: &Payer,
    currency: Option<&str>,
) -> Result<Option<Due>, LedgerError> {
    let refunds = transaction.refunds(payment).await?;
    // Nothing has taken it, and it was not returned: it is listed for that.
    let was_returned = payer.is_paid || row.returned_at.is_some();
    let latest = latest_open(&refunds, row.returned_at).filter(|_| was_returned);
    let amount = owed(&refunds, row.returned_at);
    let latest = latest.filter(|_| amount > 0);
    let due = latest.map(|refund| Due {
        refund: refund.id.clone(),
        amount,
    });
    if due == row.due {
        return Ok(due);
    }
    transaction.write_due(payment, due.as_ref()).await?;
    match (&due, latest, &row.due) {
        // The report of this failure may have come before anything was due.
        (Some(due), Some(failed), _) => {
            note_failed(transaction, payment, payer, failed, due, currency).await?;
        }
        (None, _, Some(was)) => note_closed(transaction, payment, payer, was).await?,
        _ => {}
    }
    Ok(due)
}

/// Notes that the money of failed refunds was returned by another refund.
async fn note_closed(
    transaction: &mut impl Statements,
    payment: &PaymentId,
    payer: &Payer,
    was: &Due,
) -> Result<(), LedgerError> {
    let after = json!({ "payment": payment, "refund": was.refund, "amount": was.amount });
    let closed = entry(payer, PAYMENT_REFUNDED, after);
    let once = closed_name(&was.refund);
    transaction.note_once(&closed, &once).await.map(drop)
}

/// The name under which the journal has that the money of a failed refund was returned by another
/// one.
fn closed_name(refund: &str) -> String {
    format!("{PAYMENT_REFUNDED} refund {refund}")
}

/// Notes that the refund has failed, once. Its event tells that money is due, so a failure because
/// of which nothing is due is not noted: its own later report, or that of the return, notes it.
async fn note_failed(
    transaction: &mut impl Statements,
    payment: &PaymentId,
    payer: &Payer,
    failed: &KnownRefund,
    due: &Due,
    currency: Option<&str>,
) -> Result<(), LedgerError> {
    let mut after = json!({
        "payment": payment,
        "refund": failed.id,
        "state": failed.state.as_str(),
        "amount": failed.amount,
        "due": due.amount,
    });
    if let Some(currency) = currency {
        after["currency"] = json!(currency);
    }
    let once = format!("{REFUND_FAILED} {}", failed.id);
    let entry = entry(payer, REFUND_FAILED, after);
    transaction.note_once(&entry, &once).await.map(drop)
}

fn entry(payer: &Payer, action: &str, after: Value) -> NewJournalEntry {
    let mut before = json!({ "order": payer.order, "state": payer.state });
    if let Some(cart) = payer.cart {
        before["cart"] = json!(cart);
    }
    NewJournalEntry {
        item: payer.item.clone(),
        actor: "payment".into(),
        action: action.into(),
        token: None,
        before,
        after,
    }
}
