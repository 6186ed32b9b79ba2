//! `stockade items drop`, directly on the ledger.

use std::{path::Path, process::ExitCode};

use anyhow::{Context, Result};
use domain::ItemId;
use jiff::{SignedDuration, Timestamp};
use reconciler::Dropped;

use crate::{account, output::write_out, roles, settings::Settings};

/// The folder of exports within that of the settings.
pub const EXPORTS: &str = "exports";

/// An item to drop.
pub struct DropArguments {
    pub item: ItemId,
    /// Days since its archive. `None`: any.
    pub after_days: Option<u32>,
}

/// Exports and deletes what the archived item has left, and prints what came of it. Exit status 1
/// if it cannot be done yet.
pub async fn drop_item(
    settings: &Settings,
    dir: &Path,
    arguments: &DropArguments,
) -> Result<ExitCode> {
    let ledger = roles::connect_ledger(settings).await?;
    let folder = settings.retention.drop_exports.clone();
    let folder = folder.unwrap_or_else(|| dir.join(EXPORTS));
    let (item, age) = (&arguments.item, age(arguments.after_days));
    let archived_before = match age {
        // A clock that runs ahead deletes nothing early: the ledger has dated the archive.
        Some(age) => Timestamp::now()
            .min(ledger.time().await?)
            .checked_sub(age)
            .unwrap_or(Timestamp::MIN),
        None => Timestamp::MAX,
    };
    let actor = account::actor();
    let dropped = reconciler::drop_once(&*ledger, item, archived_before, &actor, &folder)
        .await?
        .with_context(|| format!("there is no item {item}"))?;
    let (text, status) = match dropped {
        Dropped::Done { orders, exports } => {
            let exports: Vec<_> = exports
                .iter()
                .map(|export| format!("\nexport: {}", export.display()))
                .collect();
            let exports = exports.concat();
            (format!("dropped, {orders} orders deleted{exports}"), 0)
        }
        Dropped::Waits(orders) => (
            format!("NOT dropped: the money of {orders} orders is to be returned"),
            1,
        ),
        Dropped::NotArchived => ("NOT dropped: it is not archived".into(), 1),
        Dropped::TooEarly(at) => {
            let until = at.checked_add(age.unwrap_or_default());
            let until = until.unwrap_or(Timestamp::MAX);
            (format!("NOT dropped: it keeps its orders until {until}"), 1)
        }
    };
    write_out(&format!("{item}: {text}\n"))?;
    Ok(ExitCode::from(status))
}

fn age(days: Option<u32>) -> Option<SignedDuration> {
    days.map(|days| SignedDuration::from_hours(i64::from(days) * 24))
}
