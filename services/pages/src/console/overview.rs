//! The page of all items.

use axum::{
    extract::{Query, State},
    response::{IntoResponse, Response},
};
use domain::{Item, ItemId};
use jiff::Timestamp;
use ledger::ListedItem;
use maud::{Markup, html};
use order::engine::RefundDue;
use serde::Deserialize;

use super::{
    Console,
    access::Operator,
    failures::unreadable,
    head,
    rates::SECONDS,
    read::{Overview, OverviewItem},
};
use crate::{
    charts::{Share, bar, legend, sparkline},
    layout::page,
    live::{self, Parts, Update},
    text::{next_events, number, price},
};

#[derive(Deserialize)]
pub(super) struct After {
    /// The id behind which the page begins.
    after: Option<String>,
}

impl After {
    fn id(self) -> Option<ItemId> {
        ItemId::new(self.after?).ok()
    }
}

pub(super) async fn show(
    State(console): State<Console>,
    operator: Operator,
    Query(after): Query<After>,
) -> Response {
    let after = after.id();
    let overview = match console.reads.overview(after.clone()).await {
        Ok(overview) => overview,
        Err(error) => return unreadable(&error),
    };
    let events = match &after {
        Some(after) => format!("/console/events?after={after}"),
        None => "/console/events".into(),
    };
    let body = html! {
        (head(&operator))
        main {
            h1 { "Items" }
            @if overview.items.is_empty() { p.card { "There are no items. The API creates them: " code { "POST /v1/items" } "." } }
            @for item in &overview.items { (card(item)) }
            @if let Some(next) = &overview.next { p { a href={ "/console?after=" (next) } { "More items" } } }
            section.card {
                h2 { "Refunds due" }
                div.scroll #refunds { (refunds(&overview.refunds)) }
            }
        }
    };
    page("Items", Some(&events), &body).into_response()
}

pub(super) async fn events(
    State(console): State<Console>,
    operator: Operator,
    Query(after): Query<After>,
) -> Response {
    let (stop, after) = (console.stop.clone(), after.id());
    live::stream(stop, move || {
        let (console, operator, after) = (console.clone(), operator.clone(), after.clone());
        async move {
            if operator.has_left(&console) {
                return Update::End;
            }
            match console.reads.overview(after).await {
                Ok(overview) => Update::Parts(parts(&overview)),
                Err(_) => Update::Unreadable,
            }
        }
    })
}

fn parts(overview: &Overview) -> Parts {
    let parts = Parts::default().with("refunds", refunds(&overview.refunds));
    overview.items.iter().fold(parts, |parts, item| {
        parts.with(part_id(&item.listed.item), numbers(item))
    })
}

fn part_id(item: &Item) -> String {
    format!("item-{}", item.id)
}

fn card(item: &OverviewItem) -> Markup {
    let Item { id, title, .. } = &item.listed.item;
    html! {
        article.card {
            h2 { a href={ "/console/items/" (id) } { (title) } " " code.muted { (id) } }
            div id=(part_id(&item.listed.item)) { (numbers(item)) }
        }
    }
}

fn numbers(item: &OverviewItem) -> Markup {
    let shares = shares(&item.listed);
    html! {
        p.facts { (facts(&item.listed.item, item.drift)) }
        (bar(&shares, item.listed.item.stock))
        (legend(&shares))
        (rates(&item.rates, &item.refusals))
    }
}

fn shares(listed: &ListedItem) -> [Share; 4] {
    let share = |class, label, units| Share {
        class,
        label,
        units,
    };
    [
        share("confirmed", "sold", listed.confirmed),
        share("held", "held", listed.held),
        share("returning", "returning", listed.returning),
        share("available", "left", listed.available),
    ]
}

/// State, next event and drift of an item.
pub(super) fn facts(item: &Item, drift: u64) -> Markup {
    html! {
        span.state { (item.state) }
        span { (next_events(item, Timestamp::now())) }
        span { (number(item.stock)) " units" }
        @if drift == 0 { span.good { "Drift 0" } } @else { span.bad { "Drift " (number(drift)) } }
    }
}

/// Units that orders took in each second of the last minute, beside the requests that were refused.
pub(super) fn rates(units: &[f64], refusals: &[f64]) -> Markup {
    html! {
        div.rates {
            (rate("units", "Units ordered per second", units))
            (rate("refused", "Requests refused per second", refusals))
        }
    }
}

fn rate(class: &str, title: &str, rates: &[f64]) -> Markup {
    let latest = rates.last().copied().unwrap_or(0.0);
    html! {
        div class=(class) {
            p { (title) ": " b { (number(latest.round() as u64)) } }
            (sparkline(rates, SECONDS))
        }
    }
}

fn refunds(refunds: &[RefundDue]) -> Markup {
    html! {
        @if refunds.is_empty() { p.muted { "None" } }
        @else {
            table {
                thead { tr { th { "Item" } th { "Order" } th { "Payment" } th.number { "Amount" } } }
                tbody { @for refund in refunds { (refund_row(refund)) } }
            }
        }
    }
}

fn refund_row(refund: &RefundDue) -> Markup {
    let (item, order, payment, amount, currency) = match refund {
        RefundDue::Order(due) => (
            &due.item,
            due.id,
            due.payment.as_ref().map(|id| id.as_str().to_owned()),
            Some(due.amount()),
            due.price.currency.as_str(),
        ),
        RefundDue::Payment(due) => (
            &due.item,
            due.order,
            Some(due.payment.clone()),
            due.amount,
            due.currency.as_str(),
        ),
    };
    html! {
        tr {
            td { a href={ "/console/items/" (item) } { (item) } }
            td { code { (order) } }
            td { code { (payment.unwrap_or_default()) } }
            td.number { @if let Some(amount) = amount { (price(amount, currency)) } }
        }
    }
}
