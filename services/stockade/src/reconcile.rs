//! `stockade reconcile`: prints the repair plan of an item, and executes it.

use std::process::ExitCode;

use anyhow::{Context, Result};
use comfy_table::{Table, presets::UTF8_FULL_CONDENSED};
use domain::ItemId;
use ledger::NewJournalEntry;
use reconciler::{Plan, Step};

use crate::{account, item_lock, output::write_out, roles, settings::Settings};

/// How far to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// Print the plan only.
    DryRun,
    /// Do what the plan says.
    Plan,
    /// Rebuild every segment from the ledger first.
    Rebuild,
}

/// Plans the repair and, unless it is a dry run, executes it under the item's lock. Exit status 1
/// if work is planned or left.
pub async fn reconcile(
    settings: &Settings,
    item: &ItemId,
    extent: Extent,
    json: bool,
) -> Result<ExitCode> {
    let ledger = roles::connect_ledger(settings).await?;
    let stock = roles::open_stock(settings).await?;
    let found = reconciler::plan(&stock, &*ledger, item)
        .await?
        .with_context(|| format!("there is no item {item}"))?;
    let left = match extent {
        Extent::DryRun => Some(found.clone()),
        Extent::Plan if found.steps.is_empty() => Some(found.clone()),
        Extent::Plan => {
            let lock = item_lock::open(settings).await?;
            ledger.note(&entry(item, "reconcile", &found)).await?;
            reconciler::reconcile_once(stock, ledger, lock, item).await?
        }
        Extent::Rebuild => {
            let lock = item_lock::open(settings).await?;
            ledger.note(&entry(item, "rebuild", &found)).await?;
            reconciler::rebuild_once(stock, ledger, lock, item).await?
        }
    };
    let left = left.with_context(|| format!("there is no item {item}"))?;
    // A rebuild leaves holds that are over, transfers and returns to the reconcilers.
    let ok = match extent {
        Extent::Rebuild => !left.needs_repair(),
        Extent::DryRun | Extent::Plan => !left.is_pressing(),
    };
    write_out(&if json {
        as_json(&found, &left, extent, ok)?
    } else {
        as_text(&found, &left, extent, ok)
    })?;
    Ok(if ok {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(1)
    })
}

/// The journal entry for who has asked for a repair, before it begins. The repair of each segment
/// has an entry of the reconciler's.
fn entry(item: &ItemId, action: &str, found: &Plan) -> NewJournalEntry {
    NewJournalEntry {
        item: item.clone(),
        actor: account::actor(),
        action: action.into(),
        token: None,
        before: serde_json::json!({}),
        after: serde_json::json!({ "steps": found.steps.len() }),
    }
}

fn as_json(found: &Plan, left: &Plan, extent: Extent, ok: bool) -> Result<String> {
    let value = serde_json::json!({ "item": found.item, "dry_run": extent == Extent::DryRun, "steps": found.steps, "left": left.steps, "ok": ok });
    Ok(format!("{}\n", serde_json::to_string_pretty(&value)?))
}

fn as_text(found: &Plan, left: &Plan, extent: Extent, ok: bool) -> String {
    let verdict = match (extent, ok) {
        (Extent::DryRun | Extent::Plan, _) if found.steps.is_empty() => {
            return format!("{}: nothing to do\n", found.item);
        }
        (Extent::DryRun, _) => "dry run: nothing was changed".to_owned(),
        (_, false) => format!("NOT all done; left:\n{}", table(&left.steps)),
        (Extent::Plan, true) => "done".to_owned(),
        (Extent::Rebuild, true) if left.steps.is_empty() => "rebuilt from the ledger".to_owned(),
        (Extent::Rebuild, true) => format!(
            "rebuilt from the ledger; left for the reconcilers:\n{}",
            table(&left.steps)
        ),
    };
    if found.steps.is_empty() {
        return format!("{}: {verdict}\n", found.item);
    }
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
