//! A case: what happened to somebody once, the way that failed, and the ways that people then propose.
//!
//! Every way of a case is played under the same schedule of events and judged by the same counts. Each says beforehand what must be seen;
//! a faulty way that no longer fails is as much an error as a remedy that does.

use anyhow::Result;
use async_trait::async_trait;
use serde::Serialize;

use crate::{evidence::Evidence, stage::Stage, what_if::Knob};

/// A post-mortem that can be played.
#[async_trait]
pub trait Case: Send + Sync {
    /// What it is called on the command line.
    fn name(&self) -> &'static str;

    /// What happened, and what to do instead.
    fn story(&self) -> Story;

    /// All ways, the faulty ones first, in the order in which a reader should meet them.
    fn ways(&self) -> Vec<Way>;

    /// What a reader may change.
    fn knobs(&self) -> &'static [Knob] {
        &[]
    }

    /// Plays the way of this name from the beginning, with servers of its own, and counts.
    async fn play(&self, way: &str, stage: &Stage) -> Result<Evidence>;
}

/// What is told of a case.
#[derive(Debug, Clone, Serialize)]
pub struct Story {
    /// In a few words.
    pub title: &'static str,
    /// What happened, in two or three sentences.
    pub told: &'static str,
    /// Where it is told or explained: a name and an address. An address may be empty, for a book or a paper.
    pub sources: &'static [(&'static str, &'static str)],
    /// Who takes part, and what happens to them in which order, so that a reader can follow the picture.
    pub schedule: &'static str,
    /// What to do instead.
    pub instead: &'static str,
}

/// One way to do it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Way {
    /// What it is called in tables.
    pub name: &'static str,
    /// What it does, in a sentence.
    pub does: &'static str,
    /// The way that the story is about, not a remedy.
    pub faulty: bool,
    /// What must be seen.
    pub expected: Expected,
    /// Why, in a sentence.
    pub because: &'static str,
}

/// What must be seen of a way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Expected {
    /// Nothing that the verdict depends on is beyond its bound.
    Holds,
    /// Something is.
    Fails,
}

impl Way {
    /// The way of the story.
    pub const fn faulty(name: &'static str, does: &'static str, because: &'static str) -> Self {
        Self {
            name,
            does,
            faulty: true,
            expected: Expected::Fails,
            because,
        }
    }

    /// A remedy that is one.
    pub const fn holds(name: &'static str, does: &'static str, because: &'static str) -> Self {
        Self {
            name,
            does,
            faulty: false,
            expected: Expected::Holds,
            because,
        }
    }

    /// A remedy that does not help, or not enough.
    pub const fn does_not_help(
        name: &'static str,
        does: &'static str,
        because: &'static str,
    ) -> Self {
        Self {
            name,
            does,
            faulty: false,
            expected: Expected::Fails,
            because,
        }
    }
}
