//! What calls of the API's description have in common, so that no handler repeats it.

use std::collections::BTreeMap;

use utoipa::{
    Modify, ToSchema,
    openapi::{
        Content, ObjectBuilder, OpenApi, Ref, RefOr, Response, ResponseBuilder,
        path::{Operation, PathItem},
        schema::Type,
    },
};

use super::Problem;

const JSON: &str = "application/json";
const PROBLEM_JSON: &str = "application/problem+json";

/// Problems that any call can have, and what they mean.
const OF_EVERY_CALL: [(&str, &str); 3] = [
    ("429", "`too_many_requests`: nothing was changed"),
    ("500", "`internal`: a defect of the service"),
    (
        "503",
        "`unavailable`, `outcome_unknown`: repeat the request",
    ),
];
/// Problems of calls with a body.
const OF_BODIES: [(&str, &str); 3] = [
    ("400", "`invalid_request`"),
    ("408", "`request_timeout`: the body did not arrive in time"),
    ("413", "`payload_too_large`"),
];

/// Adds the problems that calls share, the media types of problems and lists, and that of a patch.
pub(super) struct Shared;

impl Modify for Shared {
    fn modify(&self, api: &mut OpenApi) {
        for (path, item) in &mut api.paths.paths {
            let is_api = path.starts_with("/v1/");
            for operation in operations(item) {
                describe(operation, is_api);
            }
        }
    }
}

fn operations(item: &mut PathItem) -> impl Iterator<Item = &mut Operation> {
    let PathItem {
        get,
        put,
        post,
        delete,
        patch,
        ..
    } = item;
    [get, put, post, delete, patch].into_iter().flatten()
}

fn describe(operation: &mut Operation, is_api: bool) {
    let id = operation.operation_id.clone().unwrap_or_default();
    let has_body = operation.request_body.is_some();
    let shared = OF_EVERY_CALL.iter().filter(|_| is_api);
    for (status, meaning) in shared.chain(OF_BODIES.iter().filter(|_| has_body)) {
        let known = &mut operation.responses.responses;
        let known = known
            .entry((*status).to_owned())
            .or_insert_with(|| RefOr::T(problem(meaning)));
        if let RefOr::T(known) = known {
            add_codes(&mut known.description, meaning);
        }
    }
    for (status, response) in &mut operation.responses.responses {
        if let RefOr::T(response) = response {
            name_media_types(&id, status, response);
        }
    }
    if let (true, Some(RefOr::T(body))) = (id == "changeItem", &mut operation.request_body)
        && let Some(content) = body.content.get(JSON).cloned()
    {
        let merge_patch = "application/merge-patch+json".to_owned();
        body.content.insert(merge_patch, content);
    }
}

/// The codes in a description, with the quotes around them.
fn codes(meaning: &str) -> impl Iterator<Item = String> {
    let quoted = meaning.split('`').skip(1).step_by(2);
    quoted.map(|code| format!("`{code}`"))
}

/// A handler describes what its codes mean there; the ones that it does not name follow.
fn add_codes(description: &mut String, meaning: &str) {
    for code in codes(meaning) {
        if !description.contains(&code) {
            description.push_str("; ");
            description.push_str(&code);
        }
    }
}

/// The problems that an extractor answers with, by status. Each call that has it has these.
pub(super) fn problems(of: &[(&str, &str)]) -> BTreeMap<String, RefOr<Response>> {
    let of = of.iter();
    of.map(|(status, meaning)| ((*status).to_owned(), RefOr::T(problem(meaning))))
        .collect()
}

fn problem(meaning: &str) -> Response {
    let content = Content::new(Some(Ref::from_schema_name(Problem::name())));
    let response = ResponseBuilder::new().description(meaning);
    response.content(PROBLEM_JSON, content).build()
}

