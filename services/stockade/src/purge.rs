//! `stockade items purge`, directly on the ledger.

use std::process::ExitCode;

use anyhow::{Context, Result};
use domain::ItemId;
use jiff::{SignedDuration, Timestamp};
use reconciler::Purged;

use crate::{account, output::write_out, roles, settings::Settings};

/// Deletes the orders of the archived item and prints what came of it. Exit status 1 if it cannot be
/// done yet.
pub async fn purge(settings: &Settings, item: &ItemId) -> Result<ExitCode> {
    let ledger = roles::connect_ledger(settings).await?;
    let retention =
        SignedDuration::try_from(settings.purge_retention).unwrap_or(SignedDuration::MAX);
    // A clock that runs ahead deletes nothing early: the ledger has dated the archive.
    let archived_before = Timestamp::now()
        .min(ledger.time().await?)
        .checked_sub(retention)
        .unwrap_or(Timestamp::MIN);
    let purged = reconciler::purge_once(&*ledger, item, archived_before, &account::actor())
        .await?
        .with_context(|| format!("there is no item {item}"))?;
    let (text, status) = match purged {
        Purged::Done(orders) => (format!("purged, {orders} orders deleted"), 0),
        Purged::Waits(orders) => (
            format!(
                "NOT purged: the money of {orders} orders is to be returned; all others are deleted"
            ),
            1,
        ),
        Purged::NotArchived => ("NOT purged: it is not archived".into(), 1),
        Purged::TooEarly(at) => {
            let until = at.checked_add(retention).unwrap_or(Timestamp::MAX);
            (format!("NOT purged: it keeps its orders until {until}"), 1)
        }
    };
    write_out(&format!("{item}: {text}\n"))?;
    Ok(ExitCode::from(status))
}
