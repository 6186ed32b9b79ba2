//! The HTTP API.

mod access;
mod api;
mod batch;
mod body;
mod buyers;
mod carts;
mod codes;
mod cors;
mod currency;
mod description;
mod event_reads;
pub(crate) mod events;
mod items;
mod life;
mod lists;
mod meta;
mod orders;
mod outage;
mod outcomes;
mod patterns;
pub(crate) mod problem;
mod problems;
mod protection;
mod public_view;
pub(crate) mod request_id;
mod signature;
mod single;
mod stock;
mod stripe;
mod text;
mod webhooks;
mod words;

use std::{ops::Deref, sync::Arc, time::Duration};

use ::events::{Sender, TargetPolicy};
use axum::{
    Router,
    extract::FromRef,
    middleware::map_response,
    response::{IntoResponse, Response},
    routing::{delete, get, patch, post, put},
};
use http::StatusCode;
use utoipa_swagger_ui::{Config, SwaggerUi};

use crate::{
    Credentials, Engine, Limits,
    http::{
        event_reads::EventReads, lists::cursor::Cursors, orders::OrderMetrics, outage::Outage,
        problem::Problem, public_view::PublicViews,
    },
    metrics::{Exporter, Page},
    rate::BuyerRates,
};

pub(crate) use api::Answer;
pub use api::Api;
pub use cors::{CorsOrigins, InvalidOrigins, with_cors};
pub(crate) use patterns::ROUTE_PATTERNS;
pub use signature::{PaymentKey, PaymentKeys};

/// State of the handlers. Each request copies it several times.
#[derive(Clone)]
pub(crate) struct App(Arc<Shared>);

/// State that all copies of an [`App`] share.
pub(crate) struct Shared {
    pub engine: Arc<Engine>,
    pub credentials: Arc<Credentials>,
    /// `None`: payments are refused.
    pub payments: PaymentKeys,
    pub metrics: Option<Page>,
    pub orders: OrderMetrics,
    pub outage: Outage,
    pub public_views: PublicViews,
    pub rates: BuyerRates,
    pub cursors: Cursors,
    pub body_bytes: usize,
    /// Which addresses webhooks may have.
    pub targets: TargetPolicy,
    pub webhooks_max: u32,
    pub event_reads: EventReads,
    /// Sends test events. `None`: this system has no TLS.
    pub sender: Option<Sender>,
}

impl Deref for App {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.0
    }
}

/// State of the operators' handlers.
#[derive(Clone)]
pub(crate) struct Operators {
    pub engine: Arc<Engine>,
    pub metrics: Option<Page>,
}

impl FromRef<App> for Operators {
    fn from_ref(app: &App) -> Self {
        Self {
            engine: Arc::clone(&app.engine),
            metrics: app.metrics.clone(),
        }
    }
}

/// All routes over `engine`: the API, and the operators' pages.
pub fn router(
    engine: Arc<Engine>,
    credentials: Arc<Credentials>,
    payments: PaymentKeys,
    metrics: Option<Exporter>,
    limits: &Limits,
) -> Api {
    let app = App::new(engine, credentials, payments, metrics, limits);
    let pages = api().route("/metrics", get(meta::metrics)).merge(docs());
    Api::new(with_problems(pages).with_state(app.clone()), app)
}

/// The API without the operators' pages, for a listener that buyers reach.
pub fn api_router(
    engine: Arc<Engine>,
    credentials: Arc<Credentials>,
    payments: PaymentKeys,
    limits: &Limits,
) -> Api {
    let app = App::new(engine, credentials, payments, None, limits);
    Api::new(with_problems(api()).with_state(app.clone()), app)
}

/// Less than a request may take.
const WEBHOOK_TEST_TIMEOUT: Duration = Duration::from_secs(5);

impl App {
    fn new(
        engine: Arc<Engine>,
        credentials: Arc<Credentials>,
        payments: PaymentKeys,
        metrics: Option<Exporter>,
        limits: &Limits,
    ) -> Self {
        Self(Arc::new(Shared {
            cursors: Cursors::new(credentials.cursor_secret()),
            engine,
            credentials,
            payments,
            metrics: metrics.map(Page::new),
            orders: OrderMetrics::default(),
            outage: Outage::default(),
            public_views: PublicViews::default(),
            rates: BuyerRates::new(&limits.rates),
            body_bytes: limits.body_bytes,
            targets: limits.webhook_targets,
            webhooks_max: limits.webhooks,
            event_reads: EventReads::default(),
            sender: Sender::new(
                limits.webhook_targets,
                WEBHOOK_TEST_TIMEOUT,
                limits.webhook_authority.as_deref(),
            )
            .ok(),
        }))
    }
}

