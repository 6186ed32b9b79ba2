//! What an admin notes as returned: a row of the list of money that is due.

use domain::PaymentId;
use jiff::Timestamp;
use uuid::Uuid;

use super::{KnownRefund, PaymentRow, Statements, closed_name, id_in, note_closed, payer_of};
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
    let Some(JournalEntry { id, mut entry, .. }) = transaction.journal_entry(entry).await? else {
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
    if let Some(due) = row.as_ref().and_then(|row| row.due.as_ref())
        && entry.action == REFUND_FAILED
    {
        // What is due has changed since the refund failed, if others failed or succeeded.
        entry.after["due"] = due.amount.into();
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
        && (row.is_settled || is_paid(transaction, row.payer, payment).await?)
    {
        // If it has paid something else, that is refunded by a call of its own.
        let has_paid_this = row.payer == order || Some(row.payer) == cart;
        return Ok(if has_paid_this {
            Settled::No
        } else {
            Settled::Now
        });
    }
    // This is our time and not the provider's, so no failure counts as an earlier one by it. Those that
    // are known are settled, and one that is reported later is due.
    let at = Timestamp::UNIX_EPOCH;
    let bound = transaction.mark_returned(payment, order, at).await?;
    settle_failures(transaction, payment).await?;
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
    let due = row.and_then(|row| row.due);
    if due.is_none_or(|due| due.refund != refund) {
        let closed = closed_name(refund);
        return Ok(match transaction.is_noted(&entry.item, &closed).await? {
            true => Settled::Before,
            false => Settled::No,
        });
    }
    settle_failures(transaction, payment).await?;
    Ok(Settled::Now)
}

/// Marks the failed refunds that are known as settled: an admin has returned their money.
async fn settle_failures(
    transaction: &mut impl Statements,
    payment: &PaymentId,
) -> Result<(), LedgerError> {
    for refund in transaction.refunds(payment).await? {
        if refund.state.is_failure() && !refund.is_done {
            let done = KnownRefund {
                is_done: true,
                ..refund
            };
            transaction.write_refund(payment, &done).await?;
        }
    }
    transaction.write_due(payment, None).await
}

/// Notes in the transaction that an admin returns the money of what the payment has paid.
pub(crate) async fn settle_refunds(
    mut transaction: impl Statements,
    payment: &PaymentId,
) -> Result<(), LedgerError> {
    let settled = apply_settle_refunds(&mut transaction, payment).await;
    end_as(transaction, settled).await
}

async fn apply_settle_refunds(
    transaction: &mut impl Statements,
    payment: &PaymentId,
) -> Result<Outcome<()>, LedgerError> {
    let Some(row) = transaction.lock_payment(payment).await? else {
        return Ok(Outcome::Unchanged(()));
    };
    settle_failures(transaction, payment).await?;
    if let Some(due) = &row.due
        && let Some(payer) = payer_of(transaction, row.payer, payment).await?
    {
        note_closed(transaction, payment, &payer, due).await?;
    }
    Ok(Outcome::Done(()))
}
