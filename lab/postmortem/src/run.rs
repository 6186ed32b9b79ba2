//! Runs cases, one variant after the other, and compares each verdict with the expected one.

use std::{path::PathBuf, sync::Arc, time::Duration};

use anyhow::{Context, Result, bail};

use crate::{
    case::{Case, Expected, Scenario, Variant, VariantInfo},
    measurements::Measurements,
    pace::Pace,
    program::Program,
    test_env::{SharedServers, TestEnv},
    timeline::Picture,
    what_if::WhatIf,
};

/// Scenario time after which a variant is aborted, beside the time of its servers. The slowest one
/// needs a few minutes.
const SCENARIO_TIMEOUT: Duration = Duration::from_secs(1200);

/// Runs cases with the same settings and the same shared servers.
pub struct Runner {
    /// Ratio of scenario time to real time.
    pub pace: Pace,
    /// Parameters that a reader has changed.
    pub what_if: WhatIf,
    /// Command that starts this program again as an actor.
    pub program: Program,
    /// Path of the `stockade` binary.
    pub engine: PathBuf,
    /// Whether what a case lacks is installed.
    pub installs: bool,
    servers: Arc<SharedServers>,
}

/// Results of a case.
#[derive(Debug, Clone)]
pub struct CaseRun {
    /// Name of the case.
    pub case: &'static str,
    /// Description of the case.
    pub scenario: Scenario,
    /// Speed of the run.
    pub speed: String,
    /// Results of all variants, in order; none if the case was skipped.
    pub variants: Vec<VariantRun>,
    /// Why the case was skipped.
    pub skipped: Option<String>,
}

/// Results of a variant.
#[derive(Debug, Clone)]
pub struct VariantRun {
    /// Description and expected verdict of the variant.
    pub variant: VariantInfo,
    /// Counts of the run.
    pub measurements: Measurements,
    /// Timeline of the run.
    pub picture: Picture,
    /// Speed of the retry, if the first verdict was not the expected one.
    pub retry_speed: Option<String>,
}

impl VariantRun {
    /// Returns whether the verdict is the expected one.
    pub fn is_as_expected(&self) -> bool {
        self.measurements.holds() == (self.variant.expected == Expected::Holds)
    }
}

impl CaseRun {
    /// Returns whether every variant has its expected verdict. A case that was skipped has none.
    pub fn is_as_expected(&self) -> bool {
        self.variants.iter().all(VariantRun::is_as_expected)
    }
}

/// Receives the progress of a run.
pub trait Observer: Send + Sync {
    /// A variant begins.
    fn begins(&self, case: &Case, variant: &VariantInfo);
    /// A variant has ended.
    fn ended(&self, case: &Case, variant: &VariantRun);
}

impl Runner {
    /// Creates a runner. Servers start when a variant first needs them.
    pub fn new(pace: Pace, what_if: WhatIf, program: Program, engine: PathBuf) -> Self {
        Self {
            pace,
            what_if,
            program,
            engine,
            installs: true,
            servers: Arc::default(),
        }
    }

    /// Runs all variants of a case, or skips it if something that it needs is missing.
    pub async fn run(&self, case: &Case, observer: &dyn Observer) -> Result<CaseRun> {
        let pace = if case.real_time {
            Pace::REAL_TIME
        } else {
            self.pace
        };
        let skipped = match case.requirement {
            Some(requirement) => requirement(self.installs).await.err(),
            None => None,
        };
        let variants = if skipped.is_some() {
            Vec::new()
        } else {
            self.run_variants(case, pace, observer).await?
        };
        Ok(CaseRun {
            case: case.name,
            scenario: case.scenario.clone(),
            speed: pace.to_string(),
            variants,
            skipped,
        })
    }

    async fn run_variants(
        &self,
        case: &Case,
        pace: Pace,
        observer: &dyn Observer,
    ) -> Result<Vec<VariantRun>> {
        let mut variants = Vec::new();
        for variant in &case.variants {
            observer.begins(case, &variant.info);
            let run = self
                .run_variant(pace, variant)
                .await
                .with_context(|| format!("{}: {}", case.name, variant.info.name))?;
            observer.ended(case, &run);
            variants.push(run);
        }
        Ok(variants)
    }

    /// Runs a variant, and retries it once at a lower speed if the verdict is not the expected one.
    ///
    /// Leases shrink with the speed, but scheduling delays of a busy machine do not. A fault of the
    /// variant itself shows at the lower speed as well. With a "what if" parameter there is no
    /// expected verdict, so there is no retry.
    async fn run_variant(&self, pace: Pace, variant: &Variant) -> Result<VariantRun> {
        let first = self.run_variant_at(pace, variant).await?;
        match pace.slower() {
            Some(slower) if !first.is_as_expected() && self.what_if == WhatIf::default() => {
                let retry = self.run_variant_at(slower, variant).await?;
                Ok(VariantRun {
                    retry_speed: Some(slower.to_string()),
                    ..retry
                })
            }
            _ => Ok(first),
        }
    }

    async fn run_variant_at(&self, pace: Pace, variant: &Variant) -> Result<VariantRun> {
        let env = TestEnv::new(
            pace,
            self.what_if,
            self.program.clone(),
            self.engine.clone(),
            Arc::clone(&self.servers),
        )?;
        // Scenario time scales with the speed; the start of servers does not. One that fails to start
        // tells so first.
        let limit = 2 * testbed::timeout() + pace.real(SCENARIO_TIMEOUT);
        let Ok(measurements) = tokio::time::timeout(limit, (variant.run)(&env)).await else {
            bail!("the variant did not end within {limit:?}");
        };
        Ok(VariantRun {
            variant: variant.info.clone(),
            measurements: measurements?,
            picture: env.timeline.finish(),
            retry_speed: None,
        })
    }
}
