//! Handlers that create, show, open, close and audit items.

use axum::{
    extract::State,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use domain::{Durability, Item, ItemId, ItemState, Quantity, Wave, Window};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use jiff::Timestamp;
use ledger::ItemChange;
use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;

use super::{
    App, Problem,
    access::{AdminWith, ItemsWrite, MaybeAdmin, Name, Read},
    body::{Json, Whole},
    problem::FieldError,
    stock::{changed, etag, if_match},
    words::{DurabilityWord, ItemStateWord, SettableStateWord},
};
use crate::engine::{EngineError, ItemView, SegmentView};
use audit::AuditReport;

/// Fifteen minutes: long enough to pay, short enough that abandoned units are sold again during the
/// sale.
const HOLD_SECONDS: u64 = 900;
pub(crate) const YEAR_SECONDS: u64 = 31_536_000;
const PRICE_MAX: u64 = 1_000_000_000_000;
const TITLE_MAX: usize = 200;
/// 9999-01-01T00:00:00Z: earlier times have a four-digit year in every time zone.
const TIMES_END_MS: i64 = 253_370_764_800_000;
const TIMES: &str = "expected a time after 1970-01-01T00:00:00Z and before the year 9999";
/// A hold can be extended for as long as a checkout of most payment providers stays open.
const MAX_HOLD_SECONDS: u32 = 3600;

/// A new item. `id` and `stock` are required; all other fields have defaults.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewItem {
    /// The item's id: 1 to 64 of `A-Z a-z 0-9 . _ -`.
    #[schema(value_type = String, pattern = "^[A-Za-z0-9._-]{1,64}$", example = "maotai")]
    id: ItemId,
    /// The title that buyers see, 200 characters at most. Default: the id.
    #[schema(
        min_length = 1,
        max_length = 200,
        pattern = r"^[^\u0000-\u001f\u007f-\u009f]+$"
    )]
    title: Option<String>,
    /// Units that exist.
    #[schema(value_type = u64, minimum = 0, maximum = 1_000_000_000_000_u64, example = 100)]
    stock: Whole<0, { Item::MAX_STOCK }>,
    /// The price of one unit in the currency's smallest unit. Default: 0.
    #[schema(value_type = Option<u64>, minimum = 0, maximum = 1_000_000_000_000_u64)]
    price: Option<Whole<0, PRICE_MAX>>,
    /// ISO 4217, three capital letters. Default: `USD`.
    #[schema(pattern = "^[A-Z]{3}$", example = "EUR")]
    currency: Option<String>,
    /// Units that one buyer may hold. Default: no limit.
    #[schema(value_type = Option<u32>, minimum = 1, maximum = 1_000_000)]
    limit_per_buyer: Option<Whole<1, { Quantity::MAX as u64 }>>,
    /// Number of segments. Default: one for each Redis master, fewer for a small stock.
    #[schema(value_type = Option<u16>, minimum = 1, maximum = 256)]
    segments: Option<Whole<1, { Item::MAX_SEGMENTS as u64 }>>,
    /// The first moment at which it sells. Default: no start.
    #[schema(value_type = Option<String>, format = DateTime)]
    opens_at: Option<Timestamp>,
    /// The first moment at which it does not sell any more. Default: no end.
    #[schema(value_type = Option<String>, format = DateTime)]
    closes_at: Option<Timestamp>,
    /// Seconds for which an order holds its units. Default: 900.
    #[schema(value_type = Option<u32>, minimum = 1, maximum = 31_536_000)]
    hold_seconds: Option<Whole<1, YEAR_SECONDS>>,
    /// Seconds up to which the hold of an order can be extended. Default: 3600, or `hold_seconds` if
    /// that is more.
    #[schema(value_type = Option<u32>, minimum = 1, maximum = 31_536_000)]
    max_hold_seconds: Option<Whole<1, YEAR_SECONDS>>,
    /// Units that one order may ask for. Default: no limit.
    #[schema(value_type = Option<u32>, minimum = 1, maximum = 1_000_000)]
    max_per_order: Option<Whole<1, { Quantity::MAX as u64 }>>,
    /// Units that are added later, each at its time. Default: none.
    #[schema(max_items = 100)]
    waves: Option<Vec<NewWave>>,
    /// When an order is acknowledged: `recorded` (default), `accepted` or `replicated`.
    #[schema(value_type = Option<DurabilityWord>, example = "recorded")]
    #[serde(default, deserialize_with = "word")]
    durability: Option<Durability>,
}

