//! A short chaos run: one fault of every kind that this machine can inject. `make chaos` runs
//! longer.

use std::path::PathBuf;

use ::chaos::{EnvConfig, Fault, Plan, Topology};
use clap::ValueEnum;
use serde_json::Value;

use crate::process::program;

/// Number of concurrent environments, of a dozen processes each. Times to heal do not matter here, but
/// orders must be answered in time beside the other tests.
const PARALLEL_ENVS: usize = 2;

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_oversold_or_stranded_by_a_fault_of_any_kind() {
    let seed = std::env::var("SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
        .unwrap_or(7);
    let out = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("chaos");
    let _ = std::fs::remove_dir_all(&out);
    let (config, missing) = EnvConfig::detect(program(), out).await;
    eprintln!("seed {seed}; left out: {missing:?}");
    let kinds = config.faults();
    let plan = Plan::new(seed, kinds.len(), &kinds, Topology::value_variants()).shortened();
    let report = ::chaos::run(&plan, &config, PARALLEL_ENVS, &|line| eprintln!("{line}")).await;
    assert!(kinds.len() + missing.len() == Fault::ALL.len() && plan.faults() == kinds.len());
    assert_eq!(
        report.violations(),
        0,
        "repeat with SEED={seed}: {:#?}",
        report.findings()
    );
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
    report.write(&out).unwrap();
    let summary: Value =
        serde_json::from_slice(&std::fs::read(out.join("summary.json")).unwrap()).unwrap();
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
