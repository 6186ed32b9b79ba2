//! Changes of an item's stock, and transfers, for every database.
//!
//! Lock order: transfers before the item, in every transaction. A transaction that has locked a
//! transfer may wait for the item, and never the other way round.

use async_trait::async_trait;
use domain::{Item, ItemId, ItemState};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::item;
use crate::{
    Changed, LedgerError, NewJournalEntry, StockChange, StockPart, Transfer, TransferPlan,
    TransferState,
    error::check_fence,
    transaction::{Outcome, end, end_as},
};

/// SQL statements of a transaction that changes or moves an item's stock, besides those that change
/// an item.
#[async_trait]
pub(crate) trait Statements: item::Statements {
    /// Inserts the transfers that do not exist yet. Returns how many it inserted. `requested`: the
    /// units of the whole request that the transfers are parts of, if an operator made one.
    async fn add_transfers(
        &mut self,
        transfers: &[Transfer],
        token: Option<u64>,
        requested: Option<u64>,
    ) -> Result<usize, LedgerError>;

    /// Whether one of these transfers exists as part of another change: in the other direction, or
    /// of a request for other than `requested` units.
    async fn belong_to_other_change(
        &mut self,
        transfers: &[Transfer],
        requested: u64,
    ) -> Result<bool, LedgerError>;

    /// Makes a transfer to the outside `done`. Returns the units that it has moved, if it was
    /// `out`.
    async fn finish(&mut self, transfer: &Transfer) -> Result<Option<u64>, LedgerError>;
}

/// Changes the stock of an existing item in the transaction.
pub(crate) async fn change_stock(
    mut transaction: impl Statements,
    id: &ItemId,
    change: &StockChange,
    requested: u64,
    expected: Option<u64>,
    actor: &str,
) -> Result<Changed, LedgerError> {
    let changed = apply(&mut transaction, id, change, requested, expected, actor).await;
    end_as(transaction, changed).await
}

async fn apply(
    transaction: &mut impl Statements,
    id: &ItemId,
    change: &StockChange,
    requested: u64,
    expected: Option<u64>,
    actor: &str,
) -> Result<Outcome<Changed>, LedgerError> {
    let (transfers, requested) = (transfers(id, change), requested.max(1));
    let added = if transfers.is_empty() {
        0
    } else {
        transaction
            .add_transfers(&transfers, None, Some(requested))
            .await?
    };
    let Some((item, _)) = transaction.lock_item(id).await? else {
        return Ok(Outcome::Unchanged(Changed::NoItem));
    };
    if transfers.is_empty() {
        return Ok(Outcome::Unchanged(Changed::Item(item)));
    }
    if added < transfers.len() {
        // A repeat, even if it would now split the units differently, unless it is a different
        // request.
        let another = transaction
            .belong_to_other_change(&transfers, requested)
            .await?;
        return Ok(Outcome::Unchanged(if another {
            Changed::OtherChange(item)
        } else {
            Changed::Item(item)
        }));
    }
    if item.state == ItemState::Archived {
        return Ok(Outcome::Unchanged(Changed::Archived(item)));
    }
    if expected.is_some_and(|expected| expected != item.version) {
        return Ok(Outcome::Unchanged(Changed::OtherVersion(item)));
    }
    let changed = Item {
        stock: item.stock.saturating_add(added_immediately(change)),
        version: item.version + 1,
        ..item.clone()
    };
    if item.exceeds_stock(&changed) {
        return Ok(Outcome::Unchanged(Changed::AboveMaximum(item)));
    }
    item::write(transaction, &item, &changed).await?;
    transaction
        .note(&changed_entry(&item, &changed, change, requested, actor))
        .await?;
    Ok(Outcome::Done(Changed::Item(changed)))
}

/// Transfers of new units start as `out`. Transfers of units to withdraw start as `planned`.
///
/// The first part of a withdrawal always gets a transfer, even with zero units: the units may lie
/// elsewhere when the request is repeated, and the repeat must still be recognised. If that segment
/// has nothing to give, its part is finished immediately.
pub(super) fn transfers(item: &ItemId, change: &StockChange) -> Vec<Transfer> {
    let since = Timestamp::now();
    let transfer = |part: &StockPart| {
        let (from, to, moved, state) = match change {
            StockChange::TopUp(_) => (None, Some(part.segment), part.units, TransferState::Out),
            StockChange::Withdraw(_) if part.units == 0 => {
                (Some(part.segment), None, 0, TransferState::Done)
            }
            StockChange::Withdraw(_) => (Some(part.segment), None, 0, TransferState::Planned),
        };
        Transfer {
            id: part.transfer,
            item: item.clone(),
            from,
            to,
            quantity: part.units.max(1),
            moved,
            state,
            since,
        }
    };
    let always = usize::from(matches!(change, StockChange::Withdraw(_)));
    let wanted = change
        .parts()
        .iter()
        .enumerate()
        .filter(|(at, part)| part.units > 0 || *at < always);
    wanted.map(|(_, part)| transfer(part)).collect()
}