/// Units that are added at a time.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewWave {
    /// When they are added. It identifies the wave among those of the item.
    #[schema(value_type = String, format = DateTime)]
    at: Timestamp,
    /// Number of units.
    #[schema(value_type = u64, minimum = 1, maximum = 1_000_000_000_000_u64, example = 100)]
    units: Whole<1, { Item::MAX_STOCK }>,
}

/// The waves, in order. `stock`: the units that the item has or gets otherwise.
pub(crate) fn waves(new: &[NewWave], stock: u64) -> Result<Vec<Wave>, Problem> {
    let wave = |new: &NewWave| Wave {
        at: whole_ms(new.at),
        units: new.units.0,
        is_added: false,
    };
    let mut waves: Vec<_> = new.iter().map(wave).collect();
    let refused = |place: usize, expected: String| {
        Err(Problem::invalid_fields(vec![FieldError::of_row(
            "waves", place, expected,
        )]))
    };
    if waves.len() > Item::MAX_WAVES {
        return refused(
            Item::MAX_WAVES,
            format!("expected {} waves at most", Item::MAX_WAVES),
        );
    }
    let mut total = stock;
    for (place, wave) in waves.iter().enumerate() {
        if !(1..TIMES_END_MS).contains(&wave.at.as_millisecond()) {
            return refused(place, format!("at: {TIMES}"));
        }
        if waves[..place].iter().any(|earlier| earlier.at == wave.at) {
            return refused(
                place,
                "at: expected another time than that of the other waves".into(),
            );
        }
        total = total.saturating_add(wave.units);
        if total > Item::MAX_STOCK {
            return refused(
                place,
                format!("units: expected a total of {} at most", Item::MAX_STOCK),
            );
        }
    }
    waves.sort_unstable_by_key(|wave| wave.at);
    Ok(waves)
}

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

/// Reads an enum from its name; the error lists the names.
fn word<'de, D: Deserializer<'de>, T: std::str::FromStr<Err = domain::Invalid>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    text.map(|text| {
        text.parse().map_err(|error: T::Err| {
            serde::de::Error::custom(format_args!("expected {}", error.expected))
        })
    })
    .transpose()
}

