//! The verdicts of the cases: each is as expected, and a changed variant is detected.

use std::{env, path::PathBuf};

use futures::{FutureExt, StreamExt, stream};
use postmortem::{
    case::{Case, VariantInfo},
    catalogue,
    measurements::Measurements,
    pace::Pace,
    program::Program,
    report::table::table,
    run::{CaseRun, Observer, Runner, VariantRun},
    what_if::WhatIf,
};

/// Number of cases that run concurrently. They mostly wait.
const CASE_CONCURRENCY: usize = 2;

fn runner() -> Runner {
    let program = Program {
        path: env!("CARGO_BIN_EXE_stockade-lab").into(),
        arguments: vec!["actor".into()],
    };
    Runner::new(
        Pace::new(20.0).unwrap(),
        WhatIf::default(),
        program,
        engine(),
    )
}

/// Path of the engine. The whole suite builds it first; for this crate alone, STOCKADE_BIN names
/// it.
fn engine() -> PathBuf {
    let built = PathBuf::from(env!("CARGO_BIN_EXE_stockade-lab")).with_file_name("stockade");
    env::var_os("STOCKADE_BIN").map_or(built, PathBuf::from)
}

struct Silent;

impl Observer for Silent {
    fn begins(&self, _case: &Case, _variant: &VariantInfo) {}
    fn ended(&self, _case: &Case, _variant: &VariantRun) {}
}

fn unexpected(run: &CaseRun) -> Vec<String> {
    let unexpected = run.variants.iter().filter(|run| !run.is_as_expected());
    unexpected
        .map(|variant| {
            format!(
                "{}: {}: {:?}",
                run.case, variant.variant.name, variant.measurements
            )
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_case_has_the_verdicts_that_it_expects() {
    let runner = runner();
    // A case that needs more than the servers of the lab has a test of its own.
    let mut cases = catalogue::all();
    cases.retain(|case| case.requirement.is_none());
    let runs = stream::iter(&cases)
        .map(|case| runner.run(case, &Silent))
        .buffer_unordered(CASE_CONCURRENCY);
    let runs: Vec<_> = runs.map(|run| run.unwrap()).collect().await;
    let unexpected: Vec<_> = runs.iter().flat_map(unexpected).collect();
    assert!(unexpected.is_empty(), "{}", unexpected.join("\n"));
}

/// Runs one variant of a case with the function of another variant, which must change the verdict.
async fn is_detected(case: &str, variant: &str, replacement: &str) {
    let mut case = catalogue::find(case).unwrap();
    let find = |name: &str| {
        let mut variants = case.variants.iter();
        variants.find(|variant| variant.info.name == name).unwrap()
    };
    let mut changed = find(variant).clone();
    changed.run = find(replacement).run;
    case.variants = vec![changed];
    let run = runner().run(&case, &Silent).await.unwrap();
    assert!(
        !run.is_as_expected(),
        "{variant} runs as `{replacement}` without a change of the verdict: {:?}",
        run.variants[0].measurements
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_remedy_that_is_broken_fails_the_case() {
    is_detected("maotai", "atomic script", "lock with a lease").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_faulty_variant_that_is_repaired_fails_the_case() {
    is_detected("maotai", "lock with a lease", "atomic script").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_real_shop_has_the_verdicts_that_it_expects() {
    let mut runner = runner();
    runner.installs = false;
    let case = catalogue::find("real-shop").unwrap();
    let run = runner.run(&case, &Silent).await.unwrap();
    match run.skipped.as_deref() {
        // There the case runs alone, once the tests have ended: a rush beside them would be no
        // rush.
        Some(_) if env::var_os("CI").is_some() => {}
        Some(why) => testbed::skipped(why),
        None => assert!(run.is_as_expected(), "{}", unexpected(&run).join("\n")),
    }
}

/// Returns a case that fails at a high speed only, as a sound variant does on a busy machine.
fn hasty() -> Case {
    let text = r#"
        title = "A busy machine"
        incident = "The machine was slow."
        schedule = "One buyer arrives."
        remedy = "Run the case slowly."
        sources = []

        [[variants]]
        name = "a remedy"
        does = "holds at a low speed"
        because = "the machine is slow"
    "#;
    Case::new("hasty", text).holds("a remedy", |env| {
        let sold = if env.pace.speed() > 10.0 { 2 } else { 1 };
        async move { Ok(Measurements::new().sold(1, sold).judge_oversold()) }.boxed()
    })
}

#[tokio::test]
async fn a_case_that_lacks_something_is_skipped_with_the_reason() {
    let case = hasty().requires(|_| async { Err("no packages".to_owned()) }.boxed());
    let run = runner().run(&case, &Silent).await.unwrap();
    assert!(run.is_as_expected() && run.variants.is_empty());
    assert_eq!(table(&run), "SKIPPED: hasty: no packages");
    let case = hasty().requires(|_| async { Ok(()) }.boxed());
    let run = runner().run(&case, &Silent).await.unwrap();
    assert_eq!((run.skipped, run.variants.len()), (None, 1));
}

#[tokio::test]
async fn a_case_of_real_time_ignores_the_speed() {
    let run = runner().run(&hasty().real_time(), &Silent).await.unwrap();
    assert!(run.is_as_expected());
    assert_eq!(
        (run.speed.as_str(), run.variants[0].retry_speed.as_deref()),
        ("1", None)
    );
}

#[tokio::test]
async fn an_unexpected_verdict_is_retried_once_at_a_lower_speed() {
    let run = runner().run(&hasty(), &Silent).await.unwrap();
    assert!(run.is_as_expected());
    assert_eq!(run.variants[0].retry_speed.as_deref(), Some("5"));
    let mut runner = runner();
    runner.what_if.stock = Some(7);
    let run = runner.run(&hasty(), &Silent).await.unwrap();
    assert!(
        !run.is_as_expected(),
        "a run with a changed parameter must show its own verdict"
    );
}
