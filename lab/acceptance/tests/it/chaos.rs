//! A short chaos run: one fault of every kind that this machine can inject, and those of events in
//! one process. `make chaos` runs longer.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
};

use ::chaos::{BrokerKind, EnvConfig, Fault, Plan, Report, Topology};
use clap::ValueEnum;
use serde_json::Value;

use crate::process::program;

/// Number of concurrent environments, of a dozen processes each. Times to heal do not matter here,
/// but orders must be answered in time beside the other tests.
const PARALLEL_ENVS: usize = 2;

fn seed() -> u64 {
    let seed = std::env::var("SEED").ok();
    seed.and_then(|seed| seed.parse().ok()).unwrap_or(7)
}

/// What was found, which stays in the folder also if the program is ended before its output is shown.
fn summary(report: &Report, folder: &Path) -> Value {
    report.write(folder).unwrap();
    let text = std::fs::read(folder.join("summary.json")).unwrap();
    serde_json::from_slice(&text).unwrap()
}

/// Events were sent in each of these stages, and none was lost or overtaken.
fn assert_events(summary: &Value, stages: &[Topology]) {
    let mut sent = HashMap::<&str, u64>::new();
    for round in summary["rounds"].as_array().unwrap() {
        let of_stage = sent.entry(round["stage"].as_str().unwrap()).or_default();
        *of_stage += round["events"].as_u64().unwrap();
    }
    for stage in stages {
        assert!(sent[&*stage.to_string()] > 0, "{stage}: {summary:#}");
    }
    let events = &summary["events"];
    let [sent, lost, doubled, out_of_order] =
        ["sent", "lost", "doubled", "out_of_order"].map(|key| events[key].as_u64().unwrap());
    assert_eq!((lost, out_of_order), (0, 0), "{events}");
    assert!(
        sent > 0 && doubled <= summary["deliveries"].as_u64().unwrap(),
        "{events}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_oversold_or_stranded_by_a_fault_of_any_kind() {
    let seed = seed();
    let out = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("chaos");
    let _ = std::fs::remove_dir_all(&out);
    let (config, missing) = EnvConfig::detect(program(), out.clone()).await;
    eprintln!("seed {seed}; left out: {missing:?}");
    let kinds = config.faults();
    let plan = Plan::new(seed, kinds.len(), &kinds, Topology::value_variants()).shortened();
    let report = ::chaos::run(&plan, &config, PARALLEL_ENVS, &|line| eprintln!("{line}")).await;
    let summary = summary(&report, &out);
    assert!(kinds.len() + missing.len() == Fault::ALL.len() && plan.faults() == kinds.len());
    assert_eq!(
        report.violations(),
        0,
        "repeat with SEED={seed}: {:#?}",
        report.findings()
    );
    let stages: Vec<_> = plan.batches.iter().map(|batch| batch.topology).collect();
    assert_events(&summary, &stages);
}

/// The run above has each kind once, so in one topology. Here one process has all that events meet.
#[tokio::test(flavor = "multi_thread")]
async fn no_event_is_lost_by_receivers_brokers_and_publishers_that_fail() {
    let seed = seed();
    let out = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("chaos-events");
    let _ = std::fs::remove_dir_all(&out);
    std::fs::create_dir_all(&out).unwrap();
    let config = EnvConfig {
        program: program(),
        out: out.clone(),
        small_disk: false,
        clocks: false,
        brokers: vec![BrokerKind::Redis],
    };
    let kinds = [
        Fault::ReceiversFailing,
        Fault::PublisherKilled,
        Fault::BrokerKilled,
    ];
    let plan = Plan::new(seed, kinds.len(), &kinds, &[Topology::Embedded]).shortened();
    assert_eq!(plan.faults(), kinds.len());
    let report = ::chaos::run(&plan, &config, 1, &|line| eprintln!("{line}")).await;
    let summary = summary(&report, &out);
    assert_eq!(
        report.violations(),
        0,
        "repeat with SEED={seed}: {:#?}",
        report.findings()
    );
    assert_events(&summary, &[Topology::Embedded]);
    for kind in kinds {
        let events = &summary["by_fault"][kind.to_string()]["events"];
        assert!(events["sent"].as_u64().unwrap() > 0, "{kind}: {events}");
    }
}

/// The second round has a fault that this environment cannot inject, as an example of an error that
/// aborts a batch.
#[tokio::test(flavor = "multi_thread")]
async fn an_aborted_batch_keeps_the_rounds_before_the_error() {
    let out = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("chaos-aborted");
    let _ = std::fs::remove_dir_all(&out);
    std::fs::create_dir_all(&out).unwrap();
    let config = EnvConfig {
        program: program(),
        out: out.clone(),
        small_disk: false,
        clocks: false,
        brokers: Vec::new(),
    };
    let mut plan = Plan::new(7, 2, &[Fault::EverythingKilled], &[Topology::Embedded]).shortened();
    assert_eq!(plan.batches.len(), 1);
    plan.batches[0].rounds[1].fault = Fault::SentinelFailover;
    let report = ::chaos::run(&plan, &config, 1, &|line| eprintln!("{line}")).await;
    let findings = report.findings();
    assert!(
        findings
            .iter()
            .any(|finding| finding.contains("batch 1 was aborted: round 2 (sentinel-failover)")),
        "{findings:#?}"
    );
    assert_eq!(
        (findings.len(), report.violations()),
        (1, 1),
        "{findings:#?}"
    );
    let summary = summary(&report, &out);
    assert_eq!(
        (&summary["faults"], &summary["rounds"][0]["round"]),
        (&1.into(), &1.into()),
        "{summary:#}"
    );
    assert!(summary["acknowledged"].as_u64().unwrap() > 0, "{summary:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_environment_that_cannot_be_started_is_a_finding_and_does_not_end_the_run() {
    // A folder cannot be created inside a file.
    let config = EnvConfig {
        program: program(),
        out: "/dev/null".into(),
        small_disk: false,
        clocks: false,
        brokers: Vec::new(),
    };
    let plan = Plan::new(7, 1, &[Fault::EverythingKilled], &[Topology::Embedded]);
    let report = ::chaos::run(&plan, &config, 1, &|line| eprintln!("{line}")).await;
    let findings = report.findings();
    assert!(
        findings.len() == 1
            && findings[0].contains(
                "batch 1 was aborted: the environment batch-01-embedded could not be started"
            ),
        "{findings:#?}"
    );
}
