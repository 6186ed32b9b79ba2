//! The HTTP API.

mod access;
mod body;
mod items;
mod meta;
mod orders;
pub(crate) mod problem;

use std::sync::Arc;

use axum::{
    Router,
    extract::DefaultBodyLimit,
    routing::{get, post, put},
};
use metrics_exporter_prometheus::PrometheusHandle;
use tower_http::catch_panic::CatchPanicLayer;
use utoipa::OpenApi;
use utoipa_swagger_ui::SwaggerUi;

use crate::{Credentials, Engine, Limits, http::problem::Problem};

/// What the handlers need.
#[derive(Clone)]
pub(crate) struct App {
    pub engine: Arc<Engine>,
    pub credentials: Arc<Credentials>,
    pub metrics: Option<PrometheusHandle>,
}

/// The API over `engine`.
pub fn router(engine: Arc<Engine>, credentials: Arc<Credentials>, metrics: Option<PrometheusHandle>, limits: &Limits) -> Router {
    Router::new()
        .route("/items/{item}/orders", post(orders::place))
        .route("/orders/{order}", get(orders::show))
        .route("/items", post(items::create))
        .route("/items/{item}", get(items::show))
        .route("/items/{item}/state", put(items::set_state))
        .route("/items/{item}/audit", get(items::audit))
        .route("/healthz", get(meta::healthz))
        .route("/readyz", get(meta::readyz))
        .route("/metrics", get(meta::metrics))
        .fallback(async || Problem::no_such_path())
        .method_not_allowed_fallback(async || Problem::method_not_allowed())
        .layer(DefaultBodyLimit::max(limits.body_bytes))
        .layer(CatchPanicLayer::custom(|_| axum::response::IntoResponse::into_response(Problem::internal())))
        .with_state(App { engine, credentials, metrics })
        .merge(SwaggerUi::new("/docs").url("/openapi.json", meta::Api::openapi()))
}
