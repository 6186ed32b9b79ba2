//! What became of the requests for an item, and of the orders that took units.

use ledger::RequestCounts;
use maud::{Markup, html};

use super::read::{HOLD_SPANS, Sums};
use crate::{
    charts::{part, sparkline},
    text::{number, span, time},
};

/// Each stage of the requests, with the orders by their state beneath.
pub(super) fn funnel(requests: &RequestCounts, sums: &Sums) -> Markup {
    let orders = |wanted: &[&str]| {
        let counts = sums.orders.iter();
        counts
            .filter(|(state, _)| wanted.contains(&&**state))
            .map(|(_, count)| count)
            .sum::<u64>()
    };
    let stages = [
        ("arrived", "Arrived", requests.arrived),
        ("shed", "Refused by the sold-out cache", requests.shed),
        (
            "sold-out",
            "Refused by the segments: sold out",
            requests.sold_out,
        ),
        ("limited", "Refused by a limit", requests.limited),
        ("not-open", "Refused: not on sale", requests.not_open),
        (
            "repeated",
            "Repeats of an earlier request",
            requests.repeated,
        ),
        ("took", "Took units", requests.held),
    ];
    let ends = [
        ("orders-held", "held", "Held now", orders(&["held"])),
        ("orders-paid", "confirmed", "Paid", orders(&["confirmed"])),
        (
            "orders-expired",
            "returning",
            "Expired",
            orders(&["expired"]),
        ),
        (
            "orders-cancelled",
            "returning",
            "Cancelled",
            orders(&["cancelled"]),
        ),
        (
            "orders-refunds",
            "flight",
            "Refund due or refunded",
            orders(&["refund_due", "refunded"]),
        ),
        (
            "orders-rejected",
            "flight",
            "Rejected by the ledger",
            orders(&["rejected"]),
        ),
    ];
    let placed: u64 = ends.iter().map(|(_, _, _, count)| count).sum();
    html! {
        table.funnel {
            caption { "Requests" }
            tbody { @for (id, label, count) in stages {
                (row(id, label, count, requests.arrived, class_of(id)))
            } }
        }
        table.funnel {
            caption { "Orders" }
            tbody { @for (id, class, label, count) in ends { (row(id, label, count, placed, class)) } }
        }
        p.muted {
            "Requests: of all order services together since the item was created, a second old at most. A process that is killed takes its last second with it. Requests that a rate limit refused (429) are not counted; lines of carts are. Orders: as of "
            (time(sums.at)) ", counted every half minute, and more seldom in a large sale."
        }
    }
}

fn class_of(stage: &str) -> &'static str {
    match stage {
        "arrived" => "flight",
        "took" => "confirmed",
        _ => "refusal",
    }
}

fn row(id: &str, label: &str, count: u64, whole: u64, class: &str) -> Markup {
    html! {
        tr {
            th scope="row" { (label) }
            td.number id={ "funnel-" (id) } { (number(count)) }
            td.wide { (part(class, count, whole)) }
        }
    }
}

/// Units of holds by the time of their end.
pub(super) fn holds_by_end(sums: &Sums) -> Markup {
    let over = sums.holds.first().copied().unwrap_or(0);
    let spans = sums.holds.get(1..).unwrap_or_default();
    let values: Vec<_> = spans.iter().map(|units| *units as f64).collect();
    let held: u64 = spans.iter().sum::<u64>() + over;
    let most = spans.iter().max().copied().unwrap_or(0);
    let (columns, all) = (usize::from(HOLD_SPANS), sums.span * u32::from(HOLD_SPANS));
    html! {
        @if held > 0 {
            div.held-chart {
                (sparkline(&values, columns))
                p.axis.muted { span { "ends now" } span { "in " (span(all / 2)) } span { "in " (span(all)) " or later" } }
            }
            p.muted {
                (number(held)) " units are held, as of " (time(sums.at)) ". Each column is " (span(sums.span)) "; the highest has " (number(most)) " units."
                @if over > 0 { " The holds of " (number(over)) " units are over and about to end." }
            }
        }
    }
}
