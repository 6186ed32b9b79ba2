//! The HTTP API.

mod access;
mod body;
mod buyers;
mod items;
mod life;
mod meta;
mod orders;
mod outage;
pub(crate) mod problem;
mod public_view;
mod signature;
mod stock;

use std::{ops::Deref, sync::Arc};

use axum::{
    Router,
    extract::FromRef,
    middleware::map_response,
    response::{IntoResponse, Response},
    routing::{delete, get, patch, post, put},
};
use http::StatusCode;
use metrics_exporter_prometheus::PrometheusHandle;
use utoipa::OpenApi;
use utoipa_swagger_ui::SwaggerUi;

use crate::{
    Credentials, Engine, Limits,
    http::{orders::OrderMetrics, outage::Outage, problem::Problem, public_view::PublicViews},
    rate::BuyerRates,
};

pub use signature::PaymentKey;

/// State of the handlers. Each request copies it several times.
#[derive(Clone)]
pub(crate) struct App(Arc<Shared>);

/// State that all copies of an [`App`] share.
pub(crate) struct Shared {
    pub engine: Arc<Engine>,
    pub credentials: Arc<Credentials>,
    /// `None`: payments are refused.
    pub payments: Option<PaymentKey>,
    pub metrics: Option<PrometheusHandle>,
    pub orders: OrderMetrics,
    pub outage: Outage,
    pub public_views: PublicViews,
    pub rates: BuyerRates,
    pub body_bytes: usize,
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
    pub metrics: Option<PrometheusHandle>,
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
    payments: Option<PaymentKey>,
    metrics: Option<PrometheusHandle>,
    limits: &Limits,
) -> Router {
    let app = App::new(engine, credentials, payments, metrics, limits);
    let pages = api().route("/metrics", get(meta::metrics)).merge(docs());
    with_problems(pages).with_state(app)
}

/// The API without the operators' pages, for a listener that buyers reach.
pub fn api_router(
    engine: Arc<Engine>,
    credentials: Arc<Credentials>,
    payments: Option<PaymentKey>,
    limits: &Limits,
) -> Router {
    with_problems(api()).with_state(App::new(engine, credentials, payments, None, limits))
}

impl App {
    fn new(
        engine: Arc<Engine>,
        credentials: Arc<Credentials>,
        payments: Option<PaymentKey>,
        metrics: Option<PrometheusHandle>,
        limits: &Limits,
    ) -> Self {
        Self(Arc::new(Shared {
            engine,
            credentials,
            payments,
            metrics,
            orders: OrderMetrics::default(),
            outage: Outage::default(),
            public_views: PublicViews::default(),
            rates: BuyerRates::new(&limits.rates),
            body_bytes: limits.body_bytes,
        }))
    }
}

fn api() -> Router<App> {
    // No layers: axum would clone each of them for every request. Bodies are limited where they are
    // read, and panics are caught in `serve`.
    Router::new()
        .route("/v1/items/{item}/orders", post(orders::place))
        .route(
            "/v1/orders/{order}",
            get(orders::show).merge(delete(life::cancel)),
        )
        .route("/v1/orders/{order}/payment", post(life::pay))
        .route("/v1/orders/{order}/refund", post(life::refund))
        .route("/v1/items", post(items::create))
        .route(
            "/v1/items/{item}",
            get(items::show).merge(patch(stock::patch)),
        )
        .route(
            "/v1/items/{item}/stock",
            post(stock::move_stock).merge(put(stock::set_stock)),
        )
        .route("/v1/items/{item}/journal", get(stock::journal))
        .route("/v1/items/{item}/state", put(items::set_state))
        .route("/v1/items/{item}/archive", post(stock::archive))
        .route("/v1/items/{item}/audit", get(items::audit))
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
pub fn operators_router(
    engine: Arc<Engine>,
    metrics: Option<PrometheusHandle>,
    api_docs: bool,
) -> Router {
    let mut pages = Router::new()
        .route("/healthz", get(meta::healthz))
        .route("/readyz", get(meta::readyz))
        .route("/metrics", get(meta::metrics));
    if api_docs {
        pages = pages.merge(docs());
    }
    with_problems(pages).with_state(Operators { engine, metrics })
}

/// The OpenAPI description and its pages.
fn docs<S: Clone + Send + Sync + 'static>() -> Router<S> {
    let pages = SwaggerUi::new("/docs").url("/openapi.json", meta::Api::openapi());
    Router::from(pages).route_layer(map_response(page_or_problem))
}

/// Swagger UI does not answer with a problem body for a missing page or a path that is not UTF-8.
async fn page_or_problem(response: Response) -> Response {
    match response.status() {
        StatusCode::NOT_FOUND | StatusCode::BAD_REQUEST => Problem::no_such_path().into_response(),
        _ => response,
    }
}
