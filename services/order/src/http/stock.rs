//! Handlers that change an item while it sells: stock, limit, window, waves.

use axum::{extract::State, response::Response};
use domain::{GivenTime, Item, Wave, Window};
use http::{HeaderMap, StatusCode};
use ledger::ItemChange;
use serde::{Deserialize, Deserializer};
use utoipa::ToSchema;

use super::{
    App, Problem,
    access::{AdminWith, ItemsWrite, Name, StockWrite},
    body::{Json, OrderUnits, Whole},
    items::{
        ItemBody, NewWave, PRICE_MAX, changed, check_window, if_match, item_id, item_shown,
        required_if_match, waves, whole_ms,
    },
    orders::idempotency_key,
    problem::FieldError,
};
use crate::engine::{ArchiveRequested, DropRequested, StockRequest, StockSet, Unchanged};

type Units = Whole<1, { Item::MAX_STOCK }>;

/// Units to add to the item, or unsold units to withdraw. Give one of the two.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct StockMove {
    /// Units to add.
    #[schema(value_type = Option<u64>, minimum = 1, maximum = 1_000_000_000_000_u64, example = 100)]
    add: Option<Units>,
    /// Units to withdraw: this many, or as many as are unsold.
    #[schema(value_type = Option<u64>, minimum = 1, maximum = 1_000_000_000_000_u64)]
    withdraw: Option<Units>,
}

/// The new stock of an item.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewStock {
    /// Units that exist, including held and paid ones.
    #[schema(value_type = u64, minimum = 0, maximum = 1_000_000_000_000_u64, example = 250)]
    stock: Whole<0, { Item::MAX_STOCK }>,
}

/// Changes of an item. Fields that are absent stay as they are; null removes a limit or a time.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ItemPatch {
    /// Units that one buyer may hold.
    #[schema(value_type = Option<u32>, minimum = 1, maximum = 1_000_000)]
    #[serde(default, deserialize_with = "named")]
    limit_per_buyer: Option<Option<OrderUnits>>,
    /// The first moment at which it sells.
    #[schema(value_type = Option<String>, format = DateTime)]
    #[serde(default, deserialize_with = "named")]
    opens_at: Option<Option<GivenTime>>,
    /// The first moment at which it does not sell any more.
    #[schema(value_type = Option<String>, format = DateTime)]
    #[serde(default, deserialize_with = "named")]
    closes_at: Option<Option<GivenTime>>,
    /// The price of one unit in the currency's smallest unit, for orders to come. It cannot be null.
    #[schema(value_type = u64, minimum = 0, maximum = 1_000_000_000_000_u64)]
    #[serde(default, deserialize_with = "named")]
    price: Option<Option<Whole<0, PRICE_MAX>>>,
    /// The waves that are to come; null or an empty list: none. Waves that were added stay.
    #[schema(value_type = Option<Vec<NewWave>>, max_items = 100)]
    #[serde(default, deserialize_with = "named")]
    waves: Option<Option<Vec<NewWave>>>,
}

/// Distinguishes a field that is null from one that is absent.
fn named<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Option<Option<T>>, D::Error> {
    Option::<T>::deserialize(deserializer).map(Some)
}

impl ItemPatch {
    fn into_change(self, item: &Item) -> Result<ItemChange, Problem> {
        let now = item.window;
        let time =
            |patch: Option<Option<GivenTime>>, now| patch.map_or(now, |time| time.map(whole_ms));
        let window = Window {
            opens_at: time(self.opens_at, now.opens_at),
            closes_at: time(self.closes_at, now.closes_at),
        };
        check_window(window)?;
        if self.price.as_ref().is_some_and(Option::is_none) {
            return Err(Problem::invalid("price", "expected a price; 0 is free"));
        }
        let limit = self
            .limit_per_buyer
            .map(|limit| limit.map(|limit| limit.quantity()).transpose());
        Ok(ItemChange {
            state: None,
            limit_per_buyer: limit.transpose()?,
            window: (window != now).then_some(window),
            price: self.price.flatten().map(|price| price.0),
            waves: self
                .waves
                .map(|new| pending_waves(&new.unwrap_or_default(), item))
                .transpose()?,
        })
    }
}

/// The waves that are to come. Those that were added may be repeated as they are.
fn pending_waves(new: &[NewWave], item: &Item) -> Result<Vec<Wave>, Problem> {
    let pending = waves(new, item.stock)?;
    for added in item.waves.iter().filter(|wave| wave.is_added) {
        let changed = |wave: &&Wave| wave.at == added.at && wave.units != added.units;
        if pending.iter().any(|wave| changed(&wave)) {
            let expected = format!(
                "expected {} units at {}: they were added",
                added.units, added.at
            );
            return Err(Problem::from(FieldError::new("waves", expected)));
        }
    }
    Ok(pending)
}

