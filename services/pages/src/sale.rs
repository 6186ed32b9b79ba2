//! The sale page of `stockade up`: the page of a shop, with a buyer who is made up and a payment
//! that costs nothing.

mod page;
mod shop;

use std::{sync::Arc, time::Duration};

use axum::{
    Form, Router,
    extract::{FromRequest, Path, Query, Request, State},
    response::{IntoResponse, Redirect, Response},
    routing::{get, post},
};
use domain::{BuyerId, ItemId};
use http::{HeaderMap, StatusCode, header};
use moka::future::Cache;
use order::{Engine, engine::ItemView};
use rand::distr::{Alphanumeric, SampleString};
use serde::Deserialize;
use tokio_util::sync::CancellationToken;

use crate::{
    cookies::{self, Cookie},
    layout::{failure, protected},
    live::{self, Parts, Update},
    origin,
};

pub use shop::Shop;

/// Name of the cookie with the visitor's name.
const VISITOR: &str = "stockade-visitor";
/// Names of visitors begin with this, so that no cookie names a buyer of the shop.
const VISITOR_PREFIX: &str = "visitor-";
const VISITOR_CHARS: usize = 24;
const VISITOR_SECONDS: u64 = 86_400;

/// How old the shown level may be. Concurrent viewers share one read.
const LEVEL_LIFETIME: Duration = Duration::from_millis(500);
/// Items whose level is kept.
const LEVELS_MAX: u64 = 1000;

#[derive(Clone)]
struct Sale {
    engine: Arc<Engine>,
    shop: Arc<Shop>,
    levels: Cache<ItemId, Option<Arc<ItemView>>>,
    stop: CancellationToken,
}

/// The sale pages of all items. `/` leads to that of `first`. They give units away, so they belong
/// beside stores that are only tried out.
pub fn sale_router(
    engine: Arc<Engine>,
    shop: Shop,
    first: &ItemId,
    stop: CancellationToken,
) -> Router {
    let home = format!("/sale/{first}");
    let sale = Sale {
        engine,
        shop: Arc::new(shop),
        levels: Cache::builder()
            .max_capacity(LEVELS_MAX)
            .time_to_live(LEVEL_LIFETIME)
            .build(),
        stop,
    };
    let routes = Router::new()
        .route("/", get(async move || Redirect::to(&home)))
        .route("/sale/{item}", get(show))
        .route("/sale/{item}/orders", post(buy))
        .route("/sale/{item}/events", get(events));
    protected(routes).with_state(sale)
}

impl Sale {
    /// The item as it was a moment ago.
    async fn level(&self, item: &str) -> Result<Arc<ItemView>, Missing> {
        let id = ItemId::new(item).map_err(|_| Missing::Item)?;
        let read = async {
            let view = self.engine.view_item(&id).await?;
            Ok::<_, order::engine::EngineError>(view.map(Arc::new))
        };
        match self.levels.try_get_with(id.clone(), read).await {
            Ok(Some(view)) => Ok(view),
            Ok(None) => Err(Missing::Item),
            Err(error) => {
                tracing::warn!(%error, item = %id, "sale page: the item could not be read");
                Err(Missing::Store)
            }
        }
    }
}

/// Why there is no page.
enum Missing {
    Item,
    Store,
}

impl IntoResponse for Missing {
    fn into_response(self) -> Response {
        let (status, text) = match self {
            Self::Item => (StatusCode::NOT_FOUND, "There is no such item."),
            Self::Store => (
                StatusCode::SERVICE_UNAVAILABLE,
                "A store does not answer. Try again in a moment.",
            ),
        };
        failure(status, text, ("/", "To the sale"))
    }
}

/// The name of the visitor, if the request has one that this page made.
fn visitor(headers: &HeaderMap) -> Option<BuyerId> {
    let value = cookies::read(headers, VISITOR)?;
    let random = value.strip_prefix(VISITOR_PREFIX)?;
    let made_here =
        random.len() == VISITOR_CHARS && random.bytes().all(|byte| byte.is_ascii_alphanumeric());
    BuyerId::new(value).ok().filter(|_| made_here)
}

