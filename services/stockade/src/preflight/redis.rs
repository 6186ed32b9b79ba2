//! The servers of the stock.

use ::stock::{RedisReport, RedisSettings};

use super::check::{Checks, Status};
use crate::settings::Settings;

const PART: &str = "stock Redis";
const OLDEST_MAJOR: u32 = 7;
/// Shares of the memory's bound.
const MEMORY_WARN_PERCENT: u64 = 60;
const MEMORY_FAIL_PERCENT: u64 = 90;
/// A replica that is further behind would lose this much in a failover.
const BEHIND_WARN_BYTES: u64 = 1 << 20;

/// Checks every master, and returns what they said.
pub(super) async fn check(settings: &Settings, checks: &mut Checks) -> Vec<RedisReport> {
    let Some(url) = &settings.stock.redis_url else {
        let remedy = "set REDIS_URL";
        checks.add(PART, "address", Status::Fail, "none", remedy);
        return Vec::new();
    };
    match ::stock::inspect(&settings.redis(url)).await {
        Ok(reports) => {
            for report in &reports {
                check_server(settings, report, checks);
            }
            add_refusals(&settings.redis(url), checks).await;
            reports
        }
        Err(error) => {
            let remedy = "start it, or correct REDIS_URL";
            checks.add(PART, "answers", Status::Fail, error.to_string(), remedy);
            Vec::new()
        }
    }
}

/// A server that answers may refuse every order. The readiness of an order service asks the same.
async fn add_refusals(redis: &RedisSettings, checks: &mut Checks) {
    let remedy = "OOM: raise maxmemory; NOREPLICAS: start its replicas; READONLY: name its master; MISCONF: make room on its disk; NOPERM: permit EVALSHA and the commands of the scripts; see the page `store-refuses` of the runbook";
    match ::stock::check_writable(redis).await {
        Ok(answers) => {
            for answer in answers {
                let (status, found) = match answer.refusal() {
                    None => (Status::Ok, "yes".to_owned()),
                    Some(refusal) => (Status::Fail, refusal),
                };
                let part = format!("{PART} {}", answer.server);
                checks.add(&part, "takes orders", status, found, remedy);
            }
        }
        Err(error) => checks.add(
            PART,
            "takes orders",
            Status::Fail,
            error.to_string(),
            remedy,
        ),
    }
}

fn check_server(settings: &Settings, report: &RedisReport, checks: &mut Checks) {
    let part = format!("{PART} {}", report.server);
    add_version(&part, report, checks);
    let role = if report.is_master {
        (Status::Ok, "master")
    } else {
        (Status::Fail, "replica")
    };
    checks.add(&part, "role", role.0, role.1, "name its master");
    add_flushes(&part, report, checks);
    add_eviction(&part, report, checks);
    add_memory(&part, report, checks);
    add_replicas(&part, settings, report, checks);
    checks.add_clock(&part, report.clock_difference_ms);
}

pub(super) fn add_version(part: &str, report: &RedisReport, checks: &mut Checks) {
    let major = report.version.split('.').next().unwrap_or_default();
    let is_new = major.parse().is_ok_and(|major: u32| major >= OLDEST_MAJOR);
    let status = if is_new { Status::Ok } else { Status::Fail };
    checks.add(
        part,
        "version",
        status,
        &*report.version,
        "install 7.0 or newer",
    );
}

pub(super) fn add_eviction(part: &str, report: &RedisReport, checks: &mut Checks) {
    let status = match &*report.eviction {
        "noeviction" => Status::Ok,
        _ => Status::Fail,
    };
    let remedy = "CONFIG SET maxmemory-policy noeviction, and the same in its file";
    checks.add(part, "eviction", status, &*report.eviction, remedy);
}

/// An acknowledged order is in the ledger. One that was only accepted is in this server's file.
fn add_flushes(part: &str, report: &RedisReport, checks: &mut Checks) {
    let (status, found) = match report.appendfsync.as_deref() {
        Some("always") => (Status::Ok, "appendfsync always"),
        Some("everysec") => (Status::Warn, "appendfsync everysec"),
        Some("unknown") => (Status::Warn, "the server does not say"),
        Some(_) => (Status::Fail, "appendfsync no"),
        None => (Status::Fail, "appendonly no"),
    };
    let remedy = "appendonly yes and appendfsync always: a crash loses accepted orders that the ledger does not have yet, and the segments must be repaired";
    checks.add(part, "flushes", status, found, remedy);
}

fn add_memory(part: &str, report: &RedisReport, checks: &mut Checks) {
    let used = report.used_bytes >> 20;
    if report.max_bytes == 0 {
        let remedy =
            "set maxmemory: with too many orders the system ends the server, where it could refuse";
        let found = format!("{used} MiB used, no bound");
        return checks.add(part, "memory", Status::Warn, found, remedy);
    }
    let percent = report.used_bytes.saturating_mul(100) / report.max_bytes;
    let status = match percent {
        MEMORY_FAIL_PERCENT.. => Status::Fail,
        MEMORY_WARN_PERCENT.. => Status::Warn,
        _ => Status::Ok,
    };
    let found = format!(
        "{used} of {} MiB used ({percent} %)",
        report.max_bytes >> 20
    );
    checks.add(
        part,
        "memory",
        status,
        found,
        "archive sold items, or raise maxmemory",
    );
}

fn add_replicas(part: &str, settings: &Settings, report: &RedisReport, checks: &mut Checks) {
    let online = report.replicas.iter().filter(|replica| replica.is_online);
    let furthest = online
        .clone()
        .map(|replica| replica.behind_bytes)
        .max()
        .unwrap_or(0);
    let online = online.count();
    let found = format!(
        "{online} of {} online, the last {furthest} bytes behind",
        report.replicas.len()
    );
    let too_few = online < usize::from(settings.stock.replicas);
    let status = if too_few || online < report.replicas.len() || furthest > BEHIND_WARN_BYTES {
        Status::Warn
    } else {
        Status::Ok
    };
    let remedy = if too_few {
        "start a replica: without one the sale stands still while this server is down, and no item can be `replicated`"
    } else {
        "wait until every replica follows: a failover loses what they lack, and segments must be repaired"
    };
    checks.add(part, "replicas", status, found, remedy);
}
