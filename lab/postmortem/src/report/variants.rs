//! The comparison of a case's variants.

use maud::{Markup, html};

use super::{
    prose::{prose, sentence},
    verdict,
};
use crate::run::{CaseRun, VariantRun};

/// Returns the verdict table of the page: description, counts and reason of each variant.
pub(super) fn table(run: &CaseRun) -> Markup {
    let counts_units = run
        .variants
        .iter()
        .any(|variant| variant.measurements.stock > 0);
    let counts_holders = run
        .variants
        .iter()
        .any(|variant| variant.measurements.holders_at_once > 0);
    html! {
        div.scroll tabindex="0" role="region" aria-label={ "Comparison of the variants of " (run.case) } {
            table.variants {
                thead {
                    tr {
                        th scope="col" { "Variant" }
                        th scope="col" { "Verdict" }
                        @if counts_units { th.count scope="col" { "Sold" } th.count scope="col" { "Oversold" } th.count scope="col" { "Stranded" } }
                        @if counts_holders { th.count scope="col" { "Concurrent holders" } }
                        th.count scope="col" { "Longest stuck" }
                        th scope="col" { "Because" }
                        th scope="col" { "As expected" }
                    }
                }
                tbody {
                    @for (n, variant) in run.variants.iter().enumerate() {
                        (row(run, n, variant, counts_units, counts_holders))
                    }
                 }
            }
        }
    }
}

fn row(
    run: &CaseRun,
    n: usize,
    variant: &VariantRun,
    counts_units: bool,
    counts_holders: bool,
) -> Markup {
    let measurements = &variant.measurements;
    let [sold, oversold, stranded, holders] = verdict::counts(variant, "\u{2013}");
    html! {
        tr.differs[!variant.is_as_expected()] {
            th scope="row" {
                a href={ "#" (run.case) "-" (n + 1) } { (variant.variant.name) }
                @if variant.variant.faulty { " " span.tag { "faulty" } }
                span.does { (prose(&sentence(&variant.variant.does))) }
            }
            td { (verdict::badge(variant)) }
            @if counts_units {
                td.count { (sold) }
                td.count.bad[measurements.oversold > 0] { (oversold) }
                td.count.bad[measurements.stranded > 0] { (stranded) }
            }
            @if counts_holders { td.count { (holders) } }
            td.count { (format!("{:.1}", measurements.longest_stuck_seconds)) "\u{a0}s" }
            td.because { (prose(&sentence(&variant.variant.because))) }
            td { @if variant.is_as_expected() { "yes" } @else { strong.bad { "NO" } } }
        }
    }
}
