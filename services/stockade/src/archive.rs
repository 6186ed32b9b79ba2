//! `stockade items archive`, directly on the stores.

use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use domain::ItemId;
use reconciler::Archived;

use crate::{account, item_lock, output::write_out, roles, settings::Settings};

/// Archives the item and prints what came of it. Exit status 1 if something is still open.
pub async fn archive(settings: &Settings, item: &ItemId) -> Result<ExitCode> {
    let ledger = roles::connect_ledger(settings).await?;
    let stock = roles::open_stock(settings).await?;
    let lock = item_lock::open(settings).await?;
    let archived = reconciler::archive_once(stock, ledger, lock, item, &account::actor())
        .await?
        .with_context(|| format!("there is no item {item}"))?;
    match archived {
        Archived::Done => {
            write_out(&format!("{item}: archived\n"))?;
            Ok(ExitCode::SUCCESS)
        }
        Archived::Refused(reasons) => {
            let reasons = reasons.join("; ");
            write_out(&format!("{item}: NOT archived: {reasons}\n"))?;
            Ok(ExitCode::from(1))
        }
        Archived::Locked => bail!("another process holds the lock of {item}, try again"),
    }
}
