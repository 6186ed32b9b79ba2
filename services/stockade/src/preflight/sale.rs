//! The item that will be sold, what the recorders are behind, and whether the installation is large
//! enough.

use std::{path::Path, sync::Arc};

use ::ledger::Ledger;
use ::stock::{RedisReport, Stock};
use anyhow::{Context, Result};
use domain::{Durability, Item, ItemId, ItemState};
use jiff::Timestamp;

use super::check::{Checks, Status};
use crate::{plan, roles, settings::Settings};

/// A running sale has some hundreds on their way.
const BACKLOG_WARN_ENTRIES: usize = 10_000;

/// The crowd that is expected.
pub(super) struct Demand {
    pub buyers: u64,
    pub seconds: u64,
}

/// Checks how many outbox entries the ledger does not have yet.
pub(super) async fn check_backlog(
    settings: &Settings,
    ledger: &Arc<dyn Ledger>,
    checks: &mut Checks,
) {
    let (status, found) = match backlog(settings, &**ledger).await {
        Ok(entries) if entries < BACKLOG_WARN_ENTRIES => {
            (Status::Ok, format!("{entries} outbox entries"))
        }
        Ok(entries) => (Status::Warn, format!("{entries} outbox entries")),
        Err(error) => (Status::Fail, format!("{error:#}")),
    };
    let remedy = "start recorders, and wait until they have caught up";
    checks.add("recorder", "backlog", status, found, remedy);
}

async fn backlog(settings: &Settings, ledger: &dyn Ledger) -> Result<usize> {
    let stock = roles::open_stock(settings).await?;
    let mut entries = 0;
    for id in ledger.items_at_work().await? {
        let snapshots = audit::snapshots(&stock, ledger, &id).await?;
        entries += snapshots
            .iter()
            .map(|snapshot| snapshot.unrecorded.entries)
            .sum::<usize>();
    }
    stock.shutdown().await;
    Ok(entries)
}

/// Checks the item's state, window, segments and audit. Returns the item, if there is one.
pub(super) async fn check_item(
    settings: &Settings,
    ledger: &Arc<dyn Ledger>,
    id: &ItemId,
    masters: &[RedisReport],
    checks: &mut Checks,
) -> Option<Item> {
    let part = format!("item {id}");
    let item = match ledger.item(id).await {
        Ok(Some(item)) => item,
        Ok(None) => {
            checks.add(&part, "exists", Status::Fail, "no", "create it");
            return None;
        }
        Err(error) => {
            checks.add(&part, "exists", Status::Fail, error.to_string(), "");
            return None;
        }
    };
    add_window(&part, &item, checks);
    add_segments(&part, &item, masters, checks);
    add_durability(&part, settings, &item, masters, checks);
    add_audit(&part, settings, &**ledger, id, checks).await;
    Some(item)
}

fn add_window(part: &str, item: &Item, checks: &mut Checks) {
    let status = match item.state {
        ItemState::Open => Status::Ok,
        ItemState::Archived => Status::Fail,
        _ => Status::Warn,
    };
    let remedy = "open it: `stockade items open`. Before `opens_at` it sells nothing all the same";
    checks.add(part, "state", status, item.state.as_str(), remedy);
    let now = Timestamp::now();
    let (status, found) = match (item.window.opens_at, item.window.closes_at) {
        (_, Some(closes)) if closes <= now => (Status::Fail, format!("closed at {closes}")),
        (Some(opens), _) if opens > now => (Status::Ok, format!("opens at {opens}")),
        _ if item.state == ItemState::Open => (Status::Warn, "it sells already".to_owned()),
        _ => (Status::Warn, "no opens_at".to_owned()),
    };
    checks.add(part, "window", status, found, "move the window");
}

fn add_segments(part: &str, item: &Item, masters: &[RedisReport], checks: &mut Checks) {
    let status = if usize::from(item.segments) < masters.len() {
        Status::Warn
    } else {
        Status::Ok
    };
    let found = format!("{} on {} masters", item.segments, masters.len());
    let remedy = "a master without a segment sells nothing: create the item with more segments";
    checks.add(part, "segments", status, found, remedy);
}

