//! An item as it is shown, and its version.

use axum::response::{IntoResponse, Response};
use domain::{Durability, Item, ItemId, ItemState, Quantity, Wave};
use http::{StatusCode, header};
use jiff::Timestamp;
use ledger::ItemChange;
use serde::Serialize;
use utoipa::ToSchema;

use super::{
    super::{
        App, Problem,
        stock::unchanged,
        words::{DurabilityWord, ItemStateWord},
    },
    if_match::etag,
};
use crate::engine::{ItemView, SegmentView, Unchanged};

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
    /// The price of one unit in the currency's smallest unit, for orders to come.
    price: u64,
    /// ISO 4217.
    currency: String,
    /// Units that one buyer may hold; null means no limit.
    #[schema(value_type = Option<u32>, required = true)]
    limit_per_buyer: Option<Quantity>,
    /// The first moment at which it sells.
    #[schema(value_type = Option<String>, format = DateTime, required = true)]
    opens_at: Option<Timestamp>,
    /// The first moment at which it does not sell any more.
    #[schema(value_type = Option<String>, format = DateTime, required = true)]
    closes_at: Option<Timestamp>,
    /// Seconds for which an order holds its units.
    hold_seconds: u32,
    /// Seconds up to which the hold of an order can be extended.
    max_hold_seconds: u32,
    /// Units that one order may ask for; null means no limit.
    #[schema(value_type = Option<u32>, required = true)]
    max_per_order: Option<Quantity>,
    /// The next units that will be added; null: none.
    #[schema(required = true)]
    next_wave: Option<NextWave>,
    /// All waves, earliest first, those that were added included. Only for admins.
    #[serde(skip_serializing_if = "Option::is_none")]
    waves: Option<Vec<WaveBody>>,
    /// When an order is acknowledged: `recorded`, `accepted` or `replicated`.
    #[schema(value_type = DurabilityWord)]
    durability: Durability,
    /// The item's segments. Only for admins.
    #[serde(skip_serializing_if = "Option::is_none")]
    segments: Option<Vec<SegmentView>>,
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

impl ItemBody {
    /// `withdrawing`: for an admin.
    pub(crate) fn new(view: ItemView, withdrawing: Option<u64>) -> Self {
        let ItemView {
            item,
            available,
            held,
            confirmed,
            returning,
            segments,
        } = view;
        let (next_wave, price) = (NextWave::of(&item), item.current_price());
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
            price,
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
            segments: withdrawing.is_some().then_some(segments),
        }
    }
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

/// Makes the change, if the item's version is `expected`, and shows the item. The journal names
/// the `actor`.
pub(crate) async fn changed(
    app: &App,
    id: &ItemId,
    change: &ItemChange,
    expected: Option<u64>,
    actor: &str,
) -> Result<Response, Problem> {
    let changed = app.engine.change_item(id, change, expected, actor).await?;
    let item = changed.map_err(|why| match why {
        // The change has no key.
        Unchanged::KeyReused(version) => Problem::version_mismatch(version),
        why => unchanged(why, "waves"),
    })?;
    item_shown(app, StatusCode::OK, &item.id).await
}

pub(crate) async fn item_shown(
    app: &App,
    status: StatusCode,
    id: &ItemId,
) -> Result<Response, Problem> {
    let (version, body) = view(app, id, true).await?;
    Ok((status, [(header::ETAG, etag(version))], axum::Json(body)).into_response())
}
