//! The cases as a document, for those who read about them before they run them: `docs/postmortems.md`.

use std::fmt::Write;

use super::verdict::verdict;
use crate::run::{Played, PlayedWay};

const HEAD: &str = "# Post-mortems that run\n\n\
[中文](postmortems.zh-CN.md)\n\n\
Each case below happened to somebody, or happens to everybody who does it so. `stockade postmortem CASE` plays it on real servers: first the way that failed, then \
each remedy that people propose, under the same schedule of events, and judges by counting. A remedy that does not help is seen not to help.\n\n\
Times are those of the story; the run was twenty times as fast (`--speed 20`, the default). *Sold*, *oversold* and *stranded* are units; *holders* is the most that were inside \
the lock at the same moment; *stuck* is the longest wait, in seconds of the story. A dash: the case has no such thing.\n";

/// The document. `command` is what it was made with.
pub fn document(played: &[Played], command: &str) -> String {
    let mut text = format!(
        "{HEAD}\nThis page was made by\n\n```sh\n{command}\n```\n\n| case | what it is about |\n|---|---|\n"
    );
    for case in played {
        let _ = writeln!(text, "| [`{0}`](#{0}) | {1} |", case.case, case.story.title);
    }
    for case in played {
        text.push_str(&section(case));
    }
    text
}

fn section(played: &Played) -> String {
    let story = &played.story;
    let mut text = format!(
        "\n## {}\n\n**{}.** {}\n\n",
        played.case, story.title, story.told
    );
    let sources = story.sources.iter().map(|(name, address)| {
        if address.is_empty() {
            (*name).to_owned()
        } else {
            format!("[{name}]({address})")
        }
    });
    let _ = writeln!(
        text,
        "Source: {}\n\nWhat happens here: {}\n",
        sources.collect::<Vec<_>>().join("; "),
        story.schedule
    );
    text.push_str(
        "| way | what it does | sold | oversold | stranded | holders | stuck, s | seen | why |\n|---|---|--:|--:|--:|--:|--:|---|---|\n",
    );
    for way in &played.ways {
        text.push_str(&row(way));
    }
    let _ = writeln!(
        text,
        "\nInstead: {}\n\n```sh\nstockade postmortem {}\n```",
        story.instead, played.case
    );
    text
}

fn row(played: &PlayedWay) -> String {
    let (way, evidence) = (&played.way, &played.evidence);
    let units = |units: u64| {
        if evidence.stock == 0 {
            "-".to_owned()
        } else {
            units.to_string()
        }
    };
    let [sold, oversold, stranded] =
        [evidence.units_sold, evidence.oversold, evidence.stranded].map(units);
    let holders = if evidence.holders_at_once == 0 {
        "-".to_owned()
    } else {
        evidence.holders_at_once.to_string()
    };
    let name = if way.faulty {
        format!("{} (the story)", way.name)
    } else {
        way.name.to_owned()
    };
    let seen = if evidence.holds() {
        "**holds**".to_owned()
    } else {
        verdict(played)
    };
    let (does, because, stuck) = (way.does, way.because, evidence.longest_stuck_seconds);
    format!(
        "| {name} | {does} | {sold} | {oversold} | {stranded} | {holders} | {stuck:.0} | {seen} | {because} |\n"
    )
}
