//! The nodes of the reconciler's lock.

use ::stock::RedisReport;

use super::{
    check::{Checks, Status},
    redis,
};
use crate::settings::Settings;

const PART: &str = "lock";

/// Checks each node, and how many there are.
pub(super) async fn check(settings: &Settings, checks: &mut Checks) {
    let is_redis = settings
        .lock
        .lock_urls
        .iter()
        .all(|url| url.starts_with("redis"));
    if settings.lock.lock_urls.is_empty() || !is_redis {
        let found = match settings.lock.lock_urls.len() {
            0 => "in the ledger's database".to_owned(),
            nodes => format!("{nodes} servers, not checked"),
        };
        return checks.add(PART, "nodes", Status::Ok, found, "");
    }
    let mut answering = 0;
    for url in &settings.lock.lock_urls {
        answering += usize::from(check_node(settings, url, checks).await);
    }
    add_quorum(answering, settings.lock.lock_urls.len(), checks);
}

async fn check_node(settings: &Settings, url: &str, checks: &mut Checks) -> bool {
    let (server, query) = url.split_once('?').unwrap_or((url, ""));
    let is_durable = query.split('&').any(|pair| pair == "durable=true");
    match ::stock::inspect(&settings.redis(server)).await {
        Ok(reports) => {
            for report in &reports {
                check_report(report, is_durable, checks);
            }
            true
        }
        Err(error) => {
            let host = server.rsplit(['@', '/']).next().unwrap_or(server);
            let part = format!("{PART} node {host}");
            let found = error.to_string();
            checks.add(&part, "answers", Status::Warn, found, "start it");
            false
        }
    }
}

fn check_report(report: &RedisReport, is_durable: bool, checks: &mut Checks) {
    let part = format!("{PART} node {}", report.server);
    let flushes = report.appendfsync.as_deref();
    let (status, found) = match (is_durable, flushes) {
        (true, Some("always")) => (Status::Ok, "durable, appendfsync always"),
        (true, Some("unknown")) => (Status::Warn, "durable, and the server does not say"),
        (true, _) => (Status::Fail, "durable, without appendfsync always"),
        (false, _) => (
            Status::Ok,
            "not durable: it waits for a lease after a restart",
        ),
    };
    let remedy =
        "appendonly yes and appendfsync always, or no ?durable=true: two may hold the lock";
    checks.add(&part, "memory of its votes", status, found, remedy);
    redis::add_eviction(&part, report, checks);
    checks.add_clock(&part, report.clock_difference_ms);
}

fn add_quorum(answering: usize, nodes: usize, checks: &mut Checks) {
    let quorum = nodes / 2 + 1;
    let (status, remedy) = if answering < quorum {
        (
            Status::Fail,
            "start the nodes: no repair, transfer or balance happens without a majority",
        )
    } else if answering < nodes || nodes < 3 || nodes.is_multiple_of(2) {
        (
            Status::Warn,
            "three or five nodes, all of them answering, tolerate the loss of one or two",
        )
    } else {
        (Status::Ok, "")
    };
    let found = format!("{answering} of {nodes} answer, {quorum} are needed");
    checks.add(PART, "nodes", status, found, remedy);
}