fn name_media_types(id: &str, status: &str, response: &mut Response) {
    if status.starts_with(['4', '5']) {
        if let Some(content) = response.content.shift_remove(JSON) {
            response.content.insert(PROBLEM_JSON.into(), content);
        }
        return;
    }
    let others: &[&str] = match id {
        "listItems" | "listItemOrders" | "listOwnOrders" | "listRefundsDue" => {
            &["text/csv", "application/jsonl"]
        }
        "listJournal" | "listServiceJournal" | "listOwnCarts" => &["application/jsonl"],
        "listEvents" => &["text/event-stream"],
        "getHealth" | "getReadiness" => &["text/plain"],
        _ => &[],
    };
    for media_type in others {
        let text = ObjectBuilder::new().schema_type(Type::String).build();
        let content = RefOr::T(Content::new(Some(text)));
        response.content.insert((*media_type).into(), content);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;
    use utoipa::OpenApi;

    use super::super::meta::Api;

    /// The descriptions of a call's responses.
    fn described(api: &Value, method: &str, path: &str, status: &str) -> String {
        let response = &api["paths"][path][method]["responses"][status];
        let text = response["description"].as_str();
        text.unwrap_or_else(|| panic!("{method} {path} has no {status}"))
            .to_owned()
    }

    #[test]
    fn every_call_has_the_codes_that_any_call_can_return() {
        let api = serde_json::to_value(Api::openapi()).unwrap();
        for (path, methods) in api["paths"].as_object().unwrap() {
            for (method, call) in methods.as_object().unwrap() {
                if !path.starts_with("/v1/") {
                    continue;
                }
                let mut expected = vec![
                    ("429", "too_many_requests"),
                    ("500", "internal"),
                    ("503", "unavailable"),
                    ("503", "outcome_unknown"),
                ];
                if call["requestBody"].is_object() {
                    expected.push(("400", "invalid_request"));
                    expected.push(("408", "request_timeout"));
                    expected.push(("413", "payload_too_large"));
                }
                if call["security"].is_array() {
                    expected.push(("401", "unauthorized"));
                }
                for (status, code) in expected {
                    let text = described(&api, method, path, status);
                    assert!(
                        text.contains(&format!("`{code}`")),
                        "{method} {path}: {status} {code}"
                    );
                }
            }
        }
    }

    /// Method and path of a call, and its statuses with their codes.
    type Codes<'a> = (&'a str, &'a str, &'a [(&'a str, &'a str)]);

    /// The codes that only some calls have, for the calls of carts.
    #[test]
    fn every_call_of_a_cart_has_all_codes_of_its_own() {
        let api = serde_json::to_value(Api::openapi()).unwrap();
        let cart = "/v1/carts/{cart}";
        let [hold, payment, refund] =
            ["hold", "payment", "refund"].map(|of| format!("{cart}/{of}"));
        let table: [Codes<'_>; 7] = [
            ("get", "/v1/carts", &[("400", "invalid_request")]),
            (
                "post",
                "/v1/carts",
                &[
                    ("403", "forbidden"),
                    ("404", "item_not_found"),
                    ("409", "sold_out"),
                    ("409", "buyer_limit_reached"),
                    ("409", "not_open"),
                    ("409", "cart_timed_out"),
                    ("422", "idempotency_key_reused"),
                ],
            ),
            (
                "get",
                cart,
                &[("403", "forbidden"), ("404", "cart_not_found")],
            ),
            (
                "delete",
                cart,
                &[
                    ("403", "forbidden"),
                    ("404", "cart_not_found"),
                    ("409", "cart_not_cancellable"),
                ],
            ),
            (
                "post",
                &hold,
                &[
                    ("403", "forbidden"),
                    ("404", "cart_not_found"),
                    ("409", "cart_not_extendable"),
                ],
            ),
            (
                "post",
                &payment,
                &[
                    ("400", "invalid_signature"),
                    ("404", "cart_not_found"),
                    ("409", "cart_not_payable"),
                    ("409", "already_paid"),
                    ("409", "payment_already_used"),
                    ("409", "payment_returned"),
                    ("422", "amount_mismatch"),
                    ("422", "currency_mismatch"),
                    ("422", "cart_mismatch"),
                    ("503", "payments_not_configured"),
                ],
            ),
            (
                "post",
                &refund,
                &[
                    ("403", "forbidden"),
                    ("404", "cart_not_found"),
                    ("409", "cart_not_refundable"),
                ],
            ),
        ];
        for (method, path, codes) in table {
            for (status, code) in codes {
                let text = described(&api, method, path, status);
                assert!(
                    text.contains(&format!("`{code}`")),
                    "{method} {path}: {status} {code}"
                );
            }
        }
    }
}
