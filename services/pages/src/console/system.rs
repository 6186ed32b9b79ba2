//! The page of the system: what runs, and how far each part is behind.

mod read;

use std::{collections::BTreeSet, time::Duration};

use axum::{
    extract::State,
    response::{IntoResponse, Response},
};
use jiff::{SignedDuration, Timestamp};
use ledger::SeenProcess;
use maud::{Markup, html};
use stock::{RedisReport, ReplicaReport};

use super::{Console, access::Operator, head};
use crate::{
    layout::page,
    live::{self, Parts, Update},
    text::{bytes, number, span, time},
};
pub(super) use read::System;
use read::{Backlog, Database, Part, Receiver};

/// A process reports itself every five seconds.
const SILENT_AFTER: SignedDuration = SignedDuration::from_secs(15);
/// A clock that differs more is marked.
const CLOCK_MARKED_MS: i64 = 250;
/// Segments that the page lists.
const SEGMENTS_MAX: usize = 20;
const ROLES: [(&str, &str); 4] = [
    ("order", "buyers cannot order"),
    ("recorder", "orders are not recorded, and stay unanswered"),
    ("reconciler", "holds do not end, and nothing is repaired"),
    ("publisher", "webhooks and sinks get no events"),
];

pub(super) async fn show(State(console): State<Console>, operator: Operator) -> Response {
    let system = console.reads.system().await;
    let body = html! {
        (head(&operator))
        main {
            h1 { "System" }
            @for (id, title, content) in sections(&system) {
                section.card { h2 { (title) } div.scroll id=(id) { (content) } }
            }
        }
    };
    page("System", Some("/console/system/events"), &body).into_response()
}

pub(super) async fn events(State(console): State<Console>, operator: Operator) -> Response {
    live::stream(console.stop.clone(), move || {
        let (console, operator) = (console.clone(), operator.clone());
        async move {
            if operator.has_left(&console) {
                return Update::End;
            }
            let system = console.reads.system().await;
            let parts = sections(&system).into_iter();
            Update::Parts(parts.fold(Parts::default(), |parts, (id, _, content)| {
                parts.with(id, content)
            }))
        }
    })
}

fn sections(system: &System) -> [(&'static str, &'static str, Markup); 6] {
    [
        (
            "processes",
            "Processes",
            of(&system.processes, |all| processes(all)),
        ),
        ("redis", "Stock Redis", of(&system.redis, |all| redis(all))),
        ("ledger", "Ledger", of(&system.ledger, ledger)),
        ("recording", "Recording", of(&system.segments, recording)),
        (
            "locks",
            "Item locks",
            of(&system.processes, |all| locks(all)),
        ),
        (
            "receivers",
            "Webhooks and sinks",
            of(&system.receivers, |all| receivers(all)),
        ),
    ]
}

/// The part, or why it cannot be shown.
fn of<T>(part: &Part<T>, show: impl Fn(&T) -> Markup) -> Markup {
    match part {
        Ok(read) => show(read),
        Err(error) => html! { p.bad role="alert" { "Cannot be read: " (error) } },
    }
}

fn is_alive(process: &SeenProcess) -> bool {
    process.silent < SILENT_AFTER
}

fn has_role(process: &SeenProcess, role: &str) -> bool {
    process.roles.split(',').any(|has| has == role)
}

fn processes(processes: &[SeenProcess]) -> Markup {
    let alive: Vec<_> = processes
        .iter()
        .filter(|process| is_alive(process))
        .collect();
    let versions: BTreeSet<_> = alive.iter().map(|process| &*process.version).collect();
    html! {
        @for (role, consequence) in ROLES {
            @if !alive.iter().any(|process| has_role(process, role)) {
                p.bad role="alert" { "No " (role) " runs: " (consequence) "." }
            }
        }
        @if versions.len() > 1 { p { "Several versions run. Until an upgrade has ended, replace the reconcilers first and the order services last." } }
        @if !processes.is_empty() {
            table {
                thead { tr { th { "Roles" } th { "Process" } th { "Version" } th { "Running for" } th { "Last report" } th.number { "Clock" } } }
                tbody { @for process in processes { (process_row(process)) } }
            }
        }
        p.muted { "Each process reports itself every five seconds. One that was killed stays in this list for an hour. Clocks are compared with the ledger's." }
    }
}

