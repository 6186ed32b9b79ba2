//! Plays cases, one way after the other, and says whether each went as its story tells.

use std::{path::PathBuf, sync::Arc, time::Duration};

use anyhow::{Context, Result, bail};
use serde::Serialize;

use crate::{
    actor::Program,
    case::{Case, Expected, Story, Way},
    evidence::Evidence,
    pace::Pace,
    stage::{Props, Stage},
    timeline::Picture,
    what_if::WhatIf,
};

/// What a way may take, in real time, before it is given up. The slowest needs a few minutes of the story.
const WAY_AT_MOST: Duration = Duration::from_secs(120);

/// How to play.
pub struct Run {
    /// How fast.
    pub pace: Pace,
    /// What a reader has changed.
    pub what_if: WhatIf,
    /// How this program is started again as an actor.
    pub program: Program,
    /// The `stockade` binary.
    pub engine: PathBuf,
    props: Arc<Props>,
}

/// A case that was played.
#[derive(Debug, Clone, Serialize)]
pub struct Played {
    /// Its name.
    pub case: &'static str,
    /// What it tells.
    pub story: Story,
    /// How fast it was told.
    pub speed: String,
    /// What was seen of each way, in order.
    pub ways: Vec<PlayedWay>,
}

/// A way that was played.
#[derive(Debug, Clone, Serialize)]
pub struct PlayedWay {
    /// Which.
    pub way: Way,
    /// What was counted.
    pub evidence: Evidence,
    /// What happened.
    pub picture: Picture,
    /// How fast it was told the second time, if the first was not as told.
    pub again_at: Option<String>,
}

impl PlayedWay {
    /// Whether what had to be seen was seen.
    pub fn is_as_told(&self) -> bool {
        self.evidence.holds() == (self.way.expected == Expected::Holds)
    }
}

impl Played {
    /// Whether every faulty way failed as told and every remedy did what its row says.
    pub fn is_as_told(&self) -> bool {
        self.ways.iter().all(PlayedWay::is_as_told)
    }
}

/// What is told while it plays.
pub trait Audience: Send + Sync {
    /// A way begins.
    fn begins(&self, case: &dyn Case, way: &Way);
    /// A way has ended.
    fn ended(&self, case: &dyn Case, way: &PlayedWay);
}

impl Run {
    /// Nothing is started yet.
    pub fn new(pace: Pace, what_if: WhatIf, program: Program, engine: PathBuf) -> Self {
        Self {
            pace,
            what_if,
            program,
            engine,
            props: Arc::default(),
        }
    }

    /// Plays all ways of a case.
    pub async fn play(&self, case: &dyn Case, audience: &dyn Audience) -> Result<Played> {
        let mut ways = Vec::new();
        for way in case.ways() {
            audience.begins(case, &way);
            let played = self
                .play_way(case, &way)
                .await
                .with_context(|| format!("{}: {}", case.name(), way.name))?;
            audience.ended(case, &played);
            ways.push(played);
        }
        Ok(Played {
            case: case.name(),
            story: case.story(),
            speed: self.pace.to_string(),
            ways,
        })
    }

    /// Leases shrink with the speed, and the moments in which a busy machine does nothing for a process do not. So what was not as told is told once
    /// more, slowly: what the way itself does wrong, or no longer does wrong, is seen then, too. Whoever asks "what if" expects anything.
    async fn play_way(&self, case: &dyn Case, way: &Way) -> Result<PlayedWay> {
        let played = self.play_way_at(self.pace, case, way).await?;
        match self.pace.slower() {
            Some(slower) if !played.is_as_told() && self.what_if == WhatIf::default() => {
                let again = self.play_way_at(slower, case, way).await?;
                Ok(PlayedWay {
                    again_at: Some(slower.to_string()),
                    ..again
                })
            }
            _ => Ok(played),
        }
    }

    async fn play_way_at(&self, pace: Pace, case: &dyn Case, way: &Way) -> Result<PlayedWay> {
        let stage = Stage::new(
            pace,
            self.what_if,
            self.program.clone(),
            self.engine.clone(),
            Arc::clone(&self.props),
        )?;
        // At the story's own speed everything takes longer, servers excepted.
        let most = WAY_AT_MOST + pace.real(Duration::from_secs(1200));
        let Ok(evidence) = tokio::time::timeout(most, case.play(way.name, &stage)).await else {
            bail!("it did not end within {most:?}");
        };
        Ok(PlayedWay {
            way: *way,
            evidence: evidence?,
            picture: stage.timeline.finish(),
            again_at: None,
        })
    }
}
