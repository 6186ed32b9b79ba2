//! Changes of an item: a page that asks, and the form that does.

use axum::{
    Form,
    extract::{Path, Query, State},
    response::{IntoResponse, Redirect, Response},
};
use domain::{IdempotencyKey, Item, ItemId, ItemState};
use http::{HeaderMap, StatusCode};
use ledger::{Changed, ItemChange};
use maud::html;
use order::{
    Scope,
    engine::{EngineError, StockRequest, Stocked},
};
use serde::Deserialize;

use super::{
    Console,
    access::{Operator, foreign_form, lacks},
    failures::{no_such_item, unreadable},
    head,
};
use crate::{
    cookies::random_secret,
    layout::{failure, page},
    text::number,
};

/// What a button does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Open,
    Pause,
    Close,
    Add,
}

impl Action {
    fn parse(word: &str) -> Option<Self> {
        Some(match word {
            "open" => Self::Open,
            "pause" => Self::Pause,
            "close" => Self::Close,
            "add" => Self::Add,
            _ => return None,
        })
    }

    /// The scope that the same call of the API needs.
    fn scope(self) -> Scope {
        match self {
            Self::Open | Self::Pause | Self::Close => Scope::ItemsWrite,
            Self::Add => Scope::StockWrite,
        }
    }

    fn label(self) -> &'static str {
        match self {
            Self::Open => "Open",
            Self::Pause => "Pause",
            Self::Close => "Close",
            Self::Add => "Add units",
        }
    }

    fn consequence(self) -> &'static str {
        match self {
            Self::Open => "Buyers can order again, inside the item's window.",
            Self::Pause => "No new orders are accepted. Orders that are held can still be paid.",
            Self::Close => "The sale ends. Orders that are held can still be paid.",
            Self::Add => "The units go on sale immediately. Only the API withdraws units.",
        }
    }
}

/// Path of a change: the item and the action.
struct Target {
    id: ItemId,
    word: String,
    action: Action,
}

impl Target {
    fn parse((item, word): (String, String)) -> Option<Self> {
        Some(Self {
            id: ItemId::new(&item).ok()?,
            action: Action::parse(&word)?,
            word,
        })
    }

    fn item_page(&self) -> String {
        format!("/console/items/{}", self.id)
    }

    fn refused(&self, status: StatusCode, text: &str) -> Response {
        failure(status, text, (&self.item_page(), "To the item"))
    }

    fn done(&self, word: &str) -> Response {
        Redirect::to(&format!("{}?done={word}", self.item_page())).into_response()
    }

    fn archived(&self) -> Response {
        let text = "The item is archived for good. Nothing was done.";
        self.refused(StatusCode::CONFLICT, text)
    }

    fn changed_since(&self, version: u64) -> Response {
        let text = format!("The item has changed: it has version {version} now. Nothing was done.");
        self.refused(StatusCode::PRECONDITION_FAILED, &text)
    }

    fn failed(&self, error: EngineError) -> Response {
        unreadable(&error.into())
    }
}

#[derive(Deserialize)]
pub(super) struct Units {
    units: Option<u64>,
}

/// Asks before the change. The form has the item's version, so that it changes what was shown.
pub(super) async fn confirm(
    State(console): State<Console>,
    operator: Operator,
    Path(path): Path<(String, String)>,
    Query(Units { units }): Query<Units>,
) -> Response {
    let Some(target) = Target::parse(path) else {
        return no_such_item();
    };
    let action = target.action;
    if !operator.has(action.scope()) {
        return lacks(action.scope());
    }
    let item = match console.engine.item(&target.id).await {
        Ok(Some(item)) => item,
        Ok(None) => return no_such_item(),
        Err(error) => return target.failed(error),
    };
    if action == Action::Add && !fits(&item, units) {
        return target.refused(StatusCode::BAD_REQUEST, &expected_units(&item));
    }
    ask(&operator, &target, &item, units).into_response()
}