fn process_row(process: &SeenProcess) -> Markup {
    let running = Timestamp::now().duration_since(process.started_at);
    html! {
        tr {
            td { (process.roles.replace(',', ", ")) }
            td { (process.host) " " span.muted { (process.pid) } }
            td { (process.version) }
            td { (span(unsigned(running))) }
            td {
                @if is_alive(process) { span.good { (ago(process.silent)) } }
                @else { span.bad { "silent for " (span(unsigned(process.silent))) } }
            }
            td.number { (clock(process.clock_difference.and_then(|difference| difference.as_millis().try_into().ok()))) }
        }
    }
}

/// A time that has just passed, without numbers that change all the time.
fn ago(silent: SignedDuration) -> String {
    match unsigned(silent) {
        silent if silent.as_secs() < 2 => "now".into(),
        silent => format!("{} ago", span(silent)),
    }
}

fn unsigned(duration: SignedDuration) -> Duration {
    duration.try_into().unwrap_or_default()
}

/// A difference of clocks.
fn clock(difference_ms: Option<i64>) -> Markup {
    html! {
        @match difference_ms {
            None => "same clock",
            Some(ms) if ms.abs() >= CLOCK_MARKED_MS => span.bad { (format!("{ms:+} ms")) },
            Some(ms) => (format!("{ms:+} ms")),
        }
    }
}

fn redis(servers: &[RedisReport]) -> Markup {
    html! {
        table {
            thead { tr { th { "Server" } th { "Persistence" } th { "Memory" } th { "Replicas" } th.number { "Clock" } } }
            tbody { @for server in servers { tr {
                td { (server.server) br; span.muted { (if server.is_master { "master" } else { "replica" }) ", " (server.version) } }
                td { (persistence(server)) }
                td { (memory(server)) }
                td { @if server.replicas.is_empty() { "none" } @for replica in &server.replicas { (replica_line(replica)) } }
                td.number { (clock(server.clock_difference_ms)) }
            } } }
        }
    }
}

fn persistence(server: &RedisReport) -> Markup {
    html! {
        @match server.appendfsync.as_deref() {
            Some("always") => "flushes each write",
            Some("everysec") => span.bad { "flushes once a second" },
            Some("unknown") => "keeps a log",
            Some(_) => span.bad { "never flushes" },
            None => span.bad { "keeps no log" },
        }
        @if !server.writes_ok { br; span.bad { "the last write to disk failed" } }
        @if server.eviction != "noeviction" { br; span.bad { "evicts keys: " (server.eviction) } }
    }
}

fn memory(server: &RedisReport) -> Markup {
    let used = bytes(server.used_bytes);
    html! {
        @if server.max_bytes == 0 { (used) ", " span.bad { "no bound" } }
        @else {
            @let percent = server.used_bytes.saturating_mul(100) / server.max_bytes;
            (used) " of " (bytes(server.max_bytes)) " "
            span.bad[percent >= 60] { "(" (percent) " %)" }
        }
    }
}

fn replica_line(replica: &ReplicaReport) -> Markup {
    html! {
        div {
            (replica.server) " "
            @if replica.is_online {
                span.muted {
                    (bytes(replica.behind_bytes)) " behind"
                    @if let Some(seconds) = replica.silent_seconds.filter(|seconds| *seconds > 1) { ", silent for " (seconds) " s" }
                }
            } @else { span.bad { "not online" } }
        }
    }
}

