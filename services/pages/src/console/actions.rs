//! Changes of an item: a page that asks, and the form that does.

use axum::{
    Form,
    extract::{Path, Query, State},
    response::{IntoResponse, Redirect, Response},
};
use domain::{IdempotencyKey, Item, ItemId, ItemState, Window};
use http::{HeaderMap, StatusCode};
use jiff::{SignedDuration, Timestamp};
use ledger::ItemChange;
use maud::html;
use order::engine::{ArchiveRequested, EngineError, StockRequest, Unchanged};
use serde::Deserialize;

use super::{
    Console,
    access::{Operator, foreign_form, lacks},
    action::{Action, MINUTES_MAX},
    failures::{no_such_item, unreadable},
    head,
};
use crate::{
    cookies::random_secret,
    layout::{failure, page},
    text::number,
};

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

    fn unchanged(&self, why: Unchanged) -> Response {
        match why {
            Unchanged::OtherVersion(version) | Unchanged::KeyReused(version) => {
                self.changed_since(version)
            }
            Unchanged::AboveMaximum => {
                let most = number(Item::MAX_STOCK);
                let text = format!(
                    "The item would have more than {most} units, those of its coming waves included. Nothing was done."
                );
                self.refused(StatusCode::BAD_REQUEST, &text)
            }
            Unchanged::Archived => {
                let text = "The item is archived for good. Nothing was done.";
                self.refused(StatusCode::CONFLICT, text)
            }
            Unchanged::NoItem => no_such_item(),
        }
    }

    fn changed_since(&self, version: u64) -> Response {
        let text = format!("The item has changed: it has version {version} now. Nothing was done.");
        self.refused(StatusCode::PRECONDITION_FAILED, &text)
    }

    fn failed(&self, error: EngineError) -> Response {
        unreadable(&error.into())
    }
}

/// The amount of an action, under the name of its unit.
#[derive(Deserialize)]
pub(super) struct Amounts {
    units: Option<u64>,
    minutes: Option<u64>,
}

impl Amounts {
    fn of(&self, action: Action) -> Option<u64> {
        match action.amount()? {
            "minutes" => self.minutes,
            _ => self.units,
        }
    }
}

/// Asks before the change. The form has the item's version, so that it changes what was shown.
pub(super) async fn confirm(
    State(console): State<Console>,
    operator: Operator,
    Path(path): Path<(String, String)>,
    Query(amounts): Query<Amounts>,
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
    let amount = amounts.of(action);
    if let Err(expected) = check(action, &item, amount) {
        return target.refused(StatusCode::BAD_REQUEST, &expected);
    }
    ask(&operator, &target, &item, amount).into_response()
}

