//! The page of one item.

use std::sync::Arc;

use audit::Snapshot;
use axum::{
    extract::{Path, Query, State},
    response::{IntoResponse, Response},
};
use domain::{Item, ItemId, ItemState as Selling};
use ledger::{JournalEntry, Transfer};
use maud::{Markup, html};
use order::{
    Scope,
    engine::{EngineError, OrderView},
};
use serde::Deserialize;

use super::{
    Console,
    access::Operator,
    action::MINUTES_MAX,
    failures::{no_such_item, unreadable},
    funnel::{funnel, holds_by_end},
    head,
    overview::{facts, rates},
    read::{Details, ItemState, ROWS, Sums},
};
use crate::{
    charts::{Share, bar, legend},
    layout::page,
    live::{self, Parts, Update},
    text::{number, price, time},
};

#[derive(Deserialize)]
pub(super) struct Done {
    /// The action that led here.
    done: Option<String>,
}

/// What the page shows.
struct Shown {
    state: Arc<ItemState>,
    details: Arc<Details>,
    sums: Arc<Sums>,
}

/// Reads what the page shows. `None`: there is no such item.
async fn read(console: &Console, id: &ItemId) -> Result<Option<Shown>, Arc<EngineError>> {
    let Some(state) = console.reads.item(id).await? else {
        return Ok(None);
    };
    Ok(Some(Shown {
        details: console.reads.details(id).await?,
        sums: console.reads.sums(&state.item).await?,
        state,
    }))
}