fn added_immediately(change: &StockChange) -> u64 {
    match change {
        StockChange::TopUp(_) => change.units(),
        StockChange::Withdraw(_) => 0,
    }
}

fn changed_entry(
    before: &Item,
    after: &Item,
    change: &StockChange,
    requested: u64,
    actor: &str,
) -> NewJournalEntry {
    let (action, parts) = match change {
        StockChange::TopUp(parts) => ("top_up", parts),
        StockChange::Withdraw(parts) => ("withdraw", parts),
    };
    let parts: Vec<_> =
        parts.iter().map(|part| json!({ "transfer": part.transfer.to_string(), "segment": part.segment, "units": part.units })).collect();
    let mut journalled = stock(after);
    (journalled["requested"], journalled["parts"]) = (requested.into(), parts.into());
    NewJournalEntry {
        item: after.id.clone(),
        actor: actor.into(),
        action: action.into(),
        token: None,
        before: stock(before),
        after: journalled,
    }
}

pub(super) fn stock(item: &Item) -> Value {
    json!({ "stock": item.stock, "version": item.version })
}

/// Writes planned transfers in the transaction, if `token` is the item's highest.
pub(crate) async fn plan(
    mut transaction: impl Statements,
    id: &ItemId,
    token: u64,
    plans: &[TransferPlan],
) -> Result<(), LedgerError> {
    let planned = add_planned(&mut transaction, id, token, plans).await;
    end(transaction, planned).await
}

async fn add_planned(
    transaction: &mut impl Statements,
    id: &ItemId,
    token: u64,
    plans: &[TransferPlan],
) -> Result<(), LedgerError> {
    let since = Timestamp::now();
    let transfers = plans.iter().map(|plan| Transfer {
        id: plan.id,
        item: id.clone(),
        from: Some(plan.from),
        to: Some(plan.to),
        quantity: plan.units,
        moved: 0,
        state: TransferState::Planned,
        since,
    });
    let transfers: Vec<_> = transfers.collect();
    if !transfers.is_empty() {
        transaction
            .add_transfers(&transfers, Some(token), None)
            .await?;
    }
    authorized(transaction, id, token).await.map(drop)
}

/// Locks and returns the item, if `token` is its highest.
async fn authorized(
    transaction: &mut impl Statements,
    id: &ItemId,
    token: u64,
) -> Result<Item, LedgerError> {
    let (item, fence) = transaction
        .lock_item(id)
        .await?
        .ok_or(sqlx::Error::RowNotFound)?;
    check_fence(token, fence).map(|()| item)
}

/// Subtracts the units that a transfer to the outside has moved from the item's stock, in the
/// transaction. A repeat changes nothing.
pub(crate) async fn finish_withdrawal(
    mut transaction: impl Statements,
    transfer: &Transfer,
    token: u64,
    actor: &str,
) -> Result<(), LedgerError> {
    let finished = finish(&mut transaction, transfer, token, actor).await;
    end(transaction, finished).await
}

async fn finish(
    transaction: &mut impl Statements,
    transfer: &Transfer,
    token: u64,
    actor: &str,
) -> Result<(), LedgerError> {
    let moved = transaction.finish(transfer).await?;
    let item = authorized(transaction, &transfer.item, token).await?;
    let Some(moved) = moved else { return Ok(()) };
    let changed = Item {
        stock: item.stock.saturating_sub(moved),
        version: item.version + 1,
        ..item.clone()
    };
    item::write(transaction, &item, &changed).await?;
    let mut journalled = stock(&changed);
    journalled["transfer"] = transfer.id.to_string().into();
    transaction
        .note(&NewJournalEntry {
            item: transfer.item.clone(),
            actor: actor.into(),
            action: "withdrawn".into(),
            token: Some(token),
            before: stock(&item),
            after: journalled,
        })
        .await
}
