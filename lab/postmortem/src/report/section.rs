//! The section of a case: its scenario and its verdicts, which fit on a sheet of paper, and then
//! the timeline of each variant.

use maud::{Markup, html};

use super::{
    figure,
    prose::{prose, sources, stopped},
    variants, verdict,
};
use crate::run::{CaseRun, VariantRun};

/// Returns the section of the `n`th case.
pub(super) fn section(n: usize, run: &CaseRun) -> Markup {
    let scenario = &run.scenario;
    html! {
        section.case id=(run.case) {
            p.eyebrow {
                "Case " (n) " " span aria-hidden="true" { "\u{b7}" } " "
                span.name { (run.case) } " " (verdict::outcome(run))
            }
            h2 { (prose(&scenario.title)) }
            p.incident { (prose(&scenario.incident)) }
            (sources(&scenario.sources))
            @if let Some(why) = &run.skipped {
                p { strong { "Skipped: " } (prose(why)) }
            } @else {
                h3 { "Comparison of the variants" }
                (variants::table(run))
            }
            aside.remedy { h3 { "What to do instead" } p { (prose(&scenario.remedy)) } }
            h3 { "What happened" }
            p.schedule { span.label { "Schedule" } " " (prose(&scenario.schedule)) }
            @for (n, variant) in run.variants.iter().enumerate() { (article(run, n + 1, variant)) }
        }
    }
}

fn article(run: &CaseRun, n: usize, variant: &VariantRun) -> Markup {
    let id = format!("{}-{n}", run.case);
    let info = &variant.variant;
    html! {
        article.variant id=(id) {
            header {
                h4 { span.number { (n) } " " (info.name) }
                @if info.faulty { " " span.tag { "faulty" } }
                " " (verdict::badge(variant))
                @if !variant.is_as_expected() { " " (verdict::expectation(false)) }
                p {
                    (prose(&stopped(&info.does))) " "
                    span.because { (prose(&stopped(&info.because))) }
                }
            }
            (figure::figure(&id, variant))
        }
    }
}
