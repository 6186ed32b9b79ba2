//! What the cases show: that each goes as its story tells, and that none could go otherwise unnoticed.

use std::{env, path::PathBuf};

use anyhow::Result;
use async_trait::async_trait;
use futures::{StreamExt, stream};
use postmortem::{
    actor::Program,
    case::{Case, Story, Way},
    catalogue,
    evidence::Evidence,
    pace::Pace,
    run::{Audience, Played, PlayedWay, Run},
    stage::Stage,
    what_if::WhatIf,
};

/// Cases that are played side by side. They wait for most of their time.
const SIDE_BY_SIDE: usize = 2;

fn run() -> Run {
    let program = Program {
        path: env!("CARGO_BIN_EXE_postmortem").into(),
        arguments: vec!["actor".into()],
    };
    Run::new(
        Pace::new(20.0).unwrap(),
        WhatIf::default(),
        program,
        engine(),
    )
}

/// Built before this by whoever runs the whole suite; for this crate alone, STOCKADE_BIN says where it is.
fn engine() -> PathBuf {
    let beside = PathBuf::from(env!("CARGO_BIN_EXE_postmortem")).with_file_name("stockade");
    env::var_os("STOCKADE_BIN").map_or(beside, PathBuf::from)
}

struct Silent;

impl Audience for Silent {
    fn begins(&self, _case: &dyn Case, _way: &Way) {}
    fn ended(&self, _case: &dyn Case, _way: &PlayedWay) {}
}

fn differences(played: &Played) -> Vec<String> {
    let differs = played.ways.iter().filter(|way| !way.is_as_told());
    differs
        .map(|way| format!("{}: {}: {:?}", played.case, way.way.name, way.evidence))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_case_goes_as_its_story_tells() {
    let run = run();
    let cases = catalogue::all();
    let played = stream::iter(&cases)
        .map(|case| run.play(case.as_ref(), &Silent))
        .buffer_unordered(SIDE_BY_SIDE);
    let played: Vec<_> = played.map(|played| played.unwrap()).collect().await;
    let differences: Vec<_> = played.iter().flat_map(differences).collect();
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

/// A case one of whose ways does what another one does.
struct Instead {
    case: Box<dyn Case>,
    way: &'static str,
    does: &'static str,
}

#[async_trait]
impl Case for Instead {
    fn name(&self) -> &'static str {
        self.case.name()
    }

    fn story(&self) -> Story {
        self.case.story()
    }

    fn ways(&self) -> Vec<Way> {
        self.case
            .ways()
            .into_iter()
            .filter(|way| way.name == self.way)
            .collect()
    }

    async fn play(&self, _way: &str, stage: &Stage) -> Result<Evidence> {
        self.case.play(self.does, stage).await
    }
}

async fn is_red(case: &str, way: &'static str, does: &'static str) {
    let case = Instead {
        case: catalogue::find(case).unwrap(),
        way,
        does,
    };
    let played = run().play(&case, &Silent).await.unwrap();
    assert_eq!(played.ways.len(), 1, "there is such a way");
    assert!(
        !played.is_as_told(),
        "{way} does what `{does}` does, and nobody notices: {:?}",
        played.ways[0].evidence
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_remedy_that_is_broken_turns_the_case_red() {
    is_red("maotai", "atomic script", "the lock of the story").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_faulty_way_that_is_repaired_turns_the_case_red() {
    is_red("maotai", "the lock of the story", "atomic script").await;
}

/// What a busy machine does: the way is not to blame for what is seen at first.
struct Hasty;

#[async_trait]
impl Case for Hasty {
    fn name(&self) -> &'static str {
        "hasty"
    }

    fn story(&self) -> Story {
        catalogue::find("maotai").unwrap().story()
    }

    fn ways(&self) -> Vec<Way> {
        vec![Way::holds(
            "a remedy",
            "holds where there is time",
            "the machine is slow",
        )]
    }

    async fn play(&self, _way: &str, stage: &Stage) -> Result<Evidence> {
        let sold = if stage.pace.speed() > 10.0 { 2 } else { 1 };
        Ok(Evidence::new().sold(1, sold).judge_oversold())
    }
}

#[tokio::test]
async fn what_is_not_as_told_is_told_once_more_and_slower() {
    let played = run().play(&Hasty, &Silent).await.unwrap();
    assert!(played.is_as_told());
    assert_eq!(played.ways[0].again_at.as_deref(), Some("5"));
    let mut run = run();
    run.what_if.stock = Some(7);
    let played = run.play(&Hasty, &Silent).await.unwrap();
    assert!(
        !played.is_as_told(),
        "whoever asks what happens then is told"
    );
}
