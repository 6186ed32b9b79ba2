//! What an admin notes as returned: a row of the list of money that is due.

use domain::PaymentId;
use jiff::Timestamp;
use serde_json::Value;
use uuid::Uuid;

use super::{KnownRefund, PaymentRow, Statements, closed_name};
use crate::{
    JournalEntry, LedgerError, NewJournalEntry,
    events::{PAYMENT_REFUNDED, REFUND_FAILED, UNMATCHED_PAYMENT},
    transaction::{Outcome, end_as},
};

/// Notes in the transaction that an admin has returned the money.
pub(crate) async fn note_refund_done(
    mut transaction: impl Statements,
    entry: u64,
    actor: &str,
) -> Result<bool, LedgerError> {
    let noted = apply_refund_done(&mut transaction, entry, actor).await;
    end_as(transaction, noted).await
}

async fn apply_refund_done(
    transaction: &mut impl Statements,
    entry: u64,
    actor: &str,
) -> Result<Outcome<bool>, LedgerError> {
    let Some(JournalEntry { id, entry, .. }) = transaction.journal_entry(entry).await? else {
        return Ok(Outcome::Unchanged(false));
    };
    let payment = entry.after["payment"].as_str();
    let Some(payment) = payment.and_then(|payment| PaymentId::new(payment).ok()) else {
        return Ok(Outcome::Unchanged(false));
    };
    let row = transaction.lock_payment(&payment).await?;
    let once = format!("{PAYMENT_REFUNDED} {id}");
    if transaction.is_noted(&entry.item, &once).await? {
        return Ok(Outcome::Unchanged(true));
    }
    let settled = match &*entry.action {
        UNMATCHED_PAYMENT => settle_unmatched(transaction, &payment, row, &entry).await?,
        REFUND_FAILED => settle_failed(transaction, &payment, row, &entry).await?,
        _ => Settled::No,
    };
    match settled {
        Settled::Now => {
            let done = NewJournalEntry {
                actor: actor.into(),
                action: PAYMENT_REFUNDED.into(),
                ..entry
            };
            transaction.note_once(&done, &once).await?;
            Ok(Outcome::Done(true))
        }
        Settled::Before => Ok(Outcome::Unchanged(true)),
        Settled::No => Ok(Outcome::Unchanged(false)),
    }
}

/// What noting that money was returned came to.
enum Settled {
    /// It was due until now.
    Now,
    /// It was returned before.
    Before,
    /// It is not due: something has taken the payment, or another refund has failed since.
    No,
}

async fn settle_unmatched(
    transaction: &mut impl Statements,
    payment: &PaymentId,
    row: Option<PaymentRow>,
    entry: &NewJournalEntry,
) -> Result<Settled, LedgerError> {
    if row.as_ref().is_some_and(|row| row.returned_at.is_some()) {
        return Ok(Settled::Before);
    }
    let [order, cart] = ["order", "cart"].map(|name| id_in(&entry.before, name));
    let Some(order) = order else {
        return Ok(Settled::No);
    };
    if let Some(row) = row
        && is_paid(transaction, row.payer, payment).await?
    {
        // If it has paid something else, that is refunded by a call of its own.
        let has_paid_this = row.payer == order || Some(row.payer) == cart;
        return Ok(if has_paid_this {
            Settled::No
        } else {
            Settled::Now
        });
    }
    let now = Timestamp::now();
    let bound = transaction.mark_returned(payment, order, now).await?;
    // A step may have taken the payment while this waited for it. Then all of this is rolled back.
    Ok(match is_paid(transaction, bound, payment).await? {
        true => Settled::No,
        false => Settled::Now,
    })
}

async fn is_paid(
    transaction: &mut impl Statements,
    payer: Uuid,
    payment: &PaymentId,
) -> Result<bool, LedgerError> {
    let payer = transaction.payer(payer, payment).await?;
    Ok(payer.is_some_and(|payer| payer.is_paid))
}

async fn settle_failed(
    transaction: &mut impl Statements,
    payment: &PaymentId,
    row: Option<PaymentRow>,
    entry: &NewJournalEntry,
) -> Result<Settled, LedgerError> {
    let refund = entry.after["refund"].as_str().unwrap_or_default();
    let due = row.and_then(|row| row.due_refund);
    if due.as_deref() != Some(refund) {
        let closed = closed_name(refund);
        return Ok(match transaction.is_noted(&entry.item, &closed).await? {
            true => Settled::Before,
            false => Settled::No,
        });
    }
    for refund in transaction.refunds(payment).await? {
        if refund.state.is_failure() && !refund.is_done {
            let done = KnownRefund {
                is_done: true,
                ..refund
            };
            transaction.write_refund(payment, &done).await?;
        }
    }
    transaction.write_due(payment, None).await?;
    Ok(Settled::Now)
}

/// The id of an order or a cart in a journal entry.
fn id_in(value: &Value, name: &str) -> Option<Uuid> {
    value[name].as_str().and_then(|id| id.parse().ok())
}