fn add_durability(
    part: &str,
    settings: &Settings,
    item: &Item,
    masters: &[RedisReport],
    checks: &mut Checks,
) {
    let wanted = usize::from(settings.stock.replicas);
    let too_few = masters.iter().any(|master| {
        let online = master.replicas.iter().filter(|replica| replica.is_online);
        online.count() < wanted
    });
    let status = match item.durability {
        Durability::Replicated if too_few => Status::Fail,
        _ => Status::Ok,
    };
    let remedy = "start replicas: no order of a `replicated` item is acknowledged without";
    checks.add(part, "durability", status, item.durability.as_str(), remedy);
}

async fn add_audit(
    part: &str,
    settings: &Settings,
    ledger: &dyn Ledger,
    id: &ItemId,
    checks: &mut Checks,
) {
    let (status, found) = match audited(settings, ledger, id).await {
        Ok(report) if report.ok => (
            Status::Ok,
            format!("{} of {} units available", report.available, report.stock),
        ),
        Ok(report) => (
            Status::Fail,
            format!("drift {}, oversold {}", report.drift, report.oversold),
        ),
        Err(error) => (Status::Fail, format!("{error:#}")),
    };
    checks.add(
        part,
        "audit",
        status,
        found,
        "`stockade reconcile ITEM` repairs it",
    );
}

async fn audited(
    settings: &Settings,
    ledger: &dyn Ledger,
    id: &ItemId,
) -> Result<audit::AuditReport> {
    let stock: Arc<Stock> = roles::open_stock(settings).await?;
    let report = audit::audit(&stock, ledger, id).await;
    stock.shutdown().await;
    report?.context("the item is gone")
}

/// Compares what the sale needs with what there is.
pub(super) fn check_plan(
    item: &Item,
    demand: Demand,
    (costs, ledger_is_a_file): (Option<&Path>, bool),
    masters: &[RedisReport],
    checks: &mut Checks,
) -> Result<()> {
    let demand = (demand.buyers, demand.seconds);
    let needs = plan::needs(item, demand, (costs, ledger_is_a_file))?;
    add_masters(&needs, masters, checks);
    let status = if needs.segments > u64::from(item.segments) {
        Status::Warn
    } else {
        Status::Ok
    };
    let found = format!("{} of {}", item.segments, needs.segments);
    checks.add(
        "plan",
        "segments",
        status,
        found,
        "create the item with more segments",
    );
    add_room(&needs, masters, checks);
    let status = if needs.ledger_is_too_slow {
        Status::Fail
    } else {
        Status::Ok
    };
    let found = format!(
        "{} order services, {} recorders and one ledger",
        needs.services, needs.recorders
    );
    let remedy =
        "the ledger is too slow for this sale: `stockade plan` says how much time it needs";
    checks.add("plan", "processes to start", status, found, remedy);
    Ok(())
}

fn add_masters(needs: &plan::Needs, masters: &[RedisReport], checks: &mut Checks) {
    let status = if needs.masters > masters.len() as u64 {
        Status::Fail
    } else {
        Status::Ok
    };
    let found = format!("{} of {}", masters.len(), needs.masters);
    checks.add(
        "plan",
        "Redis masters",
        status,
        found,
        "use a Redis Cluster with as many",
    );
}

/// Memory for the orders, which spread over the masters.
fn add_room(needs: &plan::Needs, masters: &[RedisReport], checks: &mut Checks) {
    let free: u64 = masters
        .iter()
        .map(|master| master.max_bytes.saturating_sub(master.used_bytes))
        .sum();
    if masters.iter().any(|master| master.max_bytes == 0) {
        return;
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "not negative, and far below 2^64"
    )]
    let needed = needs.redis_bytes as u64;
    let status = if needed > free {
        Status::Fail
    } else {
        Status::Ok
    };
    let found = format!("{} MiB of {} MiB free", needed >> 20, free >> 20);
    checks.add("plan", "memory", status, found, "raise maxmemory");
}
