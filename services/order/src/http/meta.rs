//! Health, readiness, metrics, and the description of the API.

use std::sync::LazyLock;

use axum::{
    extract::State,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use http::{HeaderValue, header};
use utoipa::{
    Modify, OpenApi,
    openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme},
};

use super::{
    Operators, Problem, batch, buyers, carts, description::Shared, events, items, life, lists,
    orders, protection::NOSNIFF, stock, stripe, webhooks,
};

/// The OpenAPI description, derived from the handlers.
#[derive(OpenApi)]
#[openapi(
    info(title = "Stockade", description = "Sells limited stock to many concurrent buyers without overselling, stranding a unit or losing an acknowledged order."),
    paths(orders::place, batch::place, orders::show, life::extend, life::pay, life::cancel, life::refund, carts::place, carts::show, carts::extend, carts::pay, carts::cancel, carts::refund, carts::refund_line, items::create, items::show, items::several::show_several, items::set_state, items::audit::show,
        stock::move_stock, stock::set_stock, stock::patch, stock::archive, stock::drop_item, buyers::erase,
        lists::items, lists::item_orders, lists::own_orders, lists::own_carts, lists::refunds_due, lists::refund_done, lists::journal, lists::service_journal,
        events::list, stripe::receive, webhooks::create, webhooks::list, webhooks::remove, webhooks::enable, webhooks::test, healthz, readyz, metrics),
    tags((name = "buyers", description = "What buyers call: items and their own orders. A shop's backend may call for them."),
        (name = "admins", description = "What operators and the shop's backend call, each with the scope that the call names."),
        (name = "payments", description = "What payment providers call. Their signature stands for a token."),
        (name = "events", description = "What has happened, for the shop: as a list, a stream, and by webhooks."),
        (name = "operators", description = "What load balancers and Prometheus call.")),
    servers((url = "/", description = "This service.")),
    modifiers(&Secured, &Shared)
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
#[utoipa::path(get, path = "/healthz", operation_id = "getHealth", tag = "operators", responses((status = 200, description = "the process runs")))]
pub(crate) async fn healthz() -> &'static str {
    "ok\n"
}

/// Readiness: every Redis master and the ledger would write an order. Asking calls no store.
#[utoipa::path(get, path = "/readyz", operation_id = "getReadiness", tag = "operators",
    responses((status = 200, description = "the process can sell"), (status = 503, description = "`unavailable`: the detail names each store that takes no orders, and its reason", body = Problem)))]
pub(crate) async fn readyz(State(operators): State<Operators>) -> Result<&'static str, Problem> {
    operators.engine.ready()?;
    Ok("ready\n")
}

/// Metrics for Prometheus. They are rendered once a second at most.
#[utoipa::path(get, path = "/metrics", operation_id = "getMetrics", tag = "operators", responses((status = 200, description = "Prometheus text format", body = String)))]
pub(crate) async fn metrics(State(operators): State<Operators>) -> Response {
    let text = match operators.metrics {
        Some(page) => page.text().await,
        None => Bytes::new(),
    };
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    ([(header::CONTENT_TYPE, kind), NOSNIFF], text).into_response()
}

/// The description of this API as JSON. It is rendered once: a request for it has a few bytes, and may come
/// from anyone where the operators' pages are at the buyers' address.
pub(crate) async fn openapi() -> Response {
    static TEXT: LazyLock<Bytes> =
        LazyLock::new(|| Api::openapi().to_json().unwrap_or_default().into());
    let kind = HeaderValue::from_static("application/json");
    ([(header::CONTENT_TYPE, kind)], Bytes::clone(&TEXT)).into_response()
}

/// What a file of the repository has, which comes from this code. With `STOCKADE_WRITE_OPENAPI=1` this
/// text is written to it first.
#[cfg(test)]
pub(super) fn written(file: &str, text: &str) -> String {
    use std::{env, fs, path::Path};

    let file = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(file);
    if env::var("STOCKADE_WRITE_OPENAPI").is_ok_and(|write| write == "1") {
        fs::write(&file, text).unwrap();
    }
    fs::read_to_string(&file).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use utoipa::OpenApi;

    use super::{Api, written};

    /// The same text as `docs/openapi.json`. With `STOCKADE_WRITE_OPENAPI=1` the test writes the file
    /// first (`make openapi`).
    #[test]
    fn the_file_in_docs_is_the_description_of_this_code() {
        let text = Api::openapi().to_pretty_json().unwrap() + "\n";
        assert!(
            written("docs/openapi.json", &text) == text,
            "docs/openapi.json is old: run `make openapi`"
        );
    }

    #[test]
    fn every_call_has_an_id_of_its_own_and_a_tag_that_is_described() {
        let api = serde_json::to_value(Api::openapi()).unwrap();
        let described: BTreeSet<_> = api["tags"]
            .as_array()
            .unwrap()
            .iter()
            .map(|tag| &tag["name"])
            .map(ToString::to_string)
            .collect();
        let mut ids = BTreeSet::new();
        for (path, methods) in api["paths"].as_object().unwrap() {
            for (method, call) in methods.as_object().unwrap() {
                let id = call["operationId"].as_str().unwrap();
                assert!(ids.insert(id.to_owned()), "{method} {path}: {id} again");
                for tag in call["tags"].as_array().unwrap() {
                    assert!(
                        described.contains(&tag.to_string()),
                        "{method} {path}: {tag}"
                    );
                }
            }
        }
    }
}
