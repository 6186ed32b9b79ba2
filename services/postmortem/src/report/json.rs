//! What was seen, for machines.

use serde::Serialize;

use crate::{
    case::Expected,
    evidence::Reading,
    run::{Played, PlayedWay},
};

/// A case.
#[derive(Debug, Serialize)]
struct CaseJson<'a> {
    case: &'a str,
    title: &'a str,
    speed: &'a str,
    as_told: bool,
    ways: Vec<WayJson<'a>>,
}

/// A way of it.
#[derive(Debug, Serialize)]
struct WayJson<'a> {
    name: &'a str,
    faulty: bool,
    units_sold: u64,
    oversold: u64,
    stranded: u64,
    holders_at_once: u64,
    longest_stuck_seconds: f64,
    /// Measured.
    holds: bool,
    /// What the story says.
    expected: Expected,
    as_told: bool,
    /// The speed of what is shown, where it was not as told at the case's.
    #[serde(skip_serializing_if = "Option::is_none")]
    again_at: Option<&'a str>,
    stock: u64,
    /// What the verdict is made of.
    readings: &'a [Reading],
}

/// One case as an object, several as a list.
pub fn json(played: &[Played]) -> serde_json::Result<String> {
    let cases: Vec<_> = played.iter().map(case).collect();
    match cases.as_slice() {
        [case] => serde_json::to_string_pretty(case),
        cases => serde_json::to_string_pretty(cases),
    }
}

fn case(played: &Played) -> CaseJson<'_> {
    let ways = played.ways.iter().map(way).collect();
    CaseJson {
        case: played.case,
        title: played.story.title,
        speed: &played.speed,
        as_told: played.is_as_told(),
        ways,
    }
}

fn way(played: &PlayedWay) -> WayJson<'_> {
    let (way, evidence) = (&played.way, &played.evidence);
    WayJson {
        name: way.name,
        faulty: way.faulty,
        units_sold: evidence.units_sold,
        oversold: evidence.oversold,
        stranded: evidence.stranded,
        holders_at_once: evidence.holders_at_once,
        longest_stuck_seconds: evidence.longest_stuck_seconds,
        holds: evidence.holds(),
        expected: way.expected,
        as_told: played.is_as_told(),
        again_at: played.again_at.as_deref(),
        stock: evidence.stock,
        readings: &evidence.readings,
    }
}