/// An item and its counts.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ItemBody {
    /// The item's id.
    #[schema(value_type = String)]
    id: ItemId,
    /// The title that buyers see.
    title: String,
    /// The item's state.
    #[schema(value_type = ItemStateWord, example = "open")]
    state: ItemState,
    /// Units that exist.
    stock: u64,
    /// Units that can be sold.
    available: u64,
    /// Units of orders that wait for payment.
    held: u64,
    /// Units of paid orders.
    confirmed: u64,
    /// Units of orders that have ended, on their way back.
    returning: u64,
    /// Units of open withdrawals, which `stock` still counts. Only for admins.
    #[serde(skip_serializing_if = "Option::is_none")]
    withdrawing: Option<u64>,
    /// Whether no unit is available.
    sold_out: bool,
    /// The price of one unit in the currency's smallest unit.
    price: u64,
    /// ISO 4217.
    currency: String,
    /// Units that one buyer may hold; null means no limit.
    #[schema(value_type = Option<u32>)]
    limit_per_buyer: Option<Quantity>,
    /// The first moment at which it sells.
    #[schema(value_type = Option<String>, format = DateTime)]
    opens_at: Option<Timestamp>,
    /// The first moment at which it does not sell any more.
    #[schema(value_type = Option<String>, format = DateTime)]
    closes_at: Option<Timestamp>,
    /// Seconds for which an order holds its units.
    hold_seconds: u32,
    /// Seconds up to which the hold of an order can be extended.
    max_hold_seconds: u32,
    /// Units that one order may ask for; null means no limit.
    #[schema(value_type = Option<u32>)]
    max_per_order: Option<Quantity>,
    /// The next units that will be added; null: none.
    next_wave: Option<NextWave>,
    /// All waves, earliest first, those that were added included. Only for admins.
    #[serde(skip_serializing_if = "Option::is_none")]
    waves: Option<Vec<WaveBody>>,
    /// When an order is acknowledged: `recorded`, `accepted` or `replicated`.
    #[schema(value_type = DurabilityWord)]
    durability: Durability,
    /// The item's segments. Only for admins.
    #[serde(skip_serializing_if = "Option::is_none")]
    segments: Option<Vec<SegmentBody>>,
}

/// Units that will be added.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct NextWave {
    /// When they are added.
    #[schema(value_type = String, format = DateTime)]
    at: Timestamp,
    /// Number of units.
    units: u64,
}

impl NextWave {
    pub(crate) fn of(item: &Item) -> Option<Self> {
        item.next_wave().map(|wave| Self {
            at: wave.at,
            units: wave.units,
        })
    }
}

/// A wave of an item.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct WaveBody {
    /// When its units are added.
    #[schema(value_type = String, format = DateTime)]
    at: Timestamp,
    /// Number of units.
    units: u64,
    /// Whether they were added.
    added: bool,
}

impl From<&Wave> for WaveBody {
    fn from(wave: &Wave) -> Self {
        Self {
            at: wave.at,
            units: wave.units,
            added: wave.is_added,
        }
    }
}

/// A segment and its counts.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SegmentBody {
    segment: u16,
    allocated: u64,
    available: u64,
    held: u64,
    confirmed: u64,
    returning: u64,
    /// Pending spillovers of orders whose home is this segment.
    spillovers: u64,
    /// Outbox entries that are not trimmed, including the anchor.
    outbox: u64,
}

impl From<SegmentView> for SegmentBody {
    fn from(view: SegmentView) -> Self {
        let SegmentView {
            segment,
            allocated,
            available,
            held,
            confirmed,
            returning,
            spillovers,
            outbox,
        } = view;
        Self {
            segment,
            allocated,
            available,
            held,
            confirmed,
            returning,
            spillovers,
            outbox,
        }
    }
}

impl ItemBody {
    /// `withdrawing`: for an admin.
    fn new(view: ItemView, withdrawing: Option<u64>) -> Self {
        let ItemView {
            item,
            available,
            held,
            confirmed,
            returning,
            segments,
        } = view;
        let next_wave = NextWave::of(&item);
        Self {
            id: item.id,
            title: item.title,
            state: item.state,
            stock: item.stock,
            available,
            held,
            confirmed,
            returning,
            withdrawing,
            sold_out: available == 0,
            price: item.price,
            currency: item.currency,
            limit_per_buyer: item.limit_per_buyer,
            opens_at: item.window.opens_at,
            closes_at: item.window.closes_at,
            hold_seconds: item.hold_seconds,
            max_hold_seconds: item.max_hold_seconds,
            max_per_order: item.max_per_order,
            next_wave,
            waves: withdrawing
                .is_some()
                .then(|| item.waves.iter().map(WaveBody::from).collect()),
            durability: item.durability,
            segments: withdrawing
                .is_some()
                .then(|| segments.into_iter().map(SegmentBody::from).collect()),
        }
    }
}

