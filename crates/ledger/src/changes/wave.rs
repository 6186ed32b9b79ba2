//! Adding the units of a wave, for every database.
//!
//! The units take the way of a manual addition: transfers from outside, which a reconciler carries
//! out under the item's lock. The item's row notes in the same transaction that the wave was added.
//! So a wave is added once, however many reconcilers try, and wherever one of them dies.

use domain::{Item, ItemState, TransferId, Wave};
use serde_json::json;

use super::{
    item,
    stock::{self, Statements},
};
use crate::{
    Changed, LedgerError, NewJournalEntry, StockChange, StockPart, events,
    transaction::{Outcome, end_as},
};

/// Adds the wave in the transaction, if the item has it and it has not been added.
pub(crate) async fn add(
    mut transaction: impl Statements,
    item: &Item,
    wave: &Wave,
    actor: &str,
) -> Result<Changed, LedgerError> {
    let added = apply(&mut transaction, item, wave, actor).await;
    end_as(transaction, added).await
}

async fn apply(
    transaction: &mut impl Statements,
    item: &Item,
    wave: &Wave,
    actor: &str,
) -> Result<Outcome<Changed>, LedgerError> {
    let transfers = stock::transfers(&item.id, &StockChange::TopUp(parts(item, wave)));
    let added = transaction
        .add_transfers(&transfers, None, Some(wave.units))
        .await?;
    let Some((item, _)) = transaction.lock_item(&item.id).await? else {
        return Ok(Outcome::Unchanged(Changed::NoItem));
    };
    if item.state == ItemState::Archived {
        return Ok(Outcome::Unchanged(Changed::Archived(item)));
    }
    let Some(changed) = item.with_wave_added(wave) else {
        return Ok(Outcome::Unchanged(Changed::Item(item)));
    };
    if added < transfers.len() {
        return Ok(Outcome::Unchanged(Changed::OtherChange(item)));
    }
    item::write(transaction, &item, &changed).await?;
    transaction
        .note(&entry(&item, &changed, wave, actor))
        .await?;
    let event = events::of_wave(&changed, wave);
    transaction.add_events(&[event]).await?;
    Ok(Outcome::Done(Changed::Item(changed)))
}

fn parts(item: &Item, wave: &Wave) -> Vec<StockPart> {
    let part = |segment| StockPart {
        transfer: TransferId::of_wave(&item.id, wave.at, segment),
        segment,
        units: item.share_of(wave.units, segment),
    };
    (0..item.segments).map(part).collect()
}

fn entry(before: &Item, after: &Item, wave: &Wave, actor: &str) -> NewJournalEntry {
    let mut journalled = stock::stock(after);
    journalled["wave"] = json!({ "at": wave.at, "units": wave.units });
    NewJournalEntry {
        item: after.id.clone(),
        actor: actor.into(),
        action: "wave".into(),
        token: None,
        before: stock::stock(before),
        after: journalled,
    }
}
