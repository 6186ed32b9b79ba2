//! Handlers that list items, orders, and money that must be returned.

pub(crate) mod cursor;
pub(crate) mod pages;
pub(crate) mod query;
pub(crate) mod rows;

use axum::{
    extract::State,
    response::{IntoResponse, Response},
};
use domain::{CartId, ItemId, OrderId};

use super::{
    App, Problem,
    access::{AdminWith, Buyer, Name, Read, RefundsWrite},
    carts::CartRow,
    items::item_id,
    words::{ListFormatWord, OrderStateWord, RowsFormatWord},
};
use crate::engine::{RefundDone, RefundKey};
use pages::{PageBody, list};
use query::Parameters;
use rows::{ActRow, ItemRow, JournalRow, OrderRow, RefundRow};

/// Lists all items, by id.
#[utoipa::path(get, path = "/v1/items", operation_id = "listItems", tag = "admins",
    params(("limit" = Option<u16>, Query, minimum = 1, maximum = 1000, description = "rows of a page; 100 by default"),
        ("after" = Option<String>, Query, description = "`next` of the page before"),
        ("format" = inline(Option<ListFormatWord>), Query, description = "`json` (default): a page; `csv` or `jsonl`: the whole list as a stream")),
    responses(AdminWith<Read>, Parameters, (status = 200, description = "a page, or the whole list", body = PageBody<ItemRow>)),
    security(("admin" = [])))]
pub(crate) async fn items(
    State(app): State<App>,
    _: AdminWith<Read>,
    parameters: Parameters,
) -> Result<Response, Problem> {
    let query = parameters.read::<ItemId>(&app.cursors, "items", false)?;
    list(
        &app,
        query,
        ItemRow::COLUMNS,
        |engine, after, at_most| async move {
            let page = engine.ledger.list_items(after.as_ref(), at_most).await?;
            Ok(page.map(ItemRow::from))
        },
    )
    .await
}

/// Lists the recorded orders of an item, by id.
#[utoipa::path(get, path = "/v1/items/{item}/orders", operation_id = "listItemOrders", tag = "admins",
    params(("item" = String, Path, description = "the item"),
        ("state" = inline(Option<OrderStateWord>), Query, description = "only orders in this state"),
        ("limit" = Option<u16>, Query, minimum = 1, maximum = 1000, description = "rows of a page; 100 by default"),
        ("after" = Option<String>, Query, description = "`next` of the page before"),
        ("format" = inline(Option<ListFormatWord>), Query, description = "`json` (default): a page; `csv` or `jsonl`: the whole list as a stream")),
    responses(AdminWith<Read>, Parameters, (status = 200, description = "a page, or the whole list", body = PageBody<OrderRow>), (status = 404, description = "`item_not_found`", body = Problem)),
    security(("admin" = [])))]
pub(crate) async fn item_orders(
    State(app): State<App>,
    _: AdminWith<Read>,
    Name(item): Name,
    parameters: Parameters,
) -> Result<Response, Problem> {
    let id = item_id(&item)?;
    let name = format!("items/{id}/orders");
    let query = parameters.read::<OrderId>(&app.cursors, name, true)?;
    let known = app.engine.known(&id).await?;
    known.ok_or_else(Problem::item_not_found)?;
    let state = query.state;
    list(
        &app,
        query,
        OrderRow::COLUMNS,
        move |engine, after, at_most| {
            let id = id.clone();
            async move {
                let page = engine.list_item_orders(&id, state, after, at_most).await?;
                Ok(page.map(OrderRow::from))
            }
        },
    )
    .await
}