fn new_visitor() -> Option<BuyerId> {
    let random = Alphanumeric.sample_string(&mut rand::rng(), VISITOR_CHARS);
    BuyerId::new(format!("{VISITOR_PREFIX}{random}")).ok()
}

/// Gives the visitor the name back.
fn remember(response: &mut Response, headers: &HeaderMap, visitor: &BuyerId) {
    let cookie = Cookie {
        name: VISITOR,
        value: visitor.as_str(),
        path: "/sale",
        seconds: VISITOR_SECONDS,
        secure: origin::is_https(headers),
    };
    if let Some(value) = cookie.header() {
        response.headers_mut().insert(header::SET_COOKIE, value);
    }
}

#[derive(Deserialize)]
struct Outcome {
    /// Code of what the latest order led to.
    outcome: Option<String>,
}

async fn show(
    State(sale): State<Sale>,
    Path(item): Path<String>,
    Query(Outcome { outcome }): Query<Outcome>,
    headers: HeaderMap,
) -> Result<Response, Missing> {
    let view = sale.level(&item).await?;
    let orders = match visitor(&headers) {
        Some(visitor) => sale.shop.orders(&visitor, &view.item.id).await,
        None => Vec::new(),
    };
    let mut response = page::sale_page(&view, outcome.as_deref(), &orders).into_response();
    if let Some(visitor) = visitor(&headers).or_else(new_visitor) {
        remember(&mut response, &headers, &visitor);
    }
    Ok(response)
}

#[derive(Deserialize)]
struct OrderForm {
    /// Identifies the order: a form that is sent twice orders once.
    key: String,
}

async fn buy(
    State(sale): State<Sale>,
    Path(item): Path<String>,
    headers: HeaderMap,
    request: Request,
) -> Result<Response, Missing> {
    // Before the body: a form that is refused by its headers is not read.
    if !origin::is_own(&headers) {
        let text = "The order was not sent by this page.";
        return Ok(failure(StatusCode::FORBIDDEN, text, ("/", "To the sale")));
    }
    let Form(form) = match Form::<OrderForm>::from_request(request, &sale).await {
        Ok(form) => form,
        Err(refused) => return Ok(refused.into_response()),
    };
    let view = sale.level(&item).await?;
    let buyer = visitor(&headers)
        .or_else(new_visitor)
        .ok_or(Missing::Store)?;
    let outcome = sale.shop.buy(&buyer, &view.item, &form.key).await;
    // The page that follows shows the level after this order.
    sale.levels.invalidate(&view.item.id).await;
    let page = format!("/sale/{}?outcome={outcome}", view.item.id);
    let mut response = Redirect::to(&page).into_response();
    remember(&mut response, &headers, &buyer);
    Ok(response)
}

async fn events(State(sale): State<Sale>, Path(item): Path<String>) -> Result<Response, Missing> {
    sale.level(&item).await?;
    let stop = sale.stop.clone();
    Ok(live::stream(stop, move || {
        let (sale, item) = (sale.clone(), item.clone());
        async move {
            match sale.level(&item).await {
                Ok(view) => Update::Parts(
                    Parts::default()
                        .with("level", page::level(&view))
                        .with("when", page::when(&view)),
                ),
                Err(Missing::Store) => Update::Unreadable,
                Err(Missing::Item) => Update::End,
            }
        }
    }))
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderValue, header};

    use super::{new_visitor, visitor};

    #[test]
    fn a_cookie_names_no_buyer_but_a_visitor() {
        let named = |value: &str| {
            let mut headers = HeaderMap::new();
            let cookie = format!("stockade-visitor={value}");
            headers.insert(header::COOKIE, HeaderValue::try_from(cookie).unwrap());
            visitor(&headers)
        };
        let made = new_visitor().unwrap();
        assert_eq!(named(made.as_str()), Some(made));
        for other in ["ann", "visitor-1", "visitor-aaaaaaaaaaaaaaaaaaaaaaa."] {
            assert_eq!(named(other), None, "{other}");
        }
    }
}