/// Why a change was not made. `field`: the one that asks for units.
pub(super) fn unchanged(why: Unchanged, field: &str) -> Problem {
    match why {
        Unchanged::OtherVersion(version) => Problem::version_mismatch(version),
        Unchanged::KeyReused(_) => Problem::stock_key_reused(),
        Unchanged::AboveMaximum => {
            let expected = format!(
                "expected a total of {} at most, with the units of the waves to come",
                Item::MAX_STOCK
            );
            Problem::from(FieldError::new(field, expected))
        }
        Unchanged::Archived => Problem::item_archived(),
        Unchanged::NoItem => Problem::item_not_found(),
    }
}

/// Adds units to an item, or withdraws unsold units. Requests with the same `Idempotency-Key` are
/// the same change.
#[utoipa::path(post, path = "/v1/items/{item}/stock", operation_id = "moveStock", tag = "admins", request_body = StockMove,
    params(("item" = String, Path, description = "the item"), ("Idempotency-Key" = String, Header, description = "identifies the change: a repeat with the same key changes nothing"),
        ("If-Match" = Option<String>, Header, description = "only if the item has this version, or one of a list")),
    responses(AdminWith<StockWrite>, (status = 200, description = "the change is complete", body = ItemBody), (status = 202, description = "units are still in transit", body = ItemBody),
        (status = 404, description = "`item_not_found`", body = Problem), (status = 409, description = "`item_archived`", body = Problem),
        (status = 412, description = "`version_mismatch`", body = Problem),
        (status = 422, description = "`idempotency_key_reused`: for another change", body = Problem)),
    security(("admin" = [])))]
pub(crate) async fn move_stock(
    State(app): State<App>,
    admin: AdminWith<StockWrite>,
    Name(item): Name,
    headers: HeaderMap,
    Json(request): Json<StockMove>,
) -> Result<Response, Problem> {
    let (id, key) = (item_id(&item)?, idempotency_key(&headers)?);
    let expected = if_match(&app, &id, &headers).await?;
    let request = match (request.add, request.withdraw) {
        (Some(units), None) => StockRequest::Add(units.0),
        (None, Some(units)) => StockRequest::Withdraw(units.0),
        _ => return Err(Problem::invalid("add", "expected either add or withdraw")),
    };
    let changed = app
        .engine
        .change_stock(&id, request, &key, expected, &admin.name)
        .await?;
    let status = match changed.map_err(|why| unchanged(why, "add"))?.settled {
        true => StatusCode::OK,
        false => StatusCode::ACCEPTED,
    };
    item_shown(&app, status, &id).await
}

/// Sets the stock of an item, if its version has not changed. For systems that manage the stock of
/// several shops.
#[utoipa::path(put, path = "/v1/items/{item}/stock", operation_id = "setStock", tag = "admins", request_body = NewStock,
    params(("item" = String, Path, description = "the item"), ("If-Match" = String, Header, description = "the item's version, from its `ETag`; or a list; or `*`: the one that it has now")),
    responses(AdminWith<StockWrite>, (status = 200, description = "the item has this stock, and the change is complete", body = ItemBody),
        (status = 202, description = "units are still in transit (`withdrawing`); or units were sold in the meantime and only some could be withdrawn: `stock` is the result", body = ItemBody),
        (status = 404, description = "`item_not_found`", body = Problem),
        (status = 409, description = "`not_enough_unsold`: no unit was moved; `withdrawal_open`: the stock is not known until the open withdrawal has settled, retry later; `item_archived`", body = Problem),
        (status = 412, description = "`version_mismatch`: read the item again", body = Problem), (status = 428, description = "`if_match_required`", body = Problem)),
    security(("admin" = [])))]
pub(crate) async fn set_stock(
    State(app): State<App>,
    admin: AdminWith<StockWrite>,
    Name(item): Name,
    headers: HeaderMap,
    Json(request): Json<NewStock>,
) -> Result<Response, Problem> {
    let id = item_id(&item)?;
    let expected = required_if_match(&app, &id, &headers).await?;
    match app
        .engine
        .set_stock(&id, request.stock.0, expected, &admin.name)
        .await?
    {
        StockSet::Done => item_shown(&app, StatusCode::OK, &id).await,
        StockSet::NotYetOrNotAll => item_shown(&app, StatusCode::ACCEPTED, &id).await,
        StockSet::NotEnough { available } => Err(Problem::not_enough_unsold(available)),
        StockSet::NothingLeft => Err(Problem::nothing_left()),
        StockSet::WithdrawalOpen => Err(Problem::withdrawal_open()),
        StockSet::Unchanged(why) => Err(unchanged(why, "stock")),
    }
}

