//! The head of the page: an introduction, and the verdicts of all cases at a glance.

use maud::{Markup, html};

use super::{prose::prose, verdict};
use crate::run::{CaseRun, VariantRun};

/// Returns the title, the introduction and the index.
pub(super) fn head(runs: &[CaseRun]) -> Markup {
    html! {
        header.page {
            p.eyebrow { "Stockade " span aria-hidden="true" { "\u{b7}" } " the lab" }
            h1 { "Executable post-mortems" }
            p.lead {
                "Each scenario ran on real servers with real faults: first the variant that failed, "
                "then each remedy that is commonly proposed, under the same schedule of events. "
                "The verdicts are counted, so a remedy that does not help is shown to fail."
            }
            p.facts { (facts(runs)) }
        }
        p.signs {
            "Each sign is a variant: the faulty ones in dashed frames, then the remedies; "
            "\u{2713} holds, \u{2717} fails. "
            "As expected: each variant has the verdict that its description predicts."
        }
        nav.index aria-label="Cases" { ol { @for run in runs { (entry(run)) } } }
    }
}

fn facts(runs: &[CaseRun]) -> Markup {
    let variants: usize = runs.iter().map(|run| run.variants.len()).sum();
    let skipped = runs.iter().filter(|run| run.skipped.is_some()).count();
    let unexpected = runs.iter().filter(|run| !run.is_as_expected()).count();
    html! {
        span { (count(runs.len(), "case")) ", " (count(variants, "variant")) }
        @if let Some(run) = runs.first() { span { "run " (pace(&run.speed)) } }
        span {
            @if unexpected == 0 { "every verdict as expected" }
            @else { strong { (count(unexpected, "case")) " not as expected" } }
        }
        @if skipped > 0 { span { (count(skipped, "case")) " skipped" } }
    }
}

fn count(n: usize, noun: &str) -> String {
    if n == 1 {
        format!("1 {noun}")
    } else {
        format!("{n} {noun}s")
    }
}

fn entry(run: &CaseRun) -> Markup {
    html! {
        li {
            a.case href={ "#" (run.case) } {
                span.name { (run.case) } " " span.title { (prose(&run.scenario.title)) }
            }
            span.strip {
                @for (n, variant) in run.variants.iter().enumerate() { (glance(run, n, variant)) }
            }
            p.sum { @if run.skipped.is_none() { (sum(run)) " " } (verdict::outcome(run)) }
        }
    }
}

/// Returns the sign of a variant.
fn glance(run: &CaseRun, n: usize, variant: &VariantRun) -> Markup {
    let faulty = variant.variant.faulty;
    let text = format!("{}: {}", variant.variant.name, verdict::verdict(variant));
    html! {
        a class={ "sign " (verdict::class(variant)) @if faulty { " faulty" } }
            href={ "#" (run.case) "-" (n + 1) } title=(text) {
            span aria-hidden="true" { (verdict::sign(variant)) }
            span.unseen { (text) }
        }
    }
}

fn sum(run: &CaseRun) -> Markup {
    let (faulty, remedies): (Vec<_>, Vec<_>) = run
        .variants
        .iter()
        .partition(|variant| variant.variant.faulty);
    let hold = remedies
        .iter()
        .filter(|variant| variant.measurements.holds())
        .count();
    let noun = if remedies.len() == 1 {
        "remedy"
    } else {
        "remedies"
    };
    html! {
        @for variant in &faulty {
            (variant.variant.name) " " strong { (verdict::verdict(variant)) } "; "
        }
        (hold) " of " (remedies.len()) " " (noun) " " @if hold == 1 { "holds" } @else { "hold" } "."
    }
}

/// Returns the links that a wide window keeps in view: to every case, or to every variant if there
/// is one case.
pub(super) fn rail(runs: &[CaseRun]) -> Markup {
    html! {
        nav.rail aria-label="On this page" {
            @if let [run] = runs {
                ol {
                    @for (n, variant) in run.variants.iter().enumerate() {
                        li { a href={ "#" (run.case) "-" (n + 1) } { (variant.variant.name) } }
                    }
                }
            } @else {
                ol { @for run in runs { li { a href={ "#" (run.case) } { (run.case) } } } }
            }
        }
    }
}

/// Returns the speed in words.
fn pace(speed: &str) -> Markup {
    html! { @if speed == "1" { "in real time" } @else { (speed) " times as fast as in the scenario" } }
}
