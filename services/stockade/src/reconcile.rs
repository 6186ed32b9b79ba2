//! `stockade reconcile`: prints the repair plan of an item, and executes it.

use std::process::ExitCode;

use anyhow::{Context, Result};
use comfy_table::{Table, presets::UTF8_FULL_CONDENSED};
use domain::ItemId;
use reconciler::{Plan, Step};

use crate::{item_lock, output::write_out, roles, settings::Settings};

/// Plans the repair and, unless it is a dry run, executes it under the item's lock. Exit status 1 if
/// work is planned or left.
pub async fn reconcile(
    settings: &Settings,
    item: &ItemId,
    dry_run: bool,
    json: bool,
) -> Result<ExitCode> {
    let ledger = roles::connect_ledger(settings).await?;
    let stock = roles::open_stock(settings).await?;
    let found = reconciler::plan(&stock, &*ledger, item)
        .await?
        .with_context(|| format!("there is no item {item}"))?;
    let left = if dry_run || found.steps.is_empty() {
        found.clone()
    } else {
        let lock = item_lock::open(settings).await?;
        reconciler::reconcile_once(stock, ledger, lock, item)
            .await?
            .with_context(|| format!("there is no item {item}"))?
    };
    write_out(&if json {
        as_json(&found, &left, dry_run)?
    } else {
        as_text(&found, &left, dry_run)
    })?;
    Ok(if left.is_pressing() {
        ExitCode::from(1)
    } else {
        ExitCode::SUCCESS
    })
}

fn as_json(found: &Plan, left: &Plan, dry_run: bool) -> Result<String> {
    let value = serde_json::json!({ "item": found.item, "dry_run": dry_run, "steps": found.steps, "left": left.steps, "ok": !left.is_pressing() });
    Ok(format!("{}\n", serde_json::to_string_pretty(&value)?))
}

fn as_text(found: &Plan, left: &Plan, dry_run: bool) -> String {
    if found.steps.is_empty() {
        return format!("{}: nothing to do\n", found.item);
    }
    let verdict = match (dry_run, left.is_pressing()) {
        (true, _) => "dry run: nothing was changed".to_owned(),
        (false, false) => "done".to_owned(),
        (false, true) => format!("NOT all done; left:\n{}", table(&left.steps)),
    };
    format!(
        "{}\n{}{}: {verdict}\n",
        table(&found.steps),
        entries(&found.steps),
        found.item
    )
}

fn table(steps: &[Step]) -> String {
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED);
    table.set_header(["action", "segment", "units", "why", "would"]);
    for step in steps {
        let segment = step
            .segment
            .map_or_else(|| "-".into(), |segment| segment.to_string());
        table.add_row([
            step.action.to_owned(),
            segment,
            step.units.to_string(),
            step.why.clone(),
            step.would.clone(),
        ]);
    }
    table.to_string()
}

fn entries(steps: &[Step]) -> String {
    let with_entries = steps.iter().filter(|step| !step.entries.is_empty());
    let lines = with_entries.map(|step| {
        let segment = step
            .segment
            .map_or_else(|| "-".into(), |segment| segment.to_string());
        format!(
            "segment {segment}, the last entries of its outbox:\n  {}\n",
            step.entries.join("\n  ")
        )
    });
    lines.collect()
}
