//! Every answer of every test is one that `docs/openapi.json` describes: its status, and the code
//! of a problem.

use std::sync::LazyLock;

use reqwest::Method;
use serde_json::Value;

static API: LazyLock<Value> =
    LazyLock::new(|| serde_json::from_str(include_str!("../../../../docs/openapi.json")).unwrap());

/// The description of a call. `None`: the API has no such path, or the path no such method.
fn call(method: &Method, path: &str) -> Option<(&'static str, &'static Value)> {
    let paths = API["paths"].as_object().unwrap();
    let parameters = |template: &str| template.matches('{').count();
    let mut templates: Vec<_> = paths.keys().filter(|known| is_path(known, path)).collect();
    templates.sort_by_key(|template| parameters(template));
    let template = templates.first()?;
    let call = &paths[*template][method.as_str().to_lowercase()];
    call.is_object().then_some((template.as_str(), call))
}

fn is_path(template: &str, path: &str) -> bool {
    let is_part = |(template, part): (&str, &str)| {
        template == part || (template.starts_with('{') && template.ends_with('}'))
    };
    template.split('/').count() == path.split('/').count()
        && template.split('/').zip(path.split('/')).all(is_part)
}

/// Asserts that the API describes this answer. What is refused before it is read as a request, such
/// as a head that is too long, is no part of the API and no problem.
pub fn assert_described(method: &Method, path: &str, status: u16, body: &Value) {
    let Some((template, call)) = call(method, path) else {
        return;
    };
    if status >= 400 && body["code"].is_null() {
        return;
    }
    let response = &call["responses"][status.to_string()];
    let known = response["description"].as_str();
    let known = known.unwrap_or_else(|| panic!("{method} {template} has no {status}: {body}"));
    // A cart that has failed shows a code, and is no problem.
    let code = body["code"].as_str().filter(|_| status >= 400);
    assert!(
        code.is_none_or(|code| known.contains(&format!("`{code}`"))),
        "{method} {template}: {status} {code:?} is not described"
    );
}

#[test]
fn a_path_is_the_call_with_the_fewest_parameters() {
    let template = |method: Method, path: &str| call(&method, path).map(|(template, _)| template);
    let table = [
        (
            Method::POST,
            "/v1/webhooks/stripe",
            Some("/v1/webhooks/stripe"),
        ),
        (
            Method::DELETE,
            "/v1/webhooks/7",
            Some("/v1/webhooks/{webhook}"),
        ),
        (
            Method::POST,
            "/v1/items/a/orders:batch",
            Some("/v1/items/{item}/orders:batch"),
        ),
        (Method::GET, "/v1/carts/7", Some("/v1/carts/{cart}")),
        (Method::PUT, "/v1/carts/7", None),
        (Method::GET, "/v1/nothing", None),
    ];
    for (method, path, expected) in table {
        assert_eq!(template(method, path), expected, "{path}");
    }
}
