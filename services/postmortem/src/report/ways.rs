//! The ways of a case side by side.

use maud::{Markup, html};

use super::{
    prose::{prose, sentence},
    verdict,
};
use crate::run::{Played, PlayedWay};

/// The verdict table of the page: what each way does, what was counted, and why.
pub(super) fn table(played: &Played) -> Markup {
    let counts_units = played.ways.iter().any(|way| way.evidence.stock > 0);
    let counts_holders = played
        .ways
        .iter()
        .any(|way| way.evidence.holders_at_once > 0);
    html! {
        div.scroll tabindex="0" role="region" aria-label={ "The ways of " (played.case) " side by side" } {
            table.ways {
                thead {
                    tr {
                        th scope="col" { "Way" }
                        th scope="col" { "Verdict" }
                        @if counts_units { th.count scope="col" { "Sold" } th.count scope="col" { "Oversold" } th.count scope="col" { "Stranded" } }
                        @if counts_holders { th.count scope="col" { "Inside at once" } }
                        th.count scope="col" { "Longest stuck" }
                        th scope="col" { "Because" }
                        th scope="col" { "As told" }
                    }
                }
                tbody { @for (n, way) in played.ways.iter().enumerate() { (row(played, n, way, counts_units, counts_holders)) } }
            }
        }
    }
}

fn row(
    played: &Played,
    n: usize,
    way: &PlayedWay,
    counts_units: bool,
    counts_holders: bool,
) -> Markup {
    let evidence = &way.evidence;
    let units = |units: u64| {
        if evidence.stock == 0 {
            "\u{2013}".to_owned()
        } else {
            units.to_string()
        }
    };
    let holders = if evidence.holders_at_once == 0 {
        "\u{2013}".to_owned()
    } else {
        evidence.holders_at_once.to_string()
    };
    html! {
        tr.differs[!way.is_as_told()] {
            th scope="row" {
                a href={ "#" (played.case) "-" (n + 1) } { (way.way.name) }
                @if way.way.faulty { " " span.tag { "faulty" } }
                span.does { (prose(&sentence(way.way.does))) }
            }
            td { (verdict::badge(way)) }
            @if counts_units {
                td.count { (units(evidence.units_sold)) }
                td.count.bad[evidence.oversold > 0] { (units(evidence.oversold)) }
                td.count.bad[evidence.stranded > 0] { (units(evidence.stranded)) }
            }
            @if counts_holders { td.count { (holders) } }
            td.count { (format!("{:.1}", evidence.longest_stuck_seconds)) "\u{a0}s" }
            td.because { (prose(&sentence(way.way.because))) }
            td { @if way.is_as_told() { "yes" } @else { strong.bad { "NO" } } }
        }
    }
}