fn ledger(database: &Database) -> Markup {
    let report = &database.report;
    html! {
        p.facts {
            span { (report.version) }
            span { (report.commit_waits_for) }
            @if report.unsafe_settings.is_empty() { span.good { "flushes every commit" } }
            @else { span.bad { (report.unsafe_settings.join(", ")) " off: a crash loses recorded orders" } }
            @if let Some(connections) = report.connections { span { (connections.used) " of " (connections.most) " connections" } }
            @if database.clock_difference_ms.is_some() { span { "Clock " (clock(database.clock_difference_ms)) } }
        }
        @if report.replicas.is_empty() { p.muted { "No server follows it." } }
        @for replica in &report.replicas {
            p {
                "Replica " (replica.name) ": " (replica.state.as_deref().unwrap_or("state unknown (needs pg_read_all_stats)"))
                @if let Some(behind) = replica.behind_bytes { ", " (bytes(behind)) " behind" }
            }
        }
    }
}

fn recording(backlog: &Backlog) -> Markup {
    let now_ms = u64::try_from(Timestamp::now().as_millisecond()).unwrap_or(0);
    html! {
        @if backlog.behind.is_empty() { p.good { "The ledger has every outbox entry." } }
        @else {
            table {
                thead { tr { th { "Item" } th { "Segment" } th.number { "Entries behind" } th.number { "Lag" } } }
                tbody { @for segment in backlog.behind.iter().take(SEGMENTS_MAX) { tr {
                    td { a href={ "/console/items/" (segment.item) } { (segment.item) } }
                    td { (segment.segment) }
                    td.number { (number(segment.entries as u64)) }
                    td.number { (span(Duration::from_millis(now_ms.saturating_sub(segment.oldest_ms)))) }
                } } }
            }
            @if backlog.behind.len() > SEGMENTS_MAX { p.muted { "The " (SEGMENTS_MAX) " with the longest lag of " (backlog.behind.len()) "." } }
        }
        @if backlog.read < backlog.items { p.muted { "The segments of " (backlog.read) " of " (backlog.items) " items." } }
    }
}

fn locks(processes: &[SeenProcess]) -> Markup {
    let mut locks: Vec<_> = processes
        .iter()
        .flat_map(|process| process.locks.iter().map(move |lock| (process, lock)))
        .collect();
    locks.sort_by_key(|(_, lock)| std::cmp::Reverse(lock.since_ms));
    let at = |ms| {
        Timestamp::from_millisecond(ms)
            .map(time)
            .unwrap_or_default()
    };
    html! {
        @if locks.is_empty() { p.muted { "No item has needed a repair, a transfer or an archive." } }
        @else {
            table {
                thead { tr { th { "Item" } th.number { "Token" } th { "Process" } th { "Since" } th { "State" } } }
                tbody { @for (process, lock) in locks.iter().take(SEGMENTS_MAX) { tr {
                    td { a href={ "/console/items/" (lock.item) } { (lock.item) } }
                    td.number { (lock.token) }
                    td { (process.host) " " span.muted { (process.pid) } }
                    td { (at(lock.since_ms)) }
                    td {
                        @match lock.until_ms {
                            Some(ms) => { "given up after " (span(Duration::from_millis(u64::try_from(ms - lock.since_ms).unwrap_or(0)))) },
                            None if is_alive(process) => b { "held" },
                            None => span.bad { "held by a silent process, until its lease ends" },
                        }
                    }
                } } }
            }
            p.muted { "As the reconcilers report them. Ledger and segments accept only the highest token of an item." }
        }
    }
}

fn receivers(receivers: &[Receiver]) -> Markup {
    html! {
        @if receivers.is_empty() { p.muted { "None are set up." } }
        @else {
            table {
                thead { tr { th { "Kind" } th { "Receiver" } th.number { "Lag" } th { "State" } } }
                tbody { @for receiver in receivers { tr {
                    td { (receiver.kind) }
                    td { (receiver.name) }
                    td.number { @match receiver.lag { Some(lag) => (span(lag)), None => "0 s" } }
                    td { @match &receiver.problem { Some(problem) => span.bad { (problem) }, None => span.good { "ok" } } }
                } } }
            }
        }
    }
}
