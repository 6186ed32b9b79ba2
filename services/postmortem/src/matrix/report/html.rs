//! The matrix as one page without anything from outside, in the style of the lab's.

use maud::{Markup, html};

use super::{
    notes,
    table::columns,
    words::{ENGLISH, figures},
};
use crate::{
    matrix::{
        contestant::Contestant,
        fault::Fault,
        run::Matrix,
        trial::Counts,
        verdict::{Cell, Fate, Outcome},
    },
    report::{
        html::document,
        prose::{prose, sentence},
    },
};

/// What the lab's pages have no need of.
const SHEET: &str = include_str!("style.css");

/// The page.
pub fn page(matrix: &Matrix) -> String {
    let body = html! {
        main {
            (head(matrix))
            @if !matrix.faults.is_empty() { (safety(matrix)) }
            @if !matrix.figures.is_empty() { (load(matrix)) }
            (who(matrix))
            footer { p { "Written by " code { "stockade locks compare --report" } ". " (matrix.machine) ", " (notes::SAME_MACHINE) "; took " (format!("{:.0}", matrix.took.as_secs_f64())) "\u{a0}s." } }
        }
    };
    document("Locks compared", SHEET, &body)
}

fn head(matrix: &Matrix) -> Markup {
    let broken = matrix.broken_promises();
    html! {
        header.page {
            p.eyebrow { "Stockade " span aria-hidden="true" { "\u{b7}" } " the lab" }
            h1 { "Locks compared" }
            p.lead {
                "Every lock on real servers, under the same faults and the same load. What a store that checks nothing and one that checks token and version "
                "let through was counted at the store, not read off a feature list."
            }
            @if broken.is_empty() {
                p.facts { span { "every lock kept what it promises" } }
            } @else {
                p.facts { strong { "promises that were not kept: " (broken.join("; ")) } }
            }
        }
    }
}

fn safety(matrix: &Matrix) -> Markup {
    html! {
        section #safety {
            h3 { "Under a fault" }
            p { (sentence(&notes::how_to_read(&matrix.faults))) }
            div.scroll tabindex="0" role="region" aria-label="Locks under faults" {
                table.matrix {
                    thead { tr { th scope="col" { "Lock" } @for fault in &matrix.faults { th scope="col" { (ENGLISH.fault(*fault)) } } } }
                    tbody { @for contestant in &matrix.contestants { (row(matrix, *contestant)) } }
                }
            }
            ul.notes {
                @for (whom, why) in notes::not_applicable(matrix) { li { strong { (whom) } ": " (why) "." } }
                @if matrix.faults.contains(&Fault::Clock) { li { (prose(notes::NEWCOMER)) "." } }
            }
            h3 { "What is done" }
            dl.faults { @for fault in &matrix.faults { dt { (ENGLISH.fault(*fault)) } dd { (fault.is()) "." } } }
        }
    }
}

fn row(matrix: &Matrix, contestant: Contestant) -> Markup {
    let cells = matrix
        .faults
        .iter()
        .map(|fault| matrix.cell(contestant, *fault));
    let differs = cells
        .clone()
        .flatten()
        .any(|cell| !cell.broken_promises().is_empty());
    html! {
        tr.differs[differs] {
            th scope="row" { (contestant.name()) }
            @for cell in cells { td { @if let Some(cell) = cell { (inner(cell)) } } }
        }
    }
}

fn inner(cell: &Cell) -> Markup {
    html! {
        @match &cell.outcome {
            Outcome::NotApplicable(why) => span.told title=(why) { "n/a" },
            Outcome::Counted(counts) => (counted(cell.fault, counts)),
        }
        @for broken in cell.broken_promises() { span.broken { (broken) } }
    }
}

fn counted(fault: Fault, counts: &Counts) -> Markup {
    html! {
        @if fault.is_about_waiting() {
            span.wait.bad[counts.next_after_seconds.is_none()] { (ENGLISH.wait(counts)) }
        } @else {
            span.inside { (ENGLISH.inside(counts)) }
            (badge("without the fence", counts.without_fence())) " " (badge("with it", counts.with_fence()))
        }
    }
}

fn badge(which: &str, fate: Fate) -> Markup {
    let (class, sign) = match fate {
        Fate::Kept => ("holds", "\u{2713}"),
        Fate::Lost => ("fails", "\u{2717}"),
        Fate::NoToken => ("none", "\u{2013}"),
    };
    html! {
        span class={ "badge " (class) } title={ (which) ": " (fate.word()) } {
            span.unseen { (which) ": " }
            span aria-hidden="true" { (sign) " " }
            (fate.word())
        }
    }
}

fn load(matrix: &Matrix) -> Markup {
    let shown = columns(&matrix.loads);
    html! {
        section #load {
            h3 { "Under load" }
            p { (sentence(notes::LOADS)) ". Ratios within one run say something; machines differ." }
            div.scroll tabindex="0" role="region" aria-label="What locks cost" {
                table.matrix {
                    thead { tr { th scope="col" { "Lock" } @for column in &shown { th.count scope="col" { (ENGLISH.load[*column]) } } } }
                    tbody {
                        @for of_one in &matrix.figures {
                            tr {
                                th scope="row" { (of_one.contestant.name()) }
                                @let figures = figures(of_one, &ENGLISH);
                                @for column in &shown { td.count { (figures[*column]) } }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn who(matrix: &Matrix) -> Markup {
    html! {
        section #who {
            h3 { "Who takes part" }
            dl.faults { @for contestant in &matrix.contestants { dt { (contestant.name()) } dd { (contestant.is()) "; on " (contestant.on()) "." } } }
            @if !matrix.absent.is_empty() {
                p { "Not compared: " @for (n, (contestant, why)) in matrix.absent.iter().enumerate() { @if n > 0 { "; " } (contestant.name()) " (" (why) ")" } "." }
            }
        }
    }
}
