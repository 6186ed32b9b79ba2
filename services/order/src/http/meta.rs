//! Health, readiness, metrics, and the description of the API.

use axum::{
    extract::State,
    response::{IntoResponse, Response},
};
use http::header;
use utoipa::{
    Modify, OpenApi,
    openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme},
};

use super::{
    Operators, Problem, batch, buyers, events, items, life, lists, orders, stock, stripe, webhooks,
};

/// The OpenAPI description, derived from the handlers.
#[derive(OpenApi)]
#[openapi(
    info(title = "Stockade", description = "Sells limited stock to many concurrent buyers without overselling, stranding a unit or losing an acknowledged order."),
    paths(orders::place, batch::place, orders::show, life::pay, life::cancel, life::refund, items::create, items::show, items::set_state, items::audit,
        stock::move_stock, stock::set_stock, stock::patch, stock::archive, stock::journal, buyers::erase,
        lists::items, lists::item_orders, lists::own_orders, lists::refunds_due,
        events::list, stripe::receive, webhooks::create, webhooks::list, webhooks::remove, webhooks::enable, webhooks::test, healthz, readyz, metrics),
    modifiers(&Secured)
)]
pub(crate) struct Api;

struct Secured;

impl Modify for Secured {
    fn modify(&self, openapi: &mut utoipa::openapi::OpenApi) {
        let components = openapi.components.get_or_insert_default();
        let jwt = HttpBuilder::new()
            .scheme(HttpAuthScheme::Bearer)
            .bearer_format("JWT")
            .description(Some("a JWT whose `sub` is the buyer"));
        let token = HttpBuilder::new()
            .scheme(HttpAuthScheme::Bearer)
            .description(Some("the admin token"));
        components.add_security_scheme("buyer", SecurityScheme::Http(jwt.build()));
        components.add_security_scheme("admin", SecurityScheme::Http(token.build()));
    }
}

/// Liveness: the process runs.
#[utoipa::path(get, path = "/healthz", tag = "operators", responses((status = 200, description = "the process runs")))]
pub(crate) async fn healthz() -> &'static str {
    "ok\n"
}

/// Readiness: Redis and the ledger answer, and the scripts are loaded.
#[utoipa::path(get, path = "/readyz", tag = "operators",
    responses((status = 200, description = "the process can sell"), (status = 503, description = "`unavailable`", body = Problem)))]
pub(crate) async fn readyz(State(operators): State<Operators>) -> Result<&'static str, Problem> {
    operators.engine.ready().await?;
    Ok("ready\n")
}

/// Metrics for Prometheus.
#[utoipa::path(get, path = "/metrics", tag = "operators", responses((status = 200, description = "Prometheus text format", body = String)))]
pub(crate) async fn metrics(State(operators): State<Operators>) -> Response {
    let text = match operators.metrics {
        Some(metrics) => crate::metrics::render(metrics).await,
        None => String::new(),
    };
    (
        [(
            header::CONTENT_TYPE,
            "text/plain; version=0.0.4; charset=utf-8",
        )],
        text,
    )
        .into_response()
}