/// Changes the limit or the window of an item.
#[utoipa::path(patch, path = "/v1/items/{item}", operation_id = "changeItem", tag = "admins", request_body = ItemPatch,
    params(("item" = String, Path, description = "the item"), ("If-Match" = Option<String>, Header, description = "only if the item has this version, or one of a list")),
    responses(AdminWith<ItemsWrite>, (status = 200, description = "the item as it is now", body = ItemBody), (status = 404, description = "`item_not_found`", body = Problem),
        (status = 409, description = "`item_archived`", body = Problem), (status = 412, description = "`version_mismatch`", body = Problem)),
    security(("admin" = [])))]
pub(crate) async fn patch(
    State(app): State<App>,
    admin: AdminWith<ItemsWrite>,
    Name(item): Name,
    headers: HeaderMap,
    Json(request): Json<ItemPatch>,
) -> Result<Response, Problem> {
    let id = item_id(&item)?;
    let expected = if_match(&app, &id, &headers).await?;
    let now = app
        .engine
        .item(&id)
        .await?
        .ok_or_else(Problem::item_not_found)?;
    let change = request.into_change(&now)?;
    changed(&app, &id, &change, expected, &admin.name).await
}

/// Archives a closed item for good: its final audit is written down, and Redis forgets it. Orders
/// that are repeated or looked up are answered from the ledger.
#[utoipa::path(post, path = "/v1/items/{item}/archive", operation_id = "archiveItem", tag = "admins",
    params(("item" = String, Path, description = "the item"), ("If-Match" = Option<String>, Header, description = "only if the item has this version, or one of a list")),
    responses(AdminWith<ItemsWrite>, (status = 200, description = "the item is archived, now or before", body = ItemBody),
        (status = 202, description = "the request is recorded, and a reconciler will archive the item", body = ItemBody),
        (status = 400, description = "`invalid_request`", body = Problem),
        (status = 404, description = "`item_not_found`", body = Problem), (status = 409, description = "`item_not_archivable`: the detail says what is open", body = Problem),
        (status = 412, description = "`version_mismatch`", body = Problem)),
    security(("admin" = [])))]
pub(crate) async fn archive(
    State(app): State<App>,
    admin: AdminWith<ItemsWrite>,
    Name(item): Name,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let id = item_id(&item)?;
    let expected = if_match(&app, &id, &headers).await?;
    match app.engine.archive_item(&id, expected, &admin.name).await? {
        ArchiveRequested::Archived => item_shown(&app, StatusCode::OK, &id).await,
        ArchiveRequested::Pending => item_shown(&app, StatusCode::ACCEPTED, &id).await,
        ArchiveRequested::Refused(reasons) => Err(Problem::item_not_archivable(&reasons)),
        ArchiveRequested::OtherVersion(version) => Err(Problem::version_mismatch(version)),
        ArchiveRequested::NoItem => Err(Problem::item_not_found()),
    }
}

/// Exports and deletes what the sale of an archived item has left. The item and its final audit stay.
#[utoipa::path(delete, path = "/v1/items/{item}", operation_id = "dropItem", tag = "admins",
    params(("item" = String, Path, description = "the item")),
    responses(AdminWith<ItemsWrite>, (status = 200, description = "the item is dropped", body = ItemBody),
        (status = 202, description = "the request is recorded, and a reconciler will drop the item", body = ItemBody),
        (status = 400, description = "`invalid_request`", body = Problem),
        (status = 404, description = "`item_not_found`", body = Problem), (status = 409, description = "`item_not_droppable`: the item is not archived, or not for long enough, or no folder for exports is set", body = Problem)),
    security(("admin" = [])))]
pub(crate) async fn drop_item(
    State(app): State<App>,
    admin: AdminWith<ItemsWrite>,
    Name(item): Name,
) -> Result<Response, Problem> {
    let id = item_id(&item)?;
    match app.engine.drop_item(&id, &admin.name).await? {
        DropRequested::Dropped => item_shown(&app, StatusCode::OK, &id).await,
        DropRequested::Pending => item_shown(&app, StatusCode::ACCEPTED, &id).await,
        DropRequested::NotArchived => Err(Problem::item_not_droppable("it is not archived")),
        DropRequested::TooEarly(until) => Err(Problem::item_not_droppable(&format!(
            "it keeps its orders until {until}"
        ))),
        DropRequested::NoFolder => Err(Problem::item_not_droppable(
            "no folder for exports is set (STOCKADE_DROP_EXPORTS, at order services and reconcilers), and nothing is dropped without an export",
        )),
        DropRequested::NoItem => Err(Problem::item_not_found()),
    }
}
