//! `stockade audit`: the conservation invariant of an item, as a table or as JSON.

use std::process::ExitCode;

use ::audit::{AuditReport, SegmentReport};
use anyhow::{Context, Result};
use async_trait::async_trait;
use comfy_table::{Table, presets::UTF8_FULL_CONDENSED};
use domain::ItemId;
use jiff::Timestamp;
use ledger::{Ledger, Pace, WalkProgress};
use stock::Stock;

use crate::{output::write_out, roles, settings::Settings};

/// Audits the item and prints the report. Exit status 1 on drift or oversell. A full audit reads
/// every order of the item, and the ledger remembers what it has found.
pub async fn audit(
    settings: &Settings,
    item: &ItemId,
    is_full: bool,
    json: bool,
) -> Result<ExitCode> {
    let ledger = roles::connect_ledger(settings).await?;
    let stock = roles::open_stock(settings).await?;
    let report = if is_full {
        full(&stock, &*ledger, item).await?
    } else {
        ::audit::audit(&stock, &*ledger, item).await?
    };
    let report = report.with_context(|| format!("there is no item {item}"))?;
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

async fn full(stock: &Stock, ledger: &dyn Ledger, item: &ItemId) -> Result<Option<AuditReport>> {
    let at = Timestamp::now();
    let Some(audited) = ::audit::full_audit(stock, ledger, item, at, &Progress).await? else {
        return Ok(None);
    };
    if let Err(error) = audited.store(ledger, item).await {
        // The report is true all the same.
        eprintln!("the ledger did not take the result of this audit: {error}");
    }
    Ok(Some(audited.report))
}

/// Prints how far the walk is to stderr.
struct Progress;

#[async_trait]
impl Pace for Progress {
    async fn piece_read(&self, progress: WalkProgress) {
        let (orders, percent) = (progress.orders, progress.share * 100.0);
        eprintln!("{orders} orders read, {percent:.0} %");
    }
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
    let orders = orders(report);
    format!(
        "{table}\n{archived}{dropped}{findings}{orders}oversold {}, drift {}: {verdict}",
        report.oversold, report.drift
    )
}

/// What is known of the orders themselves. An archive begins with a full audit, so nothing is to be
/// added.
fn orders(report: &AuditReport) -> String {
    let checked = &report.orders_checked;
    match (checked.fault, checked.at) {
        _ if report.archived_at.is_some() => String::new(),
        (Some(fault), _) => format!(
            "orders: the full audit of {} found them {} units off the counters, and {} oversold; --full reads them again\n",
            fault.at, fault.miscounted, fault.oversold
        ),
        (None, Some(at)) if checked.current => {
            format!("orders: all agreed with the counters at {at}, and no unit has moved since\n")
        }
        (None, Some(at)) => format!(
            "orders: all agreed with the counters at {at}; units have moved since, --full reads all orders\n"
        ),
        (None, None) => "orders: never compared with the counters, --full does it\n".into(),
    }
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
