//! A minute of chaos: one fault of every kind that this machine can have. `make chaos` takes longer.

use std::path::PathBuf;

use ::chaos::{Fault, Materials, Plan, StageKind};
use clap::ValueEnum;
use serde_json::Value;

/// Stages side by side: here it only matters that they heal.
const AT_ONCE: usize = 4;

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_oversold_or_stranded_by_a_fault_of_any_kind() {
    let seed = std::env::var("SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
        .unwrap_or(7);
    let out = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("chaos");
    let _ = std::fs::remove_dir_all(&out);
    let (materials, missing) =
        Materials::of_this_machine(env!("CARGO_BIN_EXE_stockade").into(), out).await;
    eprintln!("seed {seed}; left out: {missing:?}");
    let kinds = materials.faults();
    let plan = Plan::new(seed, kinds.len(), &kinds, StageKind::value_variants()).hastened();
    let report = ::chaos::run(&plan, &materials, AT_ONCE, &|line| eprintln!("{line}")).await;
    assert!(kinds.len() + missing.len() == Fault::ALL.len() && plan.faults() == kinds.len());
    assert_eq!(
        report.violations(),
        0,
        "SEED={seed} does the same again: {:#?}",
        report.findings()
    );
}

/// A second round that this stage cannot have stands for everything that a leg can founder on.
#[tokio::test(flavor = "multi_thread")]
async fn a_leg_that_is_given_up_keeps_what_it_saw_until_then() {
    let out = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("chaos-given-up");
    let _ = std::fs::remove_dir_all(&out);
    std::fs::create_dir_all(&out).unwrap();
    let materials = Materials {
        program: env!("CARGO_BIN_EXE_stockade").into(),
        out: out.clone(),
        small_disk: false,
        clocks: false,
    };
    let mut plan = Plan::new(7, 2, &[Fault::EverythingKilled], &[StageKind::Embedded]).hastened();
    assert_eq!(plan.legs.len(), 1);
    plan.legs[0].rounds[1].fault = Fault::SentinelFailover;
    let report = ::chaos::run(&plan, &materials, 1, &|line| eprintln!("{line}")).await;
    let findings = report.findings();
    assert!(
        findings
            .iter()
            .any(|finding| finding.contains("leg 1 was given up: round 2 (sentinel-failover)")),
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
async fn a_stage_that_cannot_be_built_is_a_finding_and_not_the_end_of_the_run() {
    // No folder can be made where there is a file.
    let materials = Materials {
        program: env!("CARGO_BIN_EXE_stockade").into(),
        out: "/dev/null".into(),
        small_disk: false,
        clocks: false,
    };
    let plan = Plan::new(7, 1, &[Fault::EverythingKilled], &[StageKind::Embedded]);
    let report = ::chaos::run(&plan, &materials, 1, &|line| eprintln!("{line}")).await;
    let findings = report.findings();
    assert!(
        findings.len() == 1
            && findings[0]
                .contains("leg 1 was given up: the stage leg-01-embedded could not be built"),
        "{findings:#?}"
    );
}
