//! What all calls of the API's description have in common, so that no handler repeats it.

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
const OF_EVERY_CALL: [(&str, &str); 2] = [
    ("429", "`too_many_requests`: nothing was changed"),
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
        let responses = &mut operation.responses.responses;
        responses
            .entry((*status).to_owned())
            .or_insert_with(|| RefOr::T(problem(meaning)));
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
        "listItems" | "listItemOrders" | "listOwnOrders" | "listRefundsDue" | "listJournal" => {
            &["text/csv", "application/jsonl"]
        }
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
