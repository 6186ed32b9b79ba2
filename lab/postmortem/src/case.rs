//! A case: an incident, the variant that failed, and the remedies that are commonly proposed.
//!
//! All variants of a case run under the same schedule of events and are judged by the same counts.
//! Each declares its expected verdict beforehand. A faulty variant that no longer fails is an
//! error, as is a remedy that no longer holds.
//!
//! The texts of a case are in a TOML file beside its code: `cases/maotai.toml` describes
//! `cases/maotai.rs`. The list, the page and the documents are made from it.

use anyhow::Result;
use futures::future::BoxFuture;
use serde::{Deserialize, Deserializer, Serialize};

use crate::{measurements::Measurements, test_env::TestEnv, what_if::Knob};

/// Runs one variant in its own environment, and returns the counts.
pub type RunVariant = for<'a> fn(&'a TestEnv) -> BoxFuture<'a, Result<Measurements>>;

/// Checks what a case needs besides the servers of the lab, or says why it cannot run here. If
/// `install` is set, what is missing is installed first.
pub type Requirement = fn(install: bool) -> BoxFuture<'static, Result<(), String>>;

/// A post-mortem that can be run.
#[derive(Debug, Clone)]
pub struct Case {
    /// Name of the case on the command line.
    pub name: &'static str,
    /// What happened, and what to do instead.
    pub scenario: Scenario,
    /// Parameters that a reader may change.
    pub knobs: &'static [Knob],
    /// Whether the case runs in real time, whatever speed was asked for.
    pub real_time: bool,
    /// What the case needs besides the servers of the lab.
    pub requirement: Option<Requirement>,
    /// All variants, the faulty ones first, in the order of the report.
    pub variants: Vec<Variant>,
    /// Descriptions of variants for which no function was given yet, in reverse order.
    undefined: Vec<VariantText>,
}

/// The description of a case.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Scenario {
    /// Title of a few words.
    #[serde(deserialize_with = "folded")]
    pub title: String,
    /// What happened, in a few sentences.
    #[serde(deserialize_with = "folded")]
    pub incident: String,
    /// Actors and events in order, so that a reader can follow the timeline.
    #[serde(deserialize_with = "folded")]
    pub schedule: String,
    /// What to do instead.
    #[serde(deserialize_with = "folded")]
    pub remedy: String,
    /// Where the incident is reported or explained.
    pub sources: Vec<Source>,
}

/// A report or an explanation of an incident.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Source {
    /// Author and title.
    pub name: String,
    /// Address; empty for a book or a paper.
    #[serde(default)]
    pub url: String,
}

/// A faulty or corrected implementation, with the function that runs it.
#[derive(Debug, Clone)]
pub struct Variant {
    /// Description and expected verdict.
    pub info: VariantInfo,
    /// Function that runs the variant.
    pub run: RunVariant,
}

/// Description and expected verdict of a variant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VariantInfo {
    /// Name in tables.
    pub name: String,
    /// What the variant does, as a clause.
    pub does: String,
    /// Why it holds or fails, as a clause.
    pub because: String,
    /// Whether this is the variant of the incident, not a remedy.
    pub faulty: bool,
    /// Verdict that the run must show.
    pub expected: Expected,
}

/// Expected verdict of a variant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Expected {
    /// Every judged count is within its bound.
    Holds,
    /// At least one judged count exceeds its bound.
    Fails,
}

/// The file of a case.
#[derive(Deserialize)]
struct CaseText {
    #[serde(flatten)]
    scenario: Scenario,
    variants: Vec<VariantText>,
}

#[derive(Debug, Clone, Deserialize)]
struct VariantText {
    name: String,
    #[serde(deserialize_with = "folded")]
    does: String,
    #[serde(deserialize_with = "folded")]
    because: String,
}

impl Case {
    /// Creates a case from the text of its TOML file. Its variants are added in the order of the
    /// file.
    ///
    /// # Panics
    ///
    /// If the file is not the description of a case. Files are part of the program, and a test
    /// reads all of them.
    pub fn new(name: &'static str, text: &str) -> Self {
        let CaseText {
            scenario,
            mut variants,
        } = toml::from_str(text).unwrap_or_else(|error| panic!("{name}.toml: {error}"));
        variants.reverse();
        Self {
            name,
            scenario,
            knobs: &[],
            real_time: false,
            requirement: None,
            variants: Vec::new(),
            undefined: variants,
        }
    }

    /// Sets the parameters that a reader may change.
    #[must_use]
    pub fn knobs(mut self, knobs: &'static [Knob]) -> Self {
        self.knobs = knobs;
        self
    }

    /// Runs the case in real time: its programs keep their own time-outs.
    #[must_use]
    pub fn real_time(mut self) -> Self {
        self.real_time = true;
        self
    }

    /// Sets what the case needs. Where that is missing, the case is skipped.
    #[must_use]
    pub fn requires(mut self, requirement: Requirement) -> Self {
        self.requirement = Some(requirement);
        self
    }

    /// Adds the variant of the incident, which must fail.
    #[must_use]
    pub fn faulty(self, name: &str, run: RunVariant) -> Self {
        self.variant(name, VariantInfo::faulty, run)
    }

    /// Adds a remedy that must hold.
    #[must_use]
    pub fn holds(self, name: &str, run: RunVariant) -> Self {
        self.variant(name, VariantInfo::holds, run)
    }

    /// Adds a proposed remedy that must fail, because it helps not at all or not enough.
    #[must_use]
    pub fn does_not_help(self, name: &str, run: RunVariant) -> Self {
        self.variant(name, VariantInfo::does_not_help, run)
    }

    fn variant(
        mut self,
        name: &str,
        info: fn(String, String, String) -> VariantInfo,
        run: RunVariant,
    ) -> Self {
        let text = self.undefined.pop().filter(|text| text.name == name);
        let text = text.unwrap_or_else(|| {
            panic!(
                "{}.toml: expected the variant `{name}` at this place",
                self.name
            )
        });
        let info = info(text.name, text.does, text.because);
        self.variants.push(Variant { info, run });
        self
    }
}

impl VariantInfo {
    /// Describes the variant of the incident, which must fail.
    pub fn faulty(
        name: impl Into<String>,
        does: impl Into<String>,
        because: impl Into<String>,
    ) -> Self {
        Self {
            name: name.into(),
            does: does.into(),
            because: because.into(),
            faulty: true,
            expected: Expected::Fails,
        }
    }

    /// Describes a remedy that must hold.
    pub fn holds(
        name: impl Into<String>,
        does: impl Into<String>,
        because: impl Into<String>,
    ) -> Self {
        Self {
            faulty: false,
            expected: Expected::Holds,
            ..Self::faulty(name, does, because)
        }
    }

    /// Describes a proposed remedy that must fail.
    pub fn does_not_help(
        name: impl Into<String>,
        does: impl Into<String>,
        because: impl Into<String>,
    ) -> Self {
        Self {
            faulty: false,
            ..Self::faulty(name, does, because)
        }
    }
}

/// Reads a text whose lines are wrapped.
fn folded<'de, D: Deserializer<'de>>(text: D) -> Result<String, D::Error> {
    let text = String::deserialize(text)?;
    Ok(text.split_whitespace().collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use crate::catalogue;

    #[test]
    fn every_variant_that_a_file_describes_has_a_function() {
        for case in catalogue::all() {
            assert!(
                case.undefined.is_empty(),
                "{}: {:?}",
                case.name,
                case.undefined
            );
            assert!(case.variants.len() >= 2, "{}", case.name);
        }
    }
}