fn api() -> Router<App> {
    // No layers: axum would clone each of them for every request. Bodies are limited where they are
    // read, and panics are caught in `serve`.
    Router::new()
        .route(
            "/v1/items/{item}/orders",
            post(orders::place).merge(get(lists::item_orders)),
        )
        .route("/v1/items/{item}/orders:batch", post(batch::place))
        .route("/v1/orders", get(lists::own_orders))
        .route("/v1/refunds-due", get(lists::refunds_due))
        .route("/v1/refunds-due/{id}/done", post(lists::refund_done))
        .route(
            "/v1/orders/{order}",
            get(orders::show).merge(delete(life::cancel)),
        )
        .route("/v1/orders/{order}/hold", post(life::extend))
        .route("/v1/orders/{order}/payment", post(life::pay))
        .route("/v1/orders/{order}/refund", post(life::refund))
        .route("/v1/carts", post(carts::place).merge(get(lists::own_carts)))
        .route(
            "/v1/carts/{cart}",
            get(carts::show).merge(delete(carts::cancel)),
        )
        .route("/v1/carts/{cart}/hold", post(carts::extend))
        .route("/v1/carts/{cart}/payment", post(carts::pay))
        .route("/v1/carts/{cart}/refund", post(carts::refund))
        .route(
            "/v1/carts/{cart}/lines/{order}/refund",
            post(carts::refund_line),
        )
        .route("/v1/items", post(items::create).merge(get(lists::items)))
        .route("/v1/items:batch", get(items::several::show_several))
        .route(
            "/v1/items/{item}",
            get(items::show)
                .merge(patch(stock::patch))
                .merge(delete(stock::drop_item)),
        )
        .route(
            "/v1/items/{item}/stock",
            post(stock::move_stock).merge(put(stock::set_stock)),
        )
        .route("/v1/items/{item}/journal", get(lists::journal))
        .route("/v1/items/{item}/state", put(items::set_state))
        .route("/v1/items/{item}/archive", post(stock::archive))
        .route("/v1/items/{item}/audit", get(items::audit::show))
        // Where buyers call, because the problems that they get refer to it.
        .route(problems::PATH, get(problems::page))
        .route("/v1/journal", get(lists::service_journal))
        .route("/v1/events", get(events::list))
        .route(
            "/v1/webhooks",
            get(webhooks::list).merge(post(webhooks::create)),
        )
        .route("/v1/webhooks/stripe", post(stripe::receive))
        .route("/v1/webhooks/{webhook}", delete(webhooks::remove))
        .route("/v1/webhooks/{webhook}/enable", post(webhooks::enable))
        .route("/v1/webhooks/{webhook}/test", post(webhooks::test))
        .route("/v1/buyers/{buyer}/erase", post(buyers::erase))
        .route("/healthz", get(meta::healthz))
        .route("/readyz", get(meta::readyz))
}

/// Answers with a problem body on other paths, and on other methods of these.
fn with_problems<S: Clone + Send + Sync + 'static>(routes: Router<S>) -> Router<S> {
    routes
        .fallback(async || Problem::no_such_path())
        .method_not_allowed_fallback(async || Problem::method_not_allowed())
}

/// Routes for operators: liveness, readiness and metrics, and with `api_docs` the pages of the API.
pub fn operators_router(engine: Arc<Engine>, metrics: Option<Exporter>, api_docs: bool) -> Router {
    let mut pages = Router::new()
        .route("/healthz", get(meta::healthz))
        .route("/readyz", get(meta::readyz))
        .route("/metrics", get(meta::metrics));
    if api_docs {
        pages = pages.merge(docs());
    }
    with_problems(pages).with_state(Operators {
        engine,
        metrics: metrics.map(Page::new),
    })
}

/// The OpenAPI description and its pages.
fn docs<S: Clone + Send + Sync + 'static>() -> Router<S> {
    // Given the document, it would render it for each request.
    let pages = SwaggerUi::new("/docs").config(Config::from("/openapi.json"));
    Router::from(pages)
        .route("/openapi.json", get(meta::openapi))
        .route_layer(map_response(page_or_problem))
        .route_layer(map_response(protection::of_docs))
}

/// Swagger UI does not answer with a problem body for a missing page or a path that is not UTF-8.
async fn page_or_problem(response: Response) -> Response {
    match response.status() {
        StatusCode::NOT_FOUND | StatusCode::BAD_REQUEST => Problem::no_such_path().into_response(),
        _ => response,
    }
}