/// Lists the buyer's recorded orders of all items, by id.
#[utoipa::path(get, path = "/v1/orders", operation_id = "listOwnOrders", tag = "buyers",
    params(("limit" = Option<u16>, Query, minimum = 1, maximum = 1000, description = "rows of a page; 100 by default"),
        ("after" = Option<String>, Query, description = "`next` of the page before"),
        ("format" = inline(Option<ListFormatWord>), Query, description = "`json` (default): a page; `csv` or `jsonl`: the whole list as a stream")),
    responses(Buyer, Parameters, (status = 200, description = "a page, or the whole list", body = PageBody<OrderRow>), (status = 429, description = "`too_many_requests`", body = Problem)),
    security(("buyer" = [])))]
pub(crate) async fn own_orders(
    State(app): State<App>,
    Buyer(buyer): Buyer,
    parameters: Parameters,
) -> Result<Response, Problem> {
    let name = format!("orders of {buyer}");
    let query = parameters.read::<OrderId>(&app.cursors, name, false)?;
    list(
        &app,
        query,
        &OrderRow::buyer_columns(),
        move |engine, after, at_most| {
            let buyer = buyer.clone();
            async move {
                let page = engine.list_buyer_orders(&buyer, after, at_most).await?;
                Ok(page.map(OrderRow::for_buyer))
            }
        },
    )
    .await
}

/// Lists the buyer's carts, by id.
#[utoipa::path(get, path = "/v1/carts", operation_id = "listOwnCarts", tag = "buyers",
    params(("limit" = Option<u16>, Query, minimum = 1, maximum = 1000, description = "rows of a page; 100 by default"),
        ("after" = Option<String>, Query, description = "`next` of the page before"),
        ("format" = inline(Option<RowsFormatWord>), Query, description = "`json` (default): a page; `jsonl`: the whole list as a stream")),
    responses(Buyer, Parameters, (status = 200, description = "a page, or the whole list", body = PageBody<CartRow>), (status = 429, description = "`too_many_requests`", body = Problem)),
    security(("buyer" = [])))]
pub(crate) async fn own_carts(
    State(app): State<App>,
    Buyer(buyer): Buyer,
    parameters: Parameters,
) -> Result<Response, Problem> {
    let name = format!("carts of {buyer}");
    let query = parameters.read::<CartId>(&app.cursors, name, false)?;
    query.format.without_csv("a cart has lines")?;
    list(&app, query, &[], move |engine, after, at_most| {
        let buyer = buyer.clone();
        async move {
            let page = engine
                .ledger
                .list_buyer_carts(&buyer, after, at_most)
                .await?;
            Ok(page.map(CartRow))
        }
    })
    .await
}

/// Lists the money that must be returned: orders that are `refund_due`, and payments that no order
/// could take or whose refund has failed.
#[utoipa::path(get, path = "/v1/refunds-due", operation_id = "listRefundsDue", tag = "admins",
    params(("limit" = Option<u16>, Query, minimum = 1, maximum = 1000, description = "rows of a page; 100 by default"),
        ("after" = Option<String>, Query, description = "`next` of the page before"),
        ("format" = inline(Option<ListFormatWord>), Query, description = "`json` (default): a page; `csv` or `jsonl`: the whole list as a stream")),
    responses(AdminWith<Read>, Parameters, (status = 200, description = "a page, or the whole list", body = PageBody<RefundRow>)),
    security(("admin" = [])))]
pub(crate) async fn refunds_due(
    State(app): State<App>,
    _: AdminWith<Read>,
    parameters: Parameters,
) -> Result<Response, Problem> {
    let query = parameters.read::<RefundKey>(&app.cursors, "refunds-due", false)?;
    list(
        &app,
        query,
        RefundRow::COLUMNS,
        |engine, after, at_most| async move {
            let page = engine.list_refunds_due(after, at_most).await?;
            Ok(page.map(RefundRow::from))
        },
    )
    .await
}

