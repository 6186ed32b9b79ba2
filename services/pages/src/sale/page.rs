//! The sale page in HTML.

use axum::response::Html;
use jiff::Timestamp;
use maud::{Markup, html};
use order::engine::ItemView;

use super::shop::{Own, outcome};
use crate::{
    charts::{Share, bar},
    cookies::random_secret,
    layout::page,
    text::{next_event, number, price, sells, time},
};

/// The page of an item.
pub(super) fn sale_page(view: &ItemView, outcome: Option<&str>, orders: &[Own]) -> Html<String> {
    let item = &view.item;
    let body = html! {
        main.narrow {
            h1 { (item.title) }
            p.price { (price(item.current_price(), &item.currency)) }
            @if let Some(limit) = item.limit_per_buyer {
                p.muted { "At most " (number(u64::from(limit.get()))) " for each buyer" }
            }
            @if let Some(outcome) = outcome { (notice(outcome)) }
            div.card {
                div #level { (level(view)) }
                p { span #when { (when(view)) } }
                @if let Some(at) = item.window.opens_at { p.muted { "Opens at " (time(at)) } }
                form method="post" action=(format!("/sale/{}/orders", item.id)) {
                    input type="hidden" name="key" value=(random_secret());
                    button #buy.big { "Order one and pay" }
                }
                p.muted { "This is a demo: the payment is made up, and the order is real." }
            }
            @if !orders.is_empty() { (own_orders(orders)) }
        }
    };
    let events = format!("/sale/{}/events", item.id);
    page(&item.title, Some(&events), &body)
}

/// How many units are left.
pub(super) fn level(view: &ItemView) -> Markup {
    let left = Share {
        class: "available",
        label: "left",
        units: view.available,
    };
    html! {
        p { b #left { (number(view.available)) } " of " (number(view.item.stock)) " left" }
        (bar(&[left], view.item.stock))
    }
}

/// Whether the item sells, and until when.
pub(super) fn when(view: &ItemView) -> Markup {
    let now = Timestamp::now();
    html! {
        @if !sells(&view.item, now) { span.bad { (next_event(&view.item, now)) } }
        @else if view.available == 0 { span.bad { "Sold out" } }
        @else { span.good { "On sale" } @if view.item.window.closes_at.is_some() { " - " (next_event(&view.item, now)) } }
    }
}

fn notice(code: &str) -> Markup {
    let (class, text) = match code {
        outcome::PAID => ("good", "You have one. The order is paid and recorded."),
        outcome::NOT_PAID => (
            "bad",
            "The order is held for you, but its payment was not accepted.",
        ),
        "sold_out" => ("bad", "Sold out: no unit was left for this order."),
        "buyer_limit_reached" => ("bad", "You have as many as one buyer may have."),
        "not_open" => ("bad", "The item is not on sale now."),
        "too_many_requests" => ("bad", "Too many orders at once. Try again in a moment."),
        _ => (
            "bad",
            "The service could not tell whether the order was placed. Your orders below show it.",
        ),
    };
    html! { p #outcome class={ "card notice " (class) } role="status" { (text) } }
}

fn own_orders(orders: &[Own]) -> Markup {
    html! {
        section.card {
            h2 { "Your orders" }
            ul { @for order in orders { li { code { (order.id) } " " (order.state) } } }
        }
    }
}