impl NewItem {
    fn into_item(self, masters: u16) -> Result<Item, Problem> {
        let window = Window {
            opens_at: self.opens_at.map(whole_ms),
            closes_at: self.closes_at.map(whole_ms),
        };
        check_window(window)?;
        let stock = self.stock.0;
        let hold_seconds = narrow(self.hold_seconds.map_or(HOLD_SECONDS, |hold| hold.0));
        Ok(Item {
            hold_seconds,
            max_hold_seconds: max_hold(
                self.max_hold_seconds.map(|max| narrow(max.0)),
                hold_seconds,
            )?,
            max_per_order: self
                .max_per_order
                .map(|max| narrow(max.0))
                .map(Quantity::new)
                .transpose()?,
            waves: waves(&self.waves.unwrap_or_default(), stock)?,
            title: title(self.title, &self.id)?,
            price: self.price.map_or(0, |price| price.0),
            currency: currency(self.currency)?,
            limit_per_buyer: self
                .limit_per_buyer
                .map(|limit| narrow(limit.0))
                .map(Quantity::new)
                .transpose()?,
            segments: self.segments.map_or_else(
                || default_segments(stock, masters),
                |segments| narrow(segments.0),
            ),
            window,
            durability: self.durability.unwrap_or(Durability::Recorded),
            state: ItemState::Open,
            epoch: 1,
            version: 1,
            stock,
            id: self.id,
        })
    }
}

/// Converts a number that `Whole` has checked.
fn narrow<T: TryFrom<u64> + Default>(number: u64) -> T {
    T::try_from(number).unwrap_or_default()
}

/// Redis and the ledger store milliseconds. A fraction that is not stored must not make a repeat of
/// the request look different.
pub(crate) fn whole_ms(time: Timestamp) -> Timestamp {
    Timestamp::from_millisecond(time.as_millisecond()).unwrap_or(time)
}

pub(crate) fn check_window(window: Window) -> Result<(), Problem> {
    for (field, time) in [
        ("opens_at", window.opens_at),
        ("closes_at", window.closes_at),
    ] {
        // The scripts read 0 as "no limit".
        if time.is_some_and(|time| !(1..TIMES_END_MS).contains(&time.as_millisecond())) {
            return Err(Problem::invalid(field, TIMES));
        }
    }
    match (window.opens_at, window.closes_at) {
        (Some(opens_at), Some(closes_at)) if closes_at <= opens_at => Err(Problem::invalid(
            "closes_at",
            "expected a time after opens_at",
        )),
        _ => Ok(()),
    }
}

fn max_hold(max: Option<u32>, hold_seconds: u32) -> Result<u32, Problem> {
    let max = max.unwrap_or_else(|| MAX_HOLD_SECONDS.max(hold_seconds));
    (max >= hold_seconds).then_some(max).ok_or_else(|| {
        let expected = format!("expected at least hold_seconds, which is {hold_seconds}");
        Problem::invalid("max_hold_seconds", expected)
    })
}

fn title(title: Option<String>, id: &ItemId) -> Result<String, Problem> {
    let title = title.unwrap_or_else(|| id.to_string());
    let fits =
        (1..=TITLE_MAX).contains(&title.chars().count()) && !title.chars().any(char::is_control);
    fits.then_some(title).ok_or_else(|| {
        Problem::invalid(
            "title",
            format_args!("expected 1 to {TITLE_MAX} characters, no control characters"),
        )
    })
}

fn currency(currency: Option<String>) -> Result<String, Problem> {
    let currency = currency.unwrap_or_else(|| "USD".into());
    let fits = currency.len() == 3 && currency.bytes().all(|byte| byte.is_ascii_uppercase());
    fits.then_some(currency)
        .ok_or_else(|| Problem::invalid("currency", "expected three capital letters (ISO 4217)"))
}

/// Several segments, so that each master gets one: a hash slot is linear in the key, and segments 0
/// and 1 of any item lie in the same half of the slots.
const SEGMENTS_PER_MASTER: u16 = 4;