/// Notes that money was returned: the order becomes `refunded`, or the payment leaves the list. A
/// repeat changes nothing.
#[utoipa::path(post, path = "/v1/refunds-due/{id}/done", operation_id = "refundDone", tag = "admins",
    params(("id" = String, Path, description = "`id` of a row of the list")),
    responses(AdminWith<RefundsWrite>, (status = 200, description = "the row; its money is not due any more", body = RefundRow),
        (status = 404, description = "`refund_not_found`", body = Problem), (status = 409, description = "`order_in_cart`: the cart is refunded as a whole", body = Problem), (status = 503, description = "`outcome_unknown`, `unavailable`: the same request tells", body = Problem)),
    security(("admin" = [])))]
pub(crate) async fn refund_done(
    State(app): State<App>,
    admin: AdminWith<RefundsWrite>,
    Name(id): Name,
) -> Result<Response, Problem> {
    let due = RefundRow::key(&id).ok_or_else(Problem::refund_not_found)?;
    match app.engine.refund_done(due, &admin.name).await? {
        RefundDone::Done(due) => Ok(axum::Json(RefundRow::from(due)).into_response()),
        RefundDone::InCart(cart) => Err(Problem::order_in_cart(cart)),
        RefundDone::NotFound => Err(Problem::refund_not_found()),
    }
}

/// Lists what admins have done to an item and its orders, its repairs, and the payments that must be
/// returned, newest first.
#[utoipa::path(get, path = "/v1/items/{item}/journal", operation_id = "listJournal", tag = "admins",
    params(("item" = String, Path, description = "the item"),
        ("limit" = Option<u16>, Query, minimum = 1, maximum = 1000, description = "rows of a page; 100 by default"),
        ("after" = Option<String>, Query, description = "`next` of the page before"),
        ("format" = inline(Option<RowsFormatWord>), Query, description = "`json` (default): a page; `jsonl`: the whole list as a stream")),
    responses(AdminWith<Read>, Parameters, (status = 200, description = "a page, or the whole list", body = PageBody<JournalRow>), (status = 404, description = "`item_not_found`", body = Problem)),
    security(("admin" = [])))]
pub(crate) async fn journal(
    State(app): State<App>,
    _: AdminWith<Read>,
    Name(item): Name,
    parameters: Parameters,
) -> Result<Response, Problem> {
    let id = item_id(&item)?;
    let name = format!("items/{id}/journal");
    let query = parameters.read::<u64>(&app.cursors, name, false)?;
    query
        .format
        .without_csv("an entry has values of many kinds")?;
    let known = app.engine.known(&id).await?;
    known.ok_or_else(Problem::item_not_found)?;
    list(&app, query, &[], move |engine, before, at_most| {
        let id = id.clone();
        async move {
            let page = engine.ledger.list_journal(&id, before, at_most).await?;
            Ok(page.map(JournalRow::from))
        }
    })
    .await
}

/// Lists what admins have done that belongs to no item, newest first: creating, enabling, testing and
/// removing webhooks, and erasing buyers.
#[utoipa::path(get, path = "/v1/journal", operation_id = "listServiceJournal", tag = "admins",
    params(("limit" = Option<u16>, Query, minimum = 1, maximum = 1000, description = "rows of a page; 100 by default"),
        ("after" = Option<String>, Query, description = "`next` of the page before"),
        ("format" = inline(Option<RowsFormatWord>), Query, description = "`json` (default): a page; `jsonl`: the whole list as a stream")),
    responses(AdminWith<Read>, Parameters, (status = 200, description = "a page, or the whole list", body = PageBody<ActRow>)),
    security(("admin" = [])))]
pub(crate) async fn service_journal(
    State(app): State<App>,
    _: AdminWith<Read>,
    parameters: Parameters,
) -> Result<Response, Problem> {
    let query = parameters.read::<u64>(&app.cursors, "journal", false)?;
    query
        .format
        .without_csv("an entry has values of many kinds")?;
    list(&app, query, &[], |engine, before, at_most| async move {
        let page = engine.ledger.list_acts(before, at_most).await?;
        Ok(page.map(ActRow::from))
    })
    .await
}
