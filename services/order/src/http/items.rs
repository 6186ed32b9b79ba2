//! Handlers that create, show, open and close items.

pub(crate) mod audit;
mod if_match;
mod new;
pub(crate) mod several;
mod shown;

use axum::{
    extract::State,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use domain::{ItemId, ItemState};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use ledger::ItemChange;
use serde::{Deserialize, Deserializer};
use utoipa::ToSchema;

use self::if_match::etag;
pub(crate) use self::{
    if_match::{if_match, required_if_match},
    new::{NewItem, NewWave, PRICE_MAX, YEAR_SECONDS, check_window, waves, whole_ms},
    shown::{ItemBody, changed, item_shown, view},
};
use super::{
    App, Problem,
    access::{AdminWith, ItemsWrite, MaybeAdmin, Name},
    body::Json,
    words::SettableStateWord,
};

/// The new state of an item.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewState {
    /// `open`, `paused` or `closed`.
    #[schema(value_type = SettableStateWord, example = "paused")]
    #[serde(deserialize_with = "settable")]
    state: Option<ItemState>,
}

/// What `state` may be set to. An item is archived by a call of its own.
const SETTABLE: &str = "expected one of open, paused, closed";

fn settable<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<ItemState>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    let state = text.map(|text| text.parse().ok());
    match state {
        None => Ok(None),
        Some(Some(state)) if state != ItemState::Archived => Ok(Some(state)),
        Some(_) => Err(serde::de::Error::custom(SETTABLE)),
    }
}

/// Creates an item. A repeat with the same body changes nothing.
#[utoipa::path(post, path = "/v1/items", operation_id = "createItem", tag = "admins", request_body = NewItem,
    responses(AdminWith<ItemsWrite>, (status = 201, description = "created, now or before", body = ItemBody), (status = 409, description = "`item_exists`: with another body", body = Problem)),
    security(("admin" = [])))]
pub(crate) async fn create(
    State(app): State<App>,
    admin: AdminWith<ItemsWrite>,
    Json(new): Json<NewItem>,
) -> Result<Response, Problem> {
    let item = new.into_item(app.engine.stock.masters())?;
    let created = app
        .engine
        .create_item(&item, &admin.name)
        .await?
        .ok_or_else(Problem::item_exists)?;
    let location = format!("/v1/items/{}", created.id);
    let (version, body) = view(&app, &created.id, true).await?;
    let headers = [
        (
            header::LOCATION,
            HeaderValue::try_from(location).map_err(|_| Problem::internal())?,
        ),
        (header::ETAG, etag(version)),
    ];
    Ok((StatusCode::CREATED, headers, axum::Json(body)).into_response())
}

pub(crate) fn item_id(item: &str) -> Result<ItemId, Problem> {
    ItemId::new(item).map_err(|_| Problem::item_not_found())
}

/// Shows an item. Admins also see its segments, and counts that are not cached.
#[utoipa::path(get, path = "/v1/items/{item}", operation_id = "getItem", tag = "buyers", params(("item" = String, Path, description = "the item")),
    responses((status = 200, description = "the item", body = ItemBody), (status = 404, description = "`item_not_found`", body = Problem)))]
pub(crate) async fn show(
    State(app): State<App>,
    MaybeAdmin(admin): MaybeAdmin,
    Name(item): Name,
) -> Result<Response, Problem> {
    let id = item_id(&item)?;
    if !admin {
        return show_to_anyone(&app, id).await;
    }
    let (version, body) = view(&app, &id, true).await?;
    // Only admins get the version: for buyers it would be a tag that stays the same while the
    // counts change.
    let headers = [
        (header::ETAG, etag(version)),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
    ];
    Ok((headers, axum::Json(body)).into_response())
}

/// How long a browser or a proxy may keep the view of an item.
const CACHE_CONTROL: HeaderValue = HeaderValue::from_static("public, max-age=1");

async fn show_to_anyone(app: &App, id: ItemId) -> Result<Response, Problem> {
    let read = async {
        let view = app.engine.view_item(&id).await?;
        let body = view.map(|view| serde_json::to_vec(&ItemBody::new(view, None)));
        let body = body.transpose().map_err(|_| Problem::internal())?;
        Ok(body.map(Bytes::from))
    };
    let body = app.public_views.get(id.clone(), read).await?;
    let body = body.ok_or_else(Problem::item_not_found)?;
    let headers = [
        (
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/json"),
        ),
        (header::CACHE_CONTROL, CACHE_CONTROL),
    ];
    Ok((headers, body).into_response())
}

/// Opens, pauses or closes an item.
#[utoipa::path(put, path = "/v1/items/{item}/state", operation_id = "setItemState", tag = "admins", request_body = NewState,
    params(("item" = String, Path, description = "the item"), ("If-Match" = Option<String>, Header, description = "only if the item has this version, or one of a list")),
    responses(AdminWith<ItemsWrite>, (status = 200, description = "the item as it is now", body = ItemBody), (status = 404, description = "`item_not_found`", body = Problem),
        (status = 409, description = "`item_archived`", body = Problem), (status = 412, description = "`version_mismatch`", body = Problem)),
    security(("admin" = [])))]
pub(crate) async fn set_state(
    State(app): State<App>,
    admin: AdminWith<ItemsWrite>,
    Name(item): Name,
    headers: HeaderMap,
    Json(new): Json<NewState>,
) -> Result<Response, Problem> {
    let id = item_id(&item)?;
    let expected = if_match(&app, &id, &headers).await?;
    let state = new
        .state
        .ok_or_else(|| Problem::invalid("state", SETTABLE))?;
    changed(
        &app,
        &id,
        &ItemChange {
            state: Some(state),
            ..ItemChange::default()
        },
        expected,
        &admin.name,
    )
    .await
}
