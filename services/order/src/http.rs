//! The HTTP API.

mod access;
mod body;
mod items;
mod life;
mod meta;
mod orders;
mod outage;
pub(crate) mod problem;
mod signature;
mod stock;

use std::sync::Arc;

use axum::{
    Router,
    extract::{DefaultBodyLimit, FromRef},
    middleware::map_response,
    response::{IntoResponse, Response},
    routing::{delete, get, patch, post, put},
};
use http::StatusCode;
use metrics_exporter_prometheus::PrometheusHandle;
use tower_http::catch_panic::CatchPanicLayer;
use utoipa::OpenApi;
use utoipa_swagger_ui::SwaggerUi;

use crate::{
    Credentials, Engine, Limits,
    http::{outage::Outage, problem::Problem},
};

pub use signature::PaymentKey;

/// What the handlers need.
#[derive(Clone)]
pub(crate) struct App {
    pub engine: Arc<Engine>,
    pub credentials: Arc<Credentials>,
    /// `None`: no payments are taken in.
    pub payments: Option<PaymentKey>,
    pub metrics: Option<PrometheusHandle>,
    pub outage: Arc<Outage>,
}

/// What the operators' handlers need.
#[derive(Clone)]
pub(crate) struct Operators {
    pub engine: Arc<Engine>,
    pub metrics: Option<PrometheusHandle>,
}

impl FromRef<App> for Operators {
    fn from_ref(app: &App) -> Self {
        Self { engine: Arc::clone(&app.engine), metrics: app.metrics.clone() }
    }
}

/// The API over `engine`.
pub fn router(
    engine: Arc<Engine>,
    credentials: Arc<Credentials>,
    payments: Option<PaymentKey>,
    metrics: Option<PrometheusHandle>,
    limits: &Limits,
) -> Router {
    Router::new()
        .route("/items/{item}/orders", post(orders::place))
        .route("/orders/{order}", get(orders::show).merge(delete(life::cancel)))
        .route("/orders/{order}/payment", post(life::pay))
        .route("/orders/{order}/refund", post(life::refund))
        .route("/items", post(items::create))
        .route("/items/{item}", get(items::show).merge(patch(stock::patch)))
        .route("/items/{item}/stock", post(stock::move_stock).merge(put(stock::set_stock)))
        .route("/items/{item}/journal", get(stock::journal))
        .route("/items/{item}/state", put(items::set_state))
        .route("/items/{item}/audit", get(items::audit))
        .route("/healthz", get(meta::healthz))
        .route("/readyz", get(meta::readyz))
        .route("/metrics", get(meta::metrics))
        .merge(docs())
        .fallback(async || Problem::no_such_path())
        .method_not_allowed_fallback(async || Problem::method_not_allowed())
        .layer(DefaultBodyLimit::max(limits.body_bytes))
        .layer(CatchPanicLayer::custom(|_| Problem::internal().into_response()))
        .with_state(App { engine, credentials, payments, metrics, outage: Arc::default() })
}

/// What operators ask of a process that sells nothing: whether it runs, whether its stores answer, and its metrics.
pub fn operators_router(engine: Arc<Engine>, metrics: Option<PrometheusHandle>) -> Router {
    Router::new()
        .route("/healthz", get(meta::healthz))
        .route("/readyz", get(meta::readyz))
        .route("/metrics", get(meta::metrics))
        .fallback(async || Problem::no_such_path())
        .method_not_allowed_fallback(async || Problem::method_not_allowed())
        .with_state(Operators { engine, metrics })
}

/// The description of the API, for programs and for people.
fn docs() -> Router<App> {
    let pages = SwaggerUi::new("/docs").url("/openapi.json", meta::Api::openapi());
    Router::from(pages).route_layer(map_response(page_or_problem))
}

/// Swagger answers without a problem for a page that it does not have, and for a name that is no text.
async fn page_or_problem(response: Response) -> Response {
    match response.status() {
        StatusCode::NOT_FOUND | StatusCode::BAD_REQUEST => Problem::no_such_path().into_response(),
        _ => response,
    }
}
