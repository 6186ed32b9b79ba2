//! The ledger's database.

use std::{
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use ::ledger::{DatabaseReport, Ledger, LedgerError};
use anyhow::Result;

use super::check::{Checks, Status};
use crate::{roles, settings::Settings};

const PART: &str = "ledger";

/// Checks the database. `None`: it cannot be used.
pub(super) async fn check(settings: &Settings, checks: &mut Checks) -> Option<Arc<dyn Ledger>> {
    match inspect(settings).await {
        Ok((ledger, report, missing)) => {
            check_report(settings, &report, checks);
            add_writes(ledger.check_writable().await.err(), checks);
            add_schema(&missing, checks);
            missing.is_empty().then_some(ledger)
        }
        Err(error) if matches!(error.downcast_ref(), Some(LedgerError::NotWritable(_))) => {
            add_writes(error.downcast().ok(), checks);
            None
        }
        Err(error) => {
            let remedy = "start it, or correct DATABASE_URL";
            checks.add(PART, "answers", Status::Fail, format!("{error:#}"), remedy);
            None
        }
    }
}

async fn inspect(settings: &Settings) -> Result<(Arc<dyn Ledger>, DatabaseReport, Vec<i64>)> {
    let ledger = roles::connect_ledger(settings).await?;
    let before = now_ms();
    let mut report = ledger.inspect().await?;
    let middle = i64::midpoint(before, now_ms());
    report.now_ms = report.now_ms.map(|theirs| theirs - middle);
    let missing = ledger.missing_migrations().await?;
    Ok((ledger, report, missing))
}

fn now_ms() -> i64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

fn check_report(settings: &Settings, report: &DatabaseReport, checks: &mut Checks) {
    let (status, remedy) = match report.connections {
        Some(_) => (Status::Ok, ""),
        None => (Status::Warn, "a file serves one machine: use PostgreSQL"),
    };
    checks.add(PART, "database", status, &*report.version, remedy);
    let (status, found) = if report.unsafe_settings.is_empty() {
        (Status::Ok, "every commit".to_owned())
    } else {
        let off = report.unsafe_settings.join(", ");
        (Status::Fail, format!("{off} off"))
    };
    let remedy = "set it to on: a crash of the server loses acknowledged orders";
    checks.add(PART, "flushes", status, found, remedy);
    add_connections(settings, report, checks);
    if let Some(difference) = report.now_ms {
        checks.add_clock(PART, Some(difference));
    }
}

/// Whether an order could be recorded now.
fn add_writes(refusal: Option<LedgerError>, checks: &mut Checks) {
    let (status, found) = match refusal {
        None => (Status::Ok, "are accepted".to_owned()),
        Some(error) => (Status::Fail, format!("{:#}", anyhow::Error::from(error))),
    };
    let remedy = "name the primary in DATABASE_URL, make it writable, or free its disk";
    checks.add(PART, "writes", status, found, remedy);
}

fn add_schema(missing: &[i64], checks: &mut Checks) {
    let (status, found) = match missing {
        [] => (Status::Ok, "up to date".to_owned()),
        [first, ..] => (
            Status::Fail,
            format!("lacks {} migrations, from {first} on", missing.len()),
        ),
    };
    checks.add(PART, "schema", status, found, "run `stockade migrate`");
}

/// Whether one more process with these settings finds all its connections.
fn add_connections(settings: &Settings, report: &DatabaseReport, checks: &mut Checks) {
    let Some(connections) = report.connections else {
        return;
    };
    let recorder = match settings.service.roles.order && settings.service.roles.recorder {
        true => u32::try_from(settings.service.recorder_workers + 1).unwrap_or(u32::MAX),
        false => 0,
    };
    let wanted = ::ledger::postgres_connections(settings.database.database_connections) + recorder;
    let left = connections.most.saturating_sub(connections.used);
    let status = if wanted > connections.most {
        Status::Fail
    } else if wanted > left {
        Status::Warn
    } else {
        Status::Ok
    };
    let found = format!(
        "{} of {} in use; another process takes up to {wanted}",
        connections.used, connections.most
    );
    let remedy = "raise max_connections, or lower STOCKADE_DATABASE_CONNECTIONS";
    checks.add(PART, "connections", status, found, remedy);
}