/// Segments on one server only shorten its batches; on several servers they let all of them sell. A
/// small stock is not worth splitting: an order for two units would find single ones.
fn default_segments(stock: u64, masters: u16) -> u16 {
    let worthwhile = u16::try_from(stock / 100).unwrap_or(u16::MAX).max(1);
    let useful = if masters > 1 {
        masters.saturating_mul(SEGMENTS_PER_MASTER)
    } else {
        1
    };
    useful.min(Item::MAX_SEGMENTS).min(worthwhile)
}

/// Creates an item. A repeat with the same body changes nothing.
#[utoipa::path(post, path = "/v1/items", operation_id = "createItem", tag = "admins", request_body = NewItem,
    responses((status = 201, description = "created, now or before", body = ItemBody), (status = 400, description = "`invalid_request`", body = Problem),
        (status = 401, description = "`unauthorized`", body = Problem), (status = 403, description = "`forbidden`: a buyer, or an admin without the scope `items:write`", body = Problem), (status = 409, description = "`item_exists`: with another body", body = Problem)),
    security(("admin" = [])))]
pub(crate) async fn create(
    State(app): State<App>,
    _: AdminWith<ItemsWrite>,
    Json(new): Json<NewItem>,
) -> Result<Response, Problem> {
    let item = new.into_item(app.engine.stock.masters())?;
    let created = app
        .engine
        .create_item(&item)
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

/// The item, and its version for `ETag`.
pub(crate) async fn view(app: &App, id: &ItemId, admin: bool) -> Result<(u64, ItemBody), Problem> {
    let view = app
        .engine
        .view_item(id)
        .await?
        .ok_or_else(Problem::item_not_found)?;
    let withdrawing = if admin {
        Some(app.engine.withdrawing(id).await?)
    } else {
        None
    };
    Ok((view.item.version, ItemBody::new(view, withdrawing)))
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
    params(("item" = String, Path, description = "the item"), ("If-Match" = Option<String>, Header, description = "only if the item has this version")),
    responses((status = 200, description = "the item as it is now", body = ItemBody), (status = 400, description = "`invalid_request`", body = Problem),
        (status = 401, description = "`unauthorized`", body = Problem), (status = 403, description = "`forbidden`: a buyer, or an admin without the scope `items:write`", body = Problem), (status = 404, description = "`item_not_found`", body = Problem),
        (status = 409, description = "`item_archived`", body = Problem), (status = 412, description = "`version_mismatch`", body = Problem)),
    security(("admin" = [])))]
pub(crate) async fn set_state(
    State(app): State<App>,
    admin: AdminWith<ItemsWrite>,
    Name(item): Name,
    headers: HeaderMap,
    Json(new): Json<NewState>,
) -> Result<Response, Problem> {
    let (id, expected) = (item_id(&item)?, if_match(&headers)?);
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

/// Proves, from one snapshot of each segment and of the ledger, that no unit was oversold, stranded
/// or lost.
#[utoipa::path(get, path = "/v1/items/{item}/audit", operation_id = "auditItem", tag = "admins", params(("item" = String, Path, description = "the item")),
    responses((status = 200, description = "the conservation invariant for each segment and for the item", body = AuditReport),
        (status = 401, description = "`unauthorized`", body = Problem), (status = 403, description = "`forbidden`: a buyer, or an admin without the scope `read`", body = Problem), (status = 404, description = "`item_not_found`", body = Problem)),
    security(("admin" = [])))]
pub(crate) async fn audit(
    State(app): State<App>,
    _: AdminWith<Read>,
    Name(item): Name,
) -> Result<Response, Problem> {
    let report = audit::audit(&app.engine.stock, &*app.engine.ledger, &item_id(&item)?)
        .await
        .map_err(EngineError::from)?;
    Ok(axum::Json(report.ok_or_else(Problem::item_not_found)?).into_response())
}
