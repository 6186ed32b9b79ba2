//! The results as JSON. The names of the fields are a published contract.

use serde::Serialize;

use crate::{
    case::Expected,
    measurements::Reading,
    run::{CaseRun, VariantRun},
};

/// Results of a case.
#[derive(Debug, Serialize)]
struct CaseJson<'a> {
    case: &'a str,
    title: &'a str,
    speed: &'a str,
    #[serde(rename = "as_told")]
    as_expected: bool,
    /// Why the case was skipped.
    #[serde(skip_serializing_if = "Option::is_none")]
    skipped: Option<&'a str>,
    #[serde(rename = "ways")]
    variants: Vec<VariantJson<'a>>,
}

/// Results of a variant.
#[derive(Debug, Serialize)]
struct VariantJson<'a> {
    name: &'a str,
    faulty: bool,
    units_sold: u64,
    oversold: u64,
    stranded: u64,
    holders_at_once: u64,
    longest_stuck_seconds: f64,
    /// Measured verdict.
    holds: bool,
    /// Expected verdict.
    expected: Expected,
    #[serde(rename = "as_told")]
    as_expected: bool,
    /// Speed of the retry, if the first verdict was not the expected one.
    #[serde(rename = "again_at", skip_serializing_if = "Option::is_none")]
    retry_speed: Option<&'a str>,
    stock: u64,
    /// Counts on which the verdict depends.
    readings: &'a [Reading],
}

/// Returns one case as an object, several as a list.
pub fn json(runs: &[CaseRun]) -> serde_json::Result<String> {
    let cases: Vec<_> = runs.iter().map(case).collect();
    match cases.as_slice() {
        [case] => serde_json::to_string_pretty(case),
        cases => serde_json::to_string_pretty(cases),
    }
}

fn case(run: &CaseRun) -> CaseJson<'_> {
    CaseJson {
        case: run.case,
        title: &run.scenario.title,
        speed: &run.speed,
        as_expected: run.is_as_expected(),
        skipped: run.skipped.as_deref(),
        variants: run.variants.iter().map(variant).collect(),
    }
}

fn variant(run: &VariantRun) -> VariantJson<'_> {
    let (info, measurements) = (&run.variant, &run.measurements);
    VariantJson {
        name: &info.name,
        faulty: info.faulty,
        units_sold: measurements.units_sold,
        oversold: measurements.oversold,
        stranded: measurements.stranded,
        holders_at_once: measurements.holders_at_once,
        longest_stuck_seconds: measurements.longest_stuck_seconds,
        holds: measurements.holds(),
        expected: info.expected,
        as_expected: run.is_as_expected(),
        retry_speed: run.retry_speed.as_deref(),
        stock: measurements.stock,
        readings: &measurements.readings,
    }
}
