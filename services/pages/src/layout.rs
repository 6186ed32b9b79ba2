//! The frame of every page, and the headers that protect it.

use std::sync::LazyLock;

use axum::{
    Router,
    extract::DefaultBodyLimit,
    middleware::map_response,
    response::{Html, IntoResponse, Response},
};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use http::{HeaderName, HeaderValue, StatusCode, header};
use maud::{DOCTYPE, Markup, PreEscaped, html};
use sha2::{Digest, Sha256};

const STYLE: &str = include_str!("assets/style.css");
const SCRIPT: &str = include_str!("assets/live.js");

/// Largest form.
const FORM_BYTES_MAX: usize = 8 * 1024;

/// Nothing runs but the style and the script of this file, whatever a title contains.
static POLICY: LazyLock<String> = LazyLock::new(|| {
    let hash = |text: &str| format!("'sha256-{}'", BASE64_STANDARD.encode(Sha256::digest(text)));
    format!(
        "default-src 'none'; style-src {}; script-src {}; connect-src 'self'; img-src data:; \
         form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
        hash(STYLE),
        hash(SCRIPT)
    )
});

/// A page whose live parts come from `events`.
pub(crate) fn page(title: &str, events: Option<&str>, body: &Markup) -> Html<String> {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                // Otherwise browsers ask for /favicon.ico.
                link rel="icon" href="data:,";
                title { (title) " - Stockade" }
                style { (PreEscaped(STYLE)) }
            }
            body data-events=[events] {
                (body)
                @if events.is_some() {
                    (crate::live::state())
                    script { (PreEscaped(SCRIPT)) }
                }
            }
        }
    };
    Html(page.into_string())
}

/// A page that says why a request failed.
pub(crate) fn failure(status: StatusCode, text: &str, back: (&str, &str)) -> Response {
    let body = html! {
        main {
            h1 { (status.canonical_reason().unwrap_or("Error")) }
            p role="alert" { (text) }
            p { a href=(back.0) { (back.1) } }
        }
    };
    (status, page("Error", None, &body)).into_response()
}

/// Adds the headers to all responses of these routes, and bounds their forms.
pub(crate) fn protected<S: Clone + Send + Sync + 'static>(routes: Router<S>) -> Router<S> {
    routes
        .layer(DefaultBodyLimit::max(FORM_BYTES_MAX))
        .layer(map_response(async |mut response: Response| {
            let headers = response.headers_mut();
            for (name, value) in protection() {
                headers.insert(name, value);
            }
            response
        }))
}

fn protection() -> impl Iterator<Item = (HeaderName, HeaderValue)> {
    let policy = HeaderValue::from_str(&POLICY).ok();
    let policy = policy.map(|policy| (header::CONTENT_SECURITY_POLICY, policy));
    let fixed = [
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        // Other sites learn nothing. A stricter policy would hide the origin of our own forms.
        (header::REFERRER_POLICY, "same-origin"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    fixed
        .map(|(name, value)| (name, HeaderValue::from_static(value)))
        .into_iter()
        .chain(policy)
}
