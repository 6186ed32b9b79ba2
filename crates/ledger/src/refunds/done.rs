//! What an admin notes as returned: a row of the list of money that is due.

use std::sync::Arc;

use domain::{Order, OrderId, OrderState, PaymentId};
use jiff::Timestamp;
use uuid::Uuid;

use super::{
    Act, KnownRefund, Money, PaymentRow, Ruling, Statements, id_in, note_closed, payer_of,
};
use crate::{
    JournalEntry, LedgerError, NewJournalEntry, Transition,
    events::{PAYMENT_REFUNDED, REFUND_FAILED, UNMATCHED_PAYMENT},
    life::{Actors, transition},
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
        Settled::No => Ok(Outcome::Unchanged(false)),
    }
}

/// What noting that money was returned came to.
enum Settled {
    /// It was due until now.
    Now,
    /// It is not due, or not any more: something has taken the payment, it was returned otherwise,
    /// or another refund has failed or succeeded since.
    No,
}

async fn settle_unmatched(
    transaction: &mut impl Statements,
    payment: &PaymentId,
    row: Option<PaymentRow>,
    entry: &NewJournalEntry,
) -> Result<Settled, LedgerError> {
    let Some(order) = id_in(&entry.before, "order") else {
        return Ok(Settled::No);
    };
    let known = money(transaction, payment, row.as_ref()).await?;
    if known.after(Act::Done) != Ruling::Spend {
        return Ok(Settled::No);
    }
    // This is our time and not the provider's, so no failure counts as an earlier one by it. Those
    // that are known are settled, and one that is reported later is due.
    let at = Timestamp::UNIX_EPOCH;
    let bound = transaction.mark_returned(payment, Some(order), at).await?;
    settle_failures(transaction, payment).await?;
    // A step may have bound a payment without a row while this waited for it. The rule decides
    // again, and a refusal rolls all of this back.
    let has_paid = match bound {
        Some(payer) => is_paid(transaction, payer, payment).await?,
        None => false,
    };
    Ok(match Money::of(bound, false, has_paid).after(Act::Done) {
        Ruling::Spend => Settled::Now,
        Ruling::Stay | Ruling::Refuse | Ruling::Bind => Settled::No,
    })
}

/// What became of the payment, as its locked row says.
async fn money(
    transaction: &mut impl Statements,
    payment: &PaymentId,
    row: Option<&PaymentRow>,
) -> Result<Money, LedgerError> {
    let Some(row) = row else {
        return Ok(Money::Unbound);
    };
    let has_paid = match row.payer {
        // A drop has deleted what it has paid.
        Some(_) if row.is_settled => true,
        Some(payer) => is_paid(transaction, payer, payment).await?,
        None => false,
    };
    Ok(Money::of(row.payer, row.returned_at.is_some(), has_paid))
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
    let Some(row) = row else {
        return Ok(Settled::No);
    };
    if row.due.is_none_or(|due| due.refund != refund) {
        return Ok(Settled::No);
    }
    // A drop has deleted what the payment pays for.
    if row.is_settled && row.returned_at.is_none() {
        return Ok(Settled::No);
    }
    // While the payment pays for something, the entry is not listed.
    if let Some(payer) = row.payer
        && let Some(payer) = transaction.payer(payer, payment).await?
        && payer.is_paid
        && payer.state != OrderState::Refunded
    {
        return Ok(Settled::No);
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

/// Moves the order to `refunded` in the transaction because an admin has returned its money, and
/// spends its payment.
pub(crate) async fn return_order(
    mut transaction: impl Statements + transition::Statements,
    order: &Order,
    actor: &Arc<str>,
) -> Result<Option<Order>, LedgerError> {
    let returned = apply_return_order(&mut transaction, order, actor, false).await;
    end_as(transaction, returned).await
}

/// The same for an order of the list, which is `refund_due`. The entry has a name that tells a
/// repeat.
pub(crate) async fn note_order_done(
    mut transaction: impl Statements + transition::Statements,
    order: &Order,
    actor: &Arc<str>,
) -> Result<Option<Order>, LedgerError> {
    let returned = apply_return_order(&mut transaction, order, actor, true).await;
    end_as(transaction, returned).await
}

/// The name of the journal entry of an order of the list whose money an admin has returned.
pub(crate) fn order_done_name(order: OrderId) -> String {
    format!("{PAYMENT_REFUNDED} order {order}")
}

async fn apply_return_order(
    transaction: &mut (impl Statements + transition::Statements),
    order: &Order,
    actor: &Arc<str>,
    is_row: bool,
) -> Result<Outcome<Option<Order>>, LedgerError> {
    let is_listed = order.state == OrderState::RefundDue;
    let may_return = order.cart.is_none() && order.state.may_become(OrderState::Refunded);
    if !may_return || is_row && !is_listed {
        return Ok(Outcome::Unchanged(None));
    }
    if let Some(payment) = &order.payment {
        spend(transaction, payment).await?;
    }
    let actors = Actors::from([(order.id, Arc::clone(actor))]);
    let step = Transition {
        order: order.clone(),
        to: OrderState::Refunded,
        payment: None,
    };
    let none = Actors::default();
    let noted = if is_row { &none } else { &actors };
    let mut moved = transition::make(transaction, vec![&step], noted, Vec::new()).await?;
    let Some(refunded) = moved.remove(&order.id) else {
        return Ok(Outcome::Unchanged(None));
    };
    if is_row && let Some(entry) = transition::act_entry(&step, &actors) {
        let once = order_done_name(order.id);
        transaction.note_once(&entry, &once).await?;
    }
    Ok(Outcome::Done(Some(refunded)))
}

/// Notes that an admin returns the money of what the payment has paid, and of the refunds of it
/// that are known to have failed. A refund that fails later makes the money due again. Before the
/// lock of any segment.
pub(crate) async fn spend(
    transaction: &mut impl Statements,
    payment: &PaymentId,
) -> Result<(), LedgerError> {
    let Some(row) = spend_only(transaction, payment).await? else {
        return Ok(());
    };
    settle_failures(transaction, payment).await?;
    if let (Some(due), Some(payer)) = (&row.due, row.payer)
        && let Some(payer) = payer_of(transaction, payer, payment, Some(&row)).await?
    {
        note_closed(transaction, payment, &payer, due).await?;
    }
    Ok(())
}

/// Notes that an admin returns the money of what the payment has paid, and not that of refunds that
/// have failed: they may be of a part that was returned before.
pub(crate) async fn spend_only(
    transaction: &mut impl Statements,
    payment: &PaymentId,
) -> Result<Option<PaymentRow>, LedgerError> {
    let Some(row) = transaction.lock_payment(payment).await? else {
        return Ok(None);
    };
    let money = money(transaction, payment, Some(&row)).await?;
    if money.after(Act::Return) == Ruling::Spend {
        let at = Timestamp::UNIX_EPOCH;
        transaction.mark_returned(payment, row.payer, at).await?;
    }
    Ok(Some(row))
}
