//! `stockade audit`: the conservation invariant of an item, as a table or as JSON.

use std::process::ExitCode;

use ::audit::{AuditReport, SegmentReport};
use anyhow::{Context, Result};
use comfy_table::{Table, presets::UTF8_FULL_CONDENSED};
use domain::ItemId;

use crate::{output::write_out, roles, settings::Settings};

/// Audits the item and prints the report. Exit status 1 on drift or oversell.
pub async fn audit(settings: &Settings, item: &ItemId, json: bool) -> Result<ExitCode> {
    let ledger = roles::connect_ledger(settings).await?;
    let stock = roles::open_stock(settings).await?;
    let report = ::audit::audit(&stock, &*ledger, item)
        .await?
        .with_context(|| format!("there is no item {item}"))?;
    let text = if json {
        serde_json::to_string_pretty(&report)?
    } else {
        table(&report)
    };
    write_out(&format!("{text}\n"))?;
    Ok(if report.ok {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(1)
    })
}

fn table(report: &AuditReport) -> String {
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED);
    table.set_header([
        "segment",
        "allocated",
        "available",
        "held",
        "confirmed",
        "in flight",
        "drift",
    ]);
    for segment in &report.segments {
        table.add_row(row(segment));
    }
    let total = [
        report.stock,
        report.available,
        report.held,
        report.confirmed,
        report.in_flight,
        report.drift,
    ];
    table.add_row(std::iter::once(report.item.clone()).chain(total.iter().map(u64::to_string)));
    let findings: String = report.segments.iter().filter_map(finding).collect();
    let verdict = if report.ok {
        "ok: nothing oversold, stranded or lost"
    } else {
        "NOT ok"
    };
    let archived = report.archived_at.map_or_else(String::new, |at| {
        format!("archived at {at}: this is the final audit\n")
    });
    let dropped = report.dropped_at.map_or_else(String::new, |at| {
        format!("dropped at {at}: the ledger has this audit alone\n")
    });
    format!(
        "{table}\n{archived}{dropped}{findings}oversold {}, drift {}: {verdict}",
        report.oversold, report.drift
    )
}

fn row(segment: &SegmentReport) -> [String; 7] {
    [
        segment.segment.to_string(),
        segment.allocated.to_string(),
        segment
            .available
            .map_or_else(|| "missing".into(), |units| units.to_string()),
        segment.held.to_string(),
        segment.confirmed.to_string(),
        segment.in_flight.to_string(),
        segment.drift.to_string(),
    ]
}

fn finding(segment: &SegmentReport) -> Option<String> {
    let finding = segment.finding.as_ref()?;
    Some(format!("segment {}: {finding}\n", segment.segment))
}
