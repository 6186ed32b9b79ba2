//! Making units more or fewer, and moving them, the same for every database.
//!
//! Transfers come before the item, as everywhere: whoever has the one may wait for the other, and never the other way round.

use async_trait::async_trait;
use domain::{Item, ItemId};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::item;
use crate::{
    Changed, LedgerError, NewJournalEntry, StockChange, StockPart, Transfer, TransferPlan,
    TransferState,
    error::check_authority,
    transaction::{Outcome, end, end_as},
};

/// The statements of a transaction that changes or moves an item's stock, besides those that change an item.
#[async_trait]
pub(crate) trait Statements: item::Statements {
    /// Inserts the transfers, but for those that are there already. How many it inserted. `wished`: how many units they are parts of, if somebody wished
    /// for them.
    async fn add_transfers(
        &mut self,
        transfers: &[Transfer],
        token: Option<u64>,
        wished: Option<u64>,
    ) -> Result<usize, LedgerError>;

    /// Whether any of these is there as a part of another change: the other way, or of other than `wished` units.
    async fn are_of_another(
        &mut self,
        transfers: &[Transfer],
        wished: u64,
    ) -> Result<bool, LedgerError>;

    /// Makes a transfer to the outside `done`. What it had moved, if it was `out`.
    async fn finish(&mut self, transfer: &Transfer) -> Result<Option<u64>, LedgerError>;
}

/// Changes the stock of an item, which is there, in the transaction.
pub(crate) async fn change_stock(
    mut transaction: impl Statements,
    id: &ItemId,
    change: &StockChange,
    wished: u64,
    expected: Option<u64>,
    actor: &str,
) -> Result<Changed, LedgerError> {
    let changed = apply(&mut transaction, id, change, wished, expected, actor).await;
    end_as(transaction, changed).await
}

async fn apply(
    transaction: &mut impl Statements,
    id: &ItemId,
    change: &StockChange,
    wished: u64,
    expected: Option<u64>,
    actor: &str,
) -> Result<Outcome<Changed>, LedgerError> {
    let (transfers, wished) = (transfers(id, change), wished.max(1));
    let added = if transfers.is_empty() {
        0
    } else {
        transaction
            .add_transfers(&transfers, None, Some(wished))
            .await?
    };
    let Some((item, _)) = transaction.lock_item(id).await? else {
        return Ok(Outcome::Unchanged(Changed::NoItem));
    };
    if transfers.is_empty() {
        return Ok(Outcome::Unchanged(Changed::Item(item)));
    }
    if added < transfers.len() {
        // A repeat, even if it would share the units out differently by now; unless it is for something else.
        let another = transaction.are_of_another(&transfers, wished).await?;
        return Ok(Outcome::Unchanged(if another {
            Changed::OtherChange(item)
        } else {
            Changed::Item(item)
        }));
    }
    if expected.is_some_and(|expected| expected != item.version) {
        return Ok(Outcome::Unchanged(Changed::OtherVersion(item)));
    }
    let changed = Item {
        stock: item.stock.saturating_add(added_at_once(change)),
        version: item.version + 1,
        ..item.clone()
    };
    item::write(transaction, &item, &changed).await?;
    transaction
        .note(&changed_entry(&item, &changed, change, wished, actor))
        .await?;
    Ok(Outcome::Done(Changed::Item(changed)))
}

/// New units are out from the start. What is to be taken back is still where it was.
///
/// The first part of what is to be taken back is always there: units may lie elsewhere when a request is repeated, and it must be known again all the
/// same. Where that segment has nothing to give, its part is over at once.
fn transfers(item: &ItemId, change: &StockChange) -> Vec<Transfer> {
    let since = Timestamp::now();
    let transfer = |part: &StockPart| {
        let (from, to, moved, state) = match change {
            StockChange::TopUp(_) => (None, Some(part.segment), part.units, TransferState::Out),
            StockChange::TakeBack(_) if part.units == 0 => {
                (Some(part.segment), None, 0, TransferState::Done)
            }
            StockChange::TakeBack(_) => (Some(part.segment), None, 0, TransferState::Planned),
        };
        Transfer {
            id: part.transfer,
            item: item.clone(),
            from,
            to,
            asked: part.units.max(1),
            moved,
            state,
            since,
        }
    };
    let always = usize::from(matches!(change, StockChange::TakeBack(_)));
    let wanted = change
        .parts()
        .iter()
        .enumerate()
        .filter(|(at, part)| part.units > 0 || *at < always);
    wanted.map(|(_, part)| transfer(part)).collect()
}

fn added_at_once(change: &StockChange) -> u64 {
    match change {
        StockChange::TopUp(_) => change.units(),
        StockChange::TakeBack(_) => 0,
    }
}

fn changed_entry(
    before: &Item,
    after: &Item,
    change: &StockChange,
    wished: u64,
    actor: &str,
) -> NewJournalEntry {
    let (action, parts) = match change {
        StockChange::TopUp(parts) => ("top_up", parts),
        StockChange::TakeBack(parts) => ("take_back", parts),
    };
    let parts: Vec<_> =
        parts.iter().map(|part| json!({ "transfer": part.transfer.to_string(), "segment": part.segment, "units": part.units })).collect();
    let mut said = stock(after);
    (said["wished"], said["parts"]) = (wished.into(), parts.into());
    NewJournalEntry {
        item: after.id.clone(),
        actor: actor.into(),
        action: action.into(),
        token: None,
        before: stock(before),
        after: said,
    }
}

fn stock(item: &Item) -> Value {
    json!({ "stock": item.stock, "version": item.version })
}

/// Writes the transfers in the transaction, if `token` is the authority over the item.
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
        asked: plan.units,
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

/// The item, locked, if `token` is the authority over it.
async fn authorized(
    transaction: &mut impl Statements,
    id: &ItemId,
    token: u64,
) -> Result<Item, LedgerError> {
    let (item, fence) = transaction
        .lock_item(id)
        .await?
        .ok_or(sqlx::Error::RowNotFound)?;
    check_authority(token, fence).map(|()| item)
}

/// Takes what a transfer to the outside has moved from the stock, in the transaction. Once: a repeat changes nothing.
pub(crate) async fn finish_take_back(
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
    let mut said = stock(&changed);
    said["transfer"] = transfer.id.to_string().into();
    transaction
        .note(&NewJournalEntry {
            item: transfer.item.clone(),
            actor: actor.into(),
            action: "taken_back".into(),
            token: Some(token),
            before: stock(&item),
            after: said,
        })
        .await
}