pub(super) async fn show(
    State(console): State<Console>,
    operator: Operator,
    Path(item): Path<String>,
    Query(Done { done }): Query<Done>,
) -> Response {
    let Ok(id) = ItemId::new(&item) else {
        return no_such_item();
    };
    let shown = match read(&console, &id).await {
        Ok(Some(shown)) => shown,
        Ok(None) => return no_such_item(),
        Err(error) => return unreadable(&error),
    };
    let Shown {
        state,
        details,
        sums,
    } = &shown;
    let body = html! {
        (head(&operator))
        main {
            h1 { (state.item.title) " " code.muted { (id) } }
            @if let Some(done) = done.as_deref().and_then(done_text) { p #done.card.notice.good role="status" { (done) } }
            section.card { div #summary { (summary(state)) } }
            section.card {
                h2 { "Change" }
                div.actions #state-buttons { (state_buttons(&operator, &state.item)) }
                div.actions { (units_form(&operator, &id, "add", "Add")) (units_form(&operator, &id, "withdraw", "Withdraw")) }
                div.actions #extend-form { (extend_form(&operator, &state.item)) }
                (missing_scopes(&operator))
            }
            section.card { h2 { "Requests and orders" } div.scroll #funnel { (funnel(&state.requests, sums)) } }
            section.card { h2 { "Segments" } div.scroll #segments { (segments(&state.segments)) } div.scroll #repair { (repair(&id, details)) } }
            section.card { h2 { "Units in transit" } div.scroll #transfers { (transfers(&details.transfers)) } }
            section.card { h2 { "Holds" } div #holds-by-end { (holds_by_end(sums)) } div.scroll #holds { (holds(&details.holds)) } }
            section.card { h2 { "Refunds due" } div.scroll #refunds { (refunds(&details.refunds)) } }
            section.card { h2 { "Journal" } div.scroll #journal { (journal(&details.journal)) } }
        }
    };
    let events = format!("/console/items/{id}/events");
    page(&state.item.title, Some(&events), &body).into_response()
}

pub(super) async fn events(
    State(console): State<Console>,
    operator: Operator,
    Path(item): Path<String>,
) -> Response {
    let Ok(id) = ItemId::new(&item) else {
        return no_such_item();
    };
    let stop = console.stop.clone();
    live::stream(stop, move || {
        let (console, operator, id) = (console.clone(), operator.clone(), id.clone());
        async move {
            if operator.has_left(&console) {
                return Update::End;
            }
            match read(&console, &id).await {
                Ok(Some(shown)) => Update::Parts(parts(&operator, &id, &shown)),
                Ok(None) => Update::End,
                Err(_) => Update::Unreadable,
            }
        }
    })
}

fn parts(operator: &Operator, id: &ItemId, shown: &Shown) -> Parts {
    let Shown {
        state,
        details,
        sums,
    } = shown;
    Parts::default()
        .with("funnel", funnel(&state.requests, sums))
        .with("holds-by-end", holds_by_end(sums))
        .with("repair", repair(id, details))
        .with("state-buttons", state_buttons(operator, &state.item))
        .with("summary", summary(state))
        .with("segments", segments(&state.segments))
        .with("transfers", transfers(&details.transfers))
        .with("holds", holds(&details.holds))
        .with("refunds", refunds(&details.refunds))
        .with("journal", journal(&details.journal))
}

fn done_text(action: &str) -> Option<&'static str> {
    Some(match action {
        "open" => "The item is open.",
        "pause" => "The item is paused.",
        "close" => "The item is closed.",
        "archive" => "The item is archived.",
        "archiving" => "The request is recorded. A reconciler archives the item.",
        "add" => "The units are added.",
        "adding" => "The units are recorded and still in transit.",
        "extend" => "The sale ends later.",
        "withdraw" => "The units have left the sale.",
        "withdrawing" => "The withdrawal is recorded. Its units are still in transit.",
        _ => return None,
    })
}

fn shares(segments: &[Snapshot]) -> [Share; 5] {
    let sum = |units: fn(&Snapshot) -> u64| segments.iter().map(units).sum();
    let share = |class, label, units| Share {
        class,
        label,
        units,
    };
    [
        share("confirmed", "confirmed", sum(|part| part.row.confirmed)),
        share("held", "held", sum(|part| part.row.held)),
        share("flight", "in flight", sum(Snapshot::in_flight)),
        share("returning", "returning", sum(|part| part.row.returning)),
        share("available", "available", sum(available)),
    ]
}

fn available(segment: &Snapshot) -> u64 {
    let inspection = segment.inspection.as_ref();
    inspection.map_or(0, |inspection| inspection.available)
}

fn summary(state: &ItemState) -> Markup {
    let shares = shares(&state.segments);
    let item = &state.item;
    html! {
        p.facts {
            (facts(item, state.drift()))
            span { (price(item.current_price(), &item.currency)) }
            span { "Version " span #version { (item.version) } }
            @if let Some(at) = item.window.opens_at { span { "Opens at " (time(at)) } }
            @if let Some(at) = item.window.closes_at { span { "Closes at " (time(at)) } }
        }
        (bar(&shares, item.stock))
        (legend(&shares))
        (rates(&state.rates, &state.refusals))
    }
}

/// Buttons that change the state. They are live, because another admin may change it as well.
fn state_buttons(operator: &Operator, item: &Item) -> Markup {
    let button = |action: &str, label: &str, state: Selling| {
        let useless = item.state == state || !operator.has(Scope::ItemsWrite);
        html! {
            form method="get" action=(format!("/console/items/{}/{action}", item.id)) {
                button.plain id=(action) disabled[useless] { (label) }
            }
        }
    };
    html! {
        (button("open", "Open ...", Selling::Open))
        (button("pause", "Pause ...", Selling::Paused))
        (button("close", "Close ...", Selling::Closed))
        @if matches!(item.state, Selling::Closed | Selling::Archived) {
            (button("archive", "Archive ...", Selling::Archived))
        }
    }
}

/// A number of units, and the button that asks what is to become of them.
fn units_form(operator: &Operator, id: &ItemId, action: &str, label: &str) -> Markup {
    let disabled = !operator.has(Scope::StockWrite);
    let most = Item::MAX_STOCK;
    amount_form(id, (action, label), ("units", "Units"), most, disabled)
}

/// The form is live, because it is useless without an end of the sale.
fn extend_form(operator: &Operator, item: &Item) -> Markup {
    let disabled = !operator.has(Scope::ItemsWrite) || item.state == Selling::Archived;
    html! {
        @if item.window.closes_at.is_some() {
            (amount_form(&item.id, ("extend", "Extend"), ("minutes", "Minutes"), MINUTES_MAX, disabled))
        }
    }
}

fn amount_form(
    id: &ItemId,
    (action, label): (&str, &str),
    (name, what): (&str, &str),
    most: u64,
    disabled: bool,
) -> Markup {
    let field = format!("{action}-{name}");
    html! {
        form method="get" action=(format!("/console/items/{id}/{action}")) {
            div {
                label for=(field) { (what) " to " (action) }
                input id=(field) type="number" name=(name) min="1" max=(most) required disabled[disabled];
            }
            button.plain id=(action) disabled[disabled] { (label) " ..." }
        }
    }
}

fn missing_scopes(operator: &Operator) -> Markup {
    html! {
        @if !operator.has(Scope::ItemsWrite) {
            p.muted { "Without the scope " code { (Scope::ItemsWrite) } " you cannot open, pause, close, extend or archive items." }
        }
        @if !operator.has(Scope::StockWrite) {
            p.muted { "Without the scope " code { (Scope::StockWrite) } " you cannot add or withdraw units." }
        }
    }
}

fn segments(segments: &[Snapshot]) -> Markup {
    html! {
        table {
            thead { tr {
                th { "Segment" }
                @for name in ["Allocated", "Available", "Held", "Confirmed", "In flight", "Behind", "Drift"] { th.number { (name) } }
            } }
            tbody { @for segment in segments { (segment_row(segment)) } }
        }
        (stopped(segments))
    }
}

fn segment_row(segment: &Snapshot) -> Markup {
    let row = &segment.row;
    let drift = segment.drift();
    html! {
        tr {
            td { (row.key.segment) (bar(&shares(std::slice::from_ref(segment)), row.allocated)) }
            @for units in [row.allocated, available(segment), row.held, row.confirmed, segment.in_flight()] {
                td.number { (number(units)) }
            }
            td.number { (number(segment.unrecorded.entries as u64)) }
            td.number class=[(drift != 0).then_some("number bad")] { (drift) }
        }
    }
}

/// Segments that the audit objects to. They sell again when the reconciler has repaired them.
fn stopped(segments: &[Snapshot]) -> Markup {
    let findings: Vec<_> = segments
        .iter()
        .filter_map(|segment| Some((segment.row.key.segment, segment.finding()?)))
        .collect();
    html! {
        @if !findings.is_empty() {
            h2.bad { "Stopped or drifted" }
            ul { @for (segment, finding) in &findings { li { "Segment " (segment) ": " (finding) } } }
        }
    }
}

/// What a repair would do, as `stockade reconcile ITEM --dry-run` prints it.
fn repair(id: &ItemId, details: &Details) -> Markup {
    html! {
        @match &details.plan {
            None => {}
            Some(Err(error)) => p.bad { "The repair cannot be planned: " (error) }
            Some(Ok(plan)) => {
                h2 { "What a repair would do" }
                @if plan.steps.is_empty() { p.muted { "Nothing: it was repaired a moment ago." } }
                @else {
                    table {
                        thead { tr { th { "Step" } th { "Segment" } th.number { "Units" } th { "Reason" } th { "It would" } } }
                        tbody { @for step in plan.steps.iter().take(ROWS) { tr {
                            td { (step.action) }
                            td { @if let Some(segment) = step.segment { (segment) } }
                            td.number { (step.units) }
                            td { (step.why) }
                            td { (step.would) }
                        } } }
                    }
                }
                p.muted {
                    "The reconciler does it under the item's lock, after the segment has been so for a second. Without one: "
                    code { "stockade reconcile " (id) " --dry-run" } " prints this plan, and without " code { "--dry-run" } " does it."
                }
            }
        }
    }
}

/// Units between two segments, on their way into the sale, or out of it.
fn transfers(transfers: &[Transfer]) -> Markup {
    let place = |segment: Option<u16>, outside: &str| match segment {
        Some(segment) => format!("segment {segment}"),
        None => outside.to_owned(),
    };
    html! {
        @if transfers.is_empty() { p.muted { "None" } }
        @else {
            table {
                thead { tr { th { "From" } th { "To" } th.number { "Units" } th.number { "Moved" } th { "State" } th { "Since" } } }
                tbody { @for transfer in transfers.iter().take(ROWS) { tr {
                    td { (place(transfer.from, "new units")) }
                    td { (place(transfer.to, "out of the sale")) }
                    td.number { (number(transfer.quantity)) }
                    td.number { (number(transfer.moved)) }
                    td { (transfer.state.as_str()) }
                    td { (time(transfer.since)) }
                } } }
            }
            @if transfers.len() > ROWS { p.muted { "The first " (ROWS) " of " (transfers.len()) "." } }
        }
    }
}

fn holds(holds: &[OrderView]) -> Markup {
    html! {
        @if holds.is_empty() { p.muted { "None" } }
        @else {
            table {
                thead { tr { th { "Order" } th { "Buyer" } th.number { "Units" } th { "Expires at" } } }
                tbody { @for hold in holds { tr {
                    td { code { (hold.id) } }
                    td { (hold.buyer) }
                    td.number { (hold.quantity) }
                    td { (time(hold.expires_at)) }
                } } }
            }
            @if holds.len() == ROWS { p.muted { "The first " (ROWS) ". The API lists all." } }
        }
    }
}

fn refunds(refunds: &[OrderView]) -> Markup {
    html! {
        @if refunds.is_empty() { p.muted { "None" } }
        @else {
            table {
                thead { tr { th { "Order" } th { "Buyer" } th { "Payment" } th.number { "Amount" } } }
                tbody { @for due in refunds { tr {
                    td { code { (due.id) } }
                    td { (due.buyer) }
                    td { @if let Some(payment) = &due.payment { code { (payment) } } }
                    td.number { (price(due.amount(), due.price.currency.as_str())) }
                } } }
            }
        }
    }
}

fn journal(entries: &[JournalEntry]) -> Markup {
    html! {
        @if entries.is_empty() { p.muted { "Nothing was changed by hand, and nothing was repaired." } }
        @else {
            table {
                thead { tr { th { "Time" } th { "Admin or role" } th { "Action" } th { "Before" } th { "After" } } }
                tbody { @for JournalEntry { at, entry, .. } in entries { tr {
                    td { (time(*at)) }
                    td { (entry.actor) }
                    td { (entry.action) }
                    td { code { (entry.before) } }
                    td { code { (entry.after) } }
                } } }
            }
        }
    }
}