fn ask(
    operator: &Operator,
    target: &Target,
    item: &Item,
    amount: Option<u64>,
) -> impl IntoResponse {
    let action = target.action;
    let body = html! {
        (head(operator))
        main.narrow {
            h1 {
                (action.label())
                @if let (Some(amount), Some(unit)) = (amount, action.amount()) { ": " (number(amount)) " " (unit) }
            }
            form.card method="post" action={ (target.item_page()) "/" (target.word) } {
                p { b { (item.title) } " is " (item.state) " and has " (number(item.stock)) " units." }
                p { (action.consequence()) }
                (operator.secret_field())
                input type="hidden" name="version" value=(item.version);
                @if let Some(unit) = action.amount() {
                    input type="hidden" name=(unit) value=[amount];
                }
                @if action.moves_units() {
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

/// The amount that the action takes. The error says what was expected.
fn check(action: Action, item: &Item, amount: Option<u64>) -> Result<u64, String> {
    let Some(unit) = action.amount() else {
        return Ok(0);
    };
    if action == Action::Extend && item.window.closes_at.is_none() {
        return Err("The sale has no end that could be moved.".into());
    }
    let most = match action {
        Action::Extend => MINUTES_MAX,
        Action::Withdraw => item.stock,
        // The ledger knows whether so many fit, and whether the request is a repeat.
        _ => Item::MAX_STOCK,
    };
    amount
        .filter(|amount| (1..=most).contains(amount))
        .ok_or_else(|| format!("Expected a number of {unit} from 1 to {}.", number(most)))
}

#[derive(Deserialize)]
pub(super) struct Change {
    /// The session's secret.
    secret: String,
    /// The version of the item that the form showed.
    version: u64,
    #[serde(default)]
    units: Option<u64>,
    #[serde(default)]
    minutes: Option<u64>,
    /// Identifies a change of the stock: a form that is sent twice changes it once.
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
        Action::Extend => extend(&console, &operator, &target, &change).await,
        Action::Archive => archive(&console, &operator, &target, &change).await,
        Action::Add | Action::Withdraw => move_units(&console, &operator, &target, &change).await,
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
    change_item(console, operator, target, &change, form).await
}

/// Moves the end of the sale.
async fn extend(
    console: &Console,
    operator: &Operator,
    target: &Target,
    form: &Change,
) -> Response {
    let item = match console.engine.item(&target.id).await {
        Ok(Some(item)) => item,
        Ok(None) => return no_such_item(),
        Err(error) => return target.failed(error),
    };
    let minutes = match check(target.action, &item, form.minutes) {
        Ok(minutes) => minutes,
        Err(expected) => return target.refused(StatusCode::BAD_REQUEST, &expected),
    };
    let by = SignedDuration::from_mins(i64::try_from(minutes).unwrap_or(0));
    let now = Timestamp::now();
    let from = item.window.closes_at.map_or(now, |at| at.max(now));
    let Ok(closes_at) = from.checked_add(by) else {
        let text = "The sale cannot end so late.";
        return target.refused(StatusCode::BAD_REQUEST, text);
    };
    let change = ItemChange {
        window: Some(Window {
            closes_at: Some(closes_at),
            ..item.window
        }),
        ..ItemChange::default()
    };
    change_item(console, operator, target, &change, form).await
}

async fn change_item(
    console: &Console,
    operator: &Operator,
    target: &Target,
    change: &ItemChange,
    form: &Change,
) -> Response {
    let engine = &console.engine;
    match engine
        .change_item(&target.id, change, Some(form.version), operator.name())
        .await
    {
        Ok(Ok(_)) => target.done(&target.word),
        Ok(Err(why)) => target.unchanged(why),
        Err(error) => target.failed(error),
    }
}

async fn archive(
    console: &Console,
    operator: &Operator,
    target: &Target,
    form: &Change,
) -> Response {
    let engine = &console.engine;
    match engine
        .archive_item(&target.id, Some(form.version), operator.name())
        .await
    {
        Ok(ArchiveRequested::Archived) => target.done("archive"),
        Ok(ArchiveRequested::Pending) => target.done("archiving"),
        Ok(ArchiveRequested::Refused(reasons)) => {
            let text = format!("The item cannot be archived: {}.", reasons.join("; "));
            target.refused(StatusCode::CONFLICT, &text)
        }
        Ok(ArchiveRequested::OtherVersion(version)) => target.changed_since(version),
        Ok(ArchiveRequested::NoItem) => no_such_item(),
        Err(error) => target.failed(error),
    }
}

/// Adds or withdraws units.
async fn move_units(
    console: &Console,
    operator: &Operator,
    target: &Target,
    form: &Change,
) -> Response {
    let item = match console.engine.item(&target.id).await {
        Ok(Some(item)) => item,
        Ok(None) => return no_such_item(),
        Err(error) => return target.failed(error),
    };
    let action = target.action;
    let key = form.key.as_deref().map(IdempotencyKey::new);
    let units = match check(action, &item, form.units) {
        Ok(units) => units,
        Err(expected) => return target.refused(StatusCode::BAD_REQUEST, &expected),
    };
    let Some(Ok(key)) = key else {
        let expected = "Expected the key of the form. Load the page again.";
        return target.refused(StatusCode::BAD_REQUEST, expected);
    };
    let (request, now, later) = match action {
        Action::Withdraw => (StockRequest::Withdraw(units), "withdraw", "withdrawing"),
        _ => (StockRequest::Add(units), "add", "adding"),
    };
    let (engine, version) = (&console.engine, Some(form.version));
    match engine
        .change_stock(&target.id, request, &key, version, operator.name())
        .await
    {
        Ok(Ok(stocked)) => target.done(if stocked.settled { now } else { later }),
        Ok(Err(why)) => target.unchanged(why),
        Err(error) => target.failed(error),
    }
}
