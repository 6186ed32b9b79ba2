//! The trial of `scripts/oscar.sh`, and what it has written.

use std::{collections::HashMap, fs, path::Path, process::Stdio};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, de::DeserializeOwned};
use tokio::process::Command;

use super::packages::{checkout, finished};

/// What all variants of the shop have sold and charged.
#[derive(Debug)]
pub struct Trial {
    /// `summary.json`: counts by variant.
    summary: HashMap<String, Counts>,
    /// `rushes.json`: what happened when, by variant.
    rushes: HashMap<String, Vec<Rush>>,
}

/// The counts of a variant, one for each rush.
#[derive(Debug, Deserialize)]
pub(super) struct Counts {
    /// Orders that the shop has placed.
    pub orders: Vec<u64>,
    /// Cards that were charged and have their money not back.
    pub charged: Vec<u64>,
    /// Units that Stockade has confirmed.
    pub confirmed: Vec<u64>,
    /// Units that Stockade still holds.
    pub held: Vec<u64>,
}

/// A rush. All times are seconds since the click.
#[derive(Debug, Deserialize)]
pub(super) struct Rush {
    /// Units that there were.
    pub units: u64,
    /// When each card was charged, in order.
    pub charges: Vec<f64>,
    /// What each guest was told, in order.
    pub answers: Vec<Answer>,
}

/// What a guest was told.
#[derive(Debug, Deserialize)]
pub(super) struct Answer {
    /// When the last answer came.
    pub at: f64,
    /// Whether it was an order.
    pub ordered: bool,
}

impl Rush {
    /// Returns when the last guest had an answer.
    pub fn end(&self) -> f64 {
        let answers = self.answers.iter().map(|answer| answer.at);
        answers
            .chain(self.charges.iter().copied())
            .fold(0.0, f64::max)
    }
}

impl Trial {
    /// Runs one rush of each variant, or reads the results that the environment names.
    pub async fn run(engine: &Path, folder: &Path) -> Result<Self> {
        if let Some(finished) = finished() {
            return Self::read(&finished);
        }
        let folder = folder.join("oscar");
        let script = checkout()
            .context("scripts/oscar.sh is missing")?
            .join("scripts/oscar.sh");
        let output = Command::new(&script)
            .args(["--trial", "--rounds", "1", "--faults", "off", "--out"])
            .arg(&folder)
            .env("STOCKADE_BIN", engine)
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output()
            .await
            .with_context(|| script.display().to_string())?;
        // The script fails as well if a variant did not end as expected, which the case judges
        // itself.
        if !folder.join("summary.json").is_file() {
            bail!(
                "{} has counted nothing: {}",
                script.display(),
                String::from_utf8_lossy(&output.stderr)
            );
        }
        Self::read(&folder)
    }

    fn read(folder: &Path) -> Result<Self> {
        let text = |name: &str| {
            let file = folder.join(name);
            fs::read_to_string(&file).with_context(|| file.display().to_string())
        };
        Self::parse(&text("summary.json")?, &text("rushes.json")?)
    }

    pub(super) fn parse(summary: &str, rushes: &str) -> Result<Self> {
        fn json<T: DeserializeOwned>(name: &'static str, text: &str) -> Result<T> {
            serde_json::from_str(text).context(name)
        }
        Ok(Self {
            summary: json("summary.json", summary)?,
            rushes: json("rushes.json", rushes)?,
        })
    }

    /// Returns the counts of a variant.
    pub(super) fn counts(&self, variant: &str) -> Result<&Counts> {
        let counts = self.summary.get(variant);
        counts.with_context(|| format!("summary.json has no variant `{variant}`"))
    }

    /// Returns the rushes of a variant.
    pub(super) fn rushes(&self, variant: &str) -> Result<&[Rush]> {
        let rushes = self.rushes.get(variant).map(Vec::as_slice);
        rushes.with_context(|| format!("rushes.json has no variant `{variant}`"))
    }
}
