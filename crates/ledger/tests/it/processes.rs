//! What processes report of themselves: a repeated report counts once, and no count is lost when a
//! process ends.

use std::time::Duration;

use domain::{Change, ItemId};
use jiff::{SignedDuration, Timestamp};
use ledger::{KnownSink, ProcessReport, ReportedLock, RequestCounts};
use testkit::{Backend, on_both_databases, tested};
use uuid::Uuid;

use crate::env::{AnyLedger, TestEnv, happen, order, segment};

fn item(id: &str) -> ItemId {
    ItemId::new(id).unwrap()
}

fn counts(arrived: u64) -> RequestCounts {
    RequestCounts {
        arrived,
        shed: arrived / 2,
        held: 1,
        ..RequestCounts::default()
    }
}

fn report(id: Uuid, requests: &[(&str, u64)]) -> ProcessReport {
    ProcessReport {
        id,
        roles: "order,recorder".into(),
        version: "1.2.3".into(),
        host: "shop-1".into(),
        pid: 7,
        started_at: Timestamp::now(),
        now: Timestamp::now(),
        locks: vec![ReportedLock {
            item: "vase".into(),
            token: 9,
            since_ms: 5,
            until_ms: None,
        }],
        requests: requests
            .iter()
            .map(|(id, arrived)| (item(id), counts(*arrived)))
            .collect(),
    }
}

/// The requests that arrived for the item.
async fn arrived(ledger: &impl AnyLedger, id: &str) -> Option<u64> {
    let all = [item(id), item("no-such-item")];
    let counts = ledger.request_counts(&all).await.unwrap();
    counts.first().map(|(_, counts)| counts.arrived)
}

#[tested(on_both_databases(crate::env::run))]
async fn a_repeated_report_counts_once_and_processes_add_up(env: &TestEnv) {
    let began = Timestamp::now();
    let [one, two] = [Uuid::new_v4(), Uuid::new_v4()];
    assert_eq!(arrived(env, "vase").await, None);
    for first in [true, true, false] {
        let sent = report(one, &[("vase", 10), ("bowl", 4)]);
        assert!(env.report_process(&sent, first).await.unwrap());
        assert_eq!(arrived(env, "vase").await, Some(10));
    }
    let sent = report(two, &[("vase", 5)]);
    assert!(env.report_process(&sent, true).await.unwrap());
    assert!(env.report_process(&report(one, &[]), false).await.unwrap());
    assert_eq!(arrived(env, "vase").await, Some(15));
    assert_eq!(arrived(env, "bowl").await, Some(4));
    let processes = env.processes().await.unwrap();
    assert_eq!(processes.len(), 2);
    let seen = &processes[0];
    assert_eq!((&*seen.roles, seen.pid), ("order,recorder", 7));
    assert_eq!((&*seen.version, &*seen.host), ("1.2.3", "shop-1"));
    assert_eq!(seen.locks, report(one, &[]).locks);
    let passed = Timestamp::now().duration_since(began) + SignedDuration::from_secs(1);
    assert!(seen.silent <= passed, "{seen:?} after {passed}");
    assert_eq!(
        seen.clock_difference.is_some(),
        env.backend == Backend::Postgres
    );
}

#[tested(on_both_databases(crate::env::run))]
async fn the_counts_of_a_process_that_ended_are_kept(env: &TestEnv) {
    for arrived_here in [10, 20, 30] {
        let process = Uuid::new_v4();
        let sent = report(process, &[("vase", arrived_here), ("bowl", 1)]);
        env.report_process(&sent, true).await.unwrap();
        // A repeat, as after a lost reply, adds nothing.
        env.end_process(process).await.unwrap();
        env.end_process(process).await.unwrap();
    }
    assert_eq!(env.processes().await.unwrap(), []);
    assert_eq!(arrived(env, "vase").await, Some(60));
    assert_eq!(arrived(env, "bowl").await, Some(3));
    let all = env.request_counts(&[item("vase")]).await.unwrap();
    assert_eq!((all[0].1.held, all[0].1.refused()), (3, 30));
}

#[tested(on_both_databases(crate::env::run))]
async fn a_process_that_was_taken_for_dead_begins_anew(env: &TestEnv) {
    let process = Uuid::new_v4();
    let sent = report(process, &[("vase", 10)]);
    env.report_process(&sent, true).await.unwrap();
    let hour = Duration::from_secs(3600);
    assert_eq!(env.end_silent_processes(hour).await.unwrap(), 0);
    tokio::time::sleep(Duration::from_millis(5)).await;
    let ended = env.end_silent_processes(Duration::ZERO).await.unwrap();
    assert_eq!(ended, 1);
    let late = report(process, &[("vase", 12)]);
    assert!(
        !env.report_process(&late, false).await.unwrap(),
        "its totals would count twice"
    );
    assert_eq!(arrived(env, "vase").await, Some(10));
}

#[tested(on_both_databases(crate::env::run))]
async fn sinks_and_the_state_of_the_database_are_shown(env: &TestEnv) {
    assert_eq!(env.sinks().await.unwrap(), []);
    let minute = Duration::from_secs(60);
    let leased = env.lease_sink("nats", Uuid::new_v4(), minute).await;
    let sinks = env.sinks().await.unwrap();
    let [KnownSink { name, cursor, .. }] = &sinks[..] else {
        panic!("{sinks:?}");
    };
    assert_eq!((&**name, Some(*cursor)), ("nats", leased.unwrap()));
    let report = env.inspect().await.unwrap();
    let waits = match env.backend {
        Backend::Postgres => "synchronous_commit on",
        Backend::Sqlite => "synchronous FULL",
    };
    assert_eq!(report.commit_waits_for, waits);
    assert_eq!(report.replicas, []);
}

#[tested(on_both_databases(crate::env::run))]
async fn holds_are_counted_by_the_time_of_their_end(env: &TestEnv) {
    let vase = env.create_unlimited("vase", 100, 1).await;
    let from = Timestamp::from_second(1_800_000_000).unwrap();
    // In units, by the second of their end.
    let ends = [(-1, 1), (0, 2), (9, 3), (10, 4), (29, 5), (30, 6), (500, 7)];
    for (n, (seconds, units)) in ends.into_iter().enumerate() {
        let taken = Change::Taken {
            price: None,
            expires_at: from + SignedDuration::from_secs(seconds),
            orders: vec![order(&vase, n, units)],
        };
        happen(env, &segment(&vase, 0), [taken]).await;
    }
    let width = Duration::from_secs(10);
    let slots = env.held_units_by_end(&vase.id, from, width, 4).await;
    assert_eq!(slots.unwrap(), [1, 2 + 3, 4, 5, 6 + 7]);
    let other = item("bowl");
    let slots = env.held_units_by_end(&other, from, width, 2).await;
    assert_eq!(slots.unwrap(), [0, 0, 0]);
}
