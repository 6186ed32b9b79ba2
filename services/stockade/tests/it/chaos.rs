//! A minute of chaos: one fault of every kind that this machine can have. `make chaos` takes longer.

use std::path::PathBuf;

use ::chaos::{Fault, Materials, Plan, StageKind};
use clap::ValueEnum;

/// Stages side by side: here it only matters that they heal.
const AT_ONCE: usize = 4;

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_oversold_or_stranded_by_a_fault_of_any_kind() {
    let seed = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(7);
    let out = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("chaos");
    let _ = std::fs::remove_dir_all(&out);
    let (materials, missing) = Materials::of_this_machine(env!("CARGO_BIN_EXE_stockade").into(), out).await;
    eprintln!("seed {seed}; left out: {missing:?}");
    let kinds = materials.faults();
    let plan = Plan::new(seed, kinds.len(), &kinds, StageKind::value_variants()).hastened();
    let report = ::chaos::run(&plan, &materials, AT_ONCE, &|line| eprintln!("{line}")).await.unwrap();
    assert!(kinds.len() + missing.len() == Fault::ALL.len() && plan.faults() == kinds.len());
    assert_eq!(report.violations(), 0, "SEED={seed} does the same again: {:#?}", report.findings());
}
