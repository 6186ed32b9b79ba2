//! The results as one self-contained page, in the style of the lab's other pages.

use maud::{Markup, html};
use postmortem::report::{
    html::document,
    prose::{prose, sentence},
};

use super::{
    columns::{columns, values},
    labels::ENGLISH,
    notes,
};
use crate::{
    backend::Backend,
    comparison::Comparison,
    experiment::Counts,
    fault::Fault,
    verdict::{Cell, Integrity, Outcome},
};

/// Styles that only this page needs.
const STYLES: &str = include_str!("style.css");

/// The page.
pub fn page(comparison: &Comparison) -> String {
    let body = html! {
        main {
            (head(comparison))
            @if !comparison.faults.is_empty() { (safety(comparison)) }
            @if !comparison.figures.is_empty() { (load(comparison)) }
            (backends(comparison))
            (footer(comparison))
        }
    };
    document("Locks compared", STYLES, &body)
}

fn head(comparison: &Comparison) -> Markup {
    let broken = comparison.broken_promises();
    html! {
        header.page {
            p.eyebrow { "Stockade " span aria-hidden="true" { "\u{b7}" } " the lab" }
            h1 { "Locks compared" }
            p.lead {
                "Every lock runs on real servers, under the same faults and the same load. Each experiment counts what two rows of a database accepted: "
                "one row checks nothing, the other checks token and version."
            }
            @if broken.is_empty() {
                p.facts { span { "every lock kept its promises" } }
            } @else {
                p.facts { strong { "broken promises: " (broken.join("; ")) } }
            }
        }
    }
}

fn footer(comparison: &Comparison) -> Markup {
    let seconds = comparison.took.as_secs_f64();
    html! {
        footer {
            p {
                "Written by " code { "stockade-lab locks compare --report" } ". "
                (comparison.machine) ", " (notes::SAME_MACHINE) "; took " (format!("{seconds:.0}")) "\u{a0}s."
            }
        }
    }
}

fn safety(comparison: &Comparison) -> Markup {
    let faults = &comparison.faults;
    html! {
        section #safety {
            h3 { "Under faults" }
            p { (sentence(&notes::how_to_read(faults))) }
            div.scroll tabindex="0" role="region" aria-label="Locks under faults" {
                table.comparison {
                    thead { tr { th scope="col" { "Lock" } @for fault in faults { th scope="col" { (ENGLISH.fault(*fault)) } } } }
                    tbody { @for backend in &comparison.backends { (safety_row(comparison, *backend)) } }
                }
            }
            ul.notes {
                @for (cells, reason) in notes::not_applicable(comparison) { li { strong { (cells) } ": " (reason) "." } }
                @if faults.contains(&Fault::Clock) { li { (prose(notes::CLOCK_AND_NEW_CLIENTS)) "." } }
            }
            h3 { "The faults" }
            dl.faults { @for fault in faults { dt { (ENGLISH.fault(*fault)) } dd { (sentence(fault.description())) "." } } }
        }
    }
}

fn safety_row(comparison: &Comparison, backend: Backend) -> Markup {
    let cells: Vec<_> = comparison
        .faults
        .iter()
        .map(|fault| comparison.cell(backend, *fault))
        .collect();
    let is_broken = cells
        .iter()
        .flatten()
        .any(|cell| !cell.broken_promises().is_empty());
    html! {
        tr.differs[is_broken] {
            th scope="row" { (backend.name()) }
            @for cell in cells { td { @if let Some(cell) = cell { (safety_cell(cell)) } } }
        }
    }
}

fn safety_cell(cell: &Cell) -> Markup {
    html! {
        @match &cell.outcome {
            Outcome::NotApplicable(reason) => span.absent title=(reason) { "n/a" },
            Outcome::Counted(counts) => (counted(cell.fault, counts)),
        }
        @for broken in cell.broken_promises() { span.broken { (broken) } }
    }
}

fn counted(fault: Fault, counts: &Counts) -> Markup {
    html! {
        @if fault.measures_wait() {
            span.wait.bad[counts.next_wait_seconds.is_none()] { (ENGLISH.wait(counts)) }
        } @else {
            span.inside { (ENGLISH.inside(counts)) }
            (badge("without the fence", counts.without_fence())) " " (badge("with the fence", counts.with_fence()))
        }
    }
}

fn badge(row: &str, integrity: Integrity) -> Markup {
    let (class, sign) = match integrity {
        Integrity::Kept => ("holds", "\u{2713}"),
        Integrity::Lost => ("fails", "\u{2717}"),
        Integrity::NoToken => ("none", "\u{2013}"),
    };
    html! {
        span class={ "badge " (class) } title={ (row) ": " (integrity.label()) } {
            span.unseen { (row) ": " }
            span aria-hidden="true" { (sign) " " }
            (integrity.label())
        }
    }
}

fn load(comparison: &Comparison) -> Markup {
    let shown = columns(&comparison.loads);
    html! {
        section #load {
            h3 { "Under load" }
            p { (sentence(notes::LOADS)) ". Compare figures within one run only: machines differ." }
            div.scroll tabindex="0" role="region" aria-label="Locks under load" {
                table.comparison {
                    thead { tr { th scope="col" { "Lock" } @for column in &shown { th.count scope="col" { (ENGLISH.load[*column]) } } } }
                    tbody {
                        @for figures in &comparison.figures {
                            @let values = values(figures, ENGLISH.polls);
                            tr {
                                th scope="row" { (figures.backend.name()) }
                                @for column in &shown { td.count { (values[*column]) } }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn backends(comparison: &Comparison) -> Markup {
    html! {
        section #who {
            h3 { "The locks" }
            dl.faults {
                @for backend in &comparison.backends {
                    dt { (backend.name()) }
                    dd { (sentence(backend.description())) "; on " (backend.deployment()) "." }
                }
            }
            @if !comparison.absent.is_empty() {
                p {
                    "Not compared: "
                    @for (n, (backend, reason)) in comparison.absent.iter().enumerate() {
                        @if n > 0 { "; " }
                        (backend.name()) " (" (reason) ")"
                    }
                    "."
                }
            }
        }
    }
}
