//! The HTTP API.

mod access;
mod body;
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

/// The routes of the API over `engine`.
pub fn router(
    engine: Arc<Engine>,
    credentials: Arc<Credentials>,
    payments: Option<PaymentKey>,
    metrics: Option<PrometheusHandle>,
    limits: &Limits,
) -> Router {
    let (orders, outage, body_bytes) = (
        OrderMetrics::default(),
        Outage::default(),
        limits.body_bytes,
    );
    let app = App(Arc::new(Shared {
        engine,
        credentials,
        payments,
        metrics,
        orders,
        outage,
        public_views: PublicViews::default(),
        rates: BuyerRates::new(&limits.rates),
        body_bytes,
    }));
    // No layers: axum would clone each of them for every request. Bodies are limited where they are
    // read, and panics are caught in `serve`.
    Router::new()
        .route("/items/{item}/orders", post(orders::place))
        .route(
            "/orders/{order}",
            get(orders::show).merge(delete(life::cancel)),
        )
        .route("/orders/{order}/payment", post(life::pay))
        .route("/orders/{order}/refund", post(life::refund))
        .route("/items", post(items::create))
        .route("/items/{item}", get(items::show).merge(patch(stock::patch)))
        .route(
            "/items/{item}/stock",
            post(stock::move_stock).merge(put(stock::set_stock)),
        )
        .route("/items/{item}/journal", get(stock::journal))
        .route("/items/{item}/state", put(items::set_state))
        .route("/items/{item}/audit", get(items::audit))
        .route("/healthz", get(meta::healthz))
        .route("/readyz", get(meta::readyz))
        .route("/metrics", get(meta::metrics))
        .merge(docs())
        .fallback(async || Problem::no_such_path())
        .method_not_allowed_fallback(async || Problem::method_not_allowed())
        .with_state(app)
}

/// Routes of a process that does not sell: liveness, readiness and metrics.
pub fn operators_router(engine: Arc<Engine>, metrics: Option<PrometheusHandle>) -> Router {
    Router::new()
        .route("/healthz", get(meta::healthz))
        .route("/readyz", get(meta::readyz))
        .route("/metrics", get(meta::metrics))
        .fallback(async || Problem::no_such_path())
        .method_not_allowed_fallback(async || Problem::method_not_allowed())
        .with_state(Operators { engine, metrics })
}

/// The OpenAPI description and its pages.
fn docs() -> Router<App> {
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