fn ask(operator: &Operator, target: &Target, item: &Item, units: Option<u64>) -> impl IntoResponse {
    let action = target.action;
    let body = html! {
        (head(operator))
        main.narrow {
            h1 {
                (action.label())
                @if let Some(units) = units.filter(|_| action == Action::Add) { ": " (number(units)) }
            }
            form.card method="post" action={ (target.item_page()) "/" (target.word) } {
                p { b { (item.title) } " is " (item.state) " and has " (number(item.stock)) " units." }
                p { (action.consequence()) }
                (operator.secret_field())
                input type="hidden" name="version" value=(item.version);
                @if action == Action::Add {
                    input type="hidden" name="units" value=[units];
                    input type="hidden" name="key" value=(random_secret());
                }
                div.actions.choice {
                    button #confirm { (action.label()) }
                    a href=(target.item_page()) { "Do nothing" }
                }
            }
            p.muted { "The journal will name you: " (operator.name()) "." }
        }
    };
    page(action.label(), None, &body)
}

fn fits(item: &Item, units: Option<u64>) -> bool {
    let units = units.unwrap_or(0);
    units > 0
        && item
            .stock
            .checked_add(units)
            .is_some_and(|stock| stock <= Item::MAX_STOCK)
}

fn expected_units(item: &Item) -> String {
    let most = Item::MAX_STOCK.saturating_sub(item.stock);
    format!("Expected a number of units from 1 to {}.", number(most))
}

#[derive(Deserialize)]
pub(super) struct Change {
    /// The session's secret.
    secret: String,
    /// The version of the item that the form showed.
    version: u64,
    units: Option<u64>,
    /// Identifies an addition: a form that is sent twice adds once.
    key: Option<String>,
}

/// Makes the change.
pub(super) async fn act(
    State(console): State<Console>,
    operator: Operator,
    Path(path): Path<(String, String)>,
    headers: HeaderMap,
    Form(change): Form<Change>,
) -> Response {
    if !operator.sent(&headers, &change.secret) {
        return foreign_form();
    }
    let Some(target) = Target::parse(path) else {
        return no_such_item();
    };
    if !operator.has(target.action.scope()) {
        return lacks(target.action.scope());
    }
    let set = async |state| set_state(&console, &operator, &target, state, &change).await;
    let response = match target.action {
        Action::Open => set(ItemState::Open).await,
        Action::Pause => set(ItemState::Paused).await,
        Action::Close => set(ItemState::Closed).await,
        Action::Add => add(&console, &operator, &target, &change).await,
    };
    console.reads.forget(&target.id).await;
    response
}

async fn set_state(
    console: &Console,
    operator: &Operator,
    target: &Target,
    state: ItemState,
    form: &Change,
) -> Response {
    let change = ItemChange {
        state: Some(state),
        ..ItemChange::default()
    };
    let engine = &console.engine;
    match engine
        .change_item(&target.id, &change, Some(form.version), operator.name())
        .await
    {
        Ok(Changed::Item(_)) => target.done(&target.word),
        Ok(Changed::OtherVersion(item) | Changed::OtherChange(item)) => {
            target.changed_since(item.version)
        }
        Ok(Changed::Archived(_)) => target.archived(),
        Ok(Changed::NoItem) => no_such_item(),
        Err(error) => target.failed(error),
    }
}

async fn add(console: &Console, operator: &Operator, target: &Target, form: &Change) -> Response {
    let item = match console.engine.item(&target.id).await {
        Ok(Some(item)) => item,
        Ok(None) => return no_such_item(),
        Err(error) => return target.failed(error),
    };
    let key = form.key.as_deref().map(IdempotencyKey::new);
    let (Some(Ok(key)), Some(units)) = (key, form.units.filter(|_| fits(&item, form.units))) else {
        return target.refused(StatusCode::BAD_REQUEST, &expected_units(&item));
    };
    let (request, version) = (StockRequest::Add(units), Some(form.version));
    let engine = &console.engine;
    match engine
        .change_stock(&target.id, request, &key, version, operator.name())
        .await
    {
        Ok(Stocked::Item { settled: true, .. }) => target.done("add"),
        Ok(Stocked::Item { settled: false, .. }) => target.done("adding"),
        Ok(Stocked::OtherVersion(version) | Stocked::KeyReused { version }) => {
            target.changed_since(version)
        }
        Ok(Stocked::Archived) => target.archived(),
        Ok(Stocked::NoItem) => no_such_item(),
        Err(error) => target.failed(error),
    }
}
