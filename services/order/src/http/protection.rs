//! The headers that protect the pages of this crate in a browser.
//!
//! A page runs no script and takes no style but its own, and no other page shows it in a frame. A
//! browser takes each answer for what its `Content-Type` says.

use axum::response::Response;
use base64::{Engine, prelude::BASE64_STANDARD};
use http::{HeaderName, HeaderValue, header};
use ring::digest::{SHA256, digest};

/// Of every answer that a browser may show.
pub(super) const NOSNIFF: (HeaderName, HeaderValue) = (
    header::X_CONTENT_TYPE_OPTIONS,
    HeaderValue::from_static("nosniff"),
);

/// The description of the API. Its scripts and styles are files, but for one style in the logo of
/// Swagger UI, whose hash a test in a browser holds against the vendored version.
const DOCS: &str = "default-src 'none'; script-src 'self'; \
     style-src 'self' 'sha256-RL3ie0nH+Lzz2YNqQN83mnU0J1ot4QL7b99vMdIX99w='; img-src 'self' data:; \
     connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Protects a page of the description of the API, and the files that it loads.
pub(super) async fn of_docs(response: Response) -> Response {
    protected(response, HeaderValue::from_static(DOCS))
}

/// The policy of a page without scripts that has this style.
pub(super) fn with_style(style: &str) -> HeaderValue {
    let hash = BASE64_STANDARD.encode(digest(&SHA256, style.as_bytes()));
    let policy = format!(
        "default-src 'none'; style-src 'sha256-{hash}'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    );
    // Base64 has only characters that a header may have.
    HeaderValue::try_from(policy).unwrap_or(HeaderValue::from_static("default-src 'none'"))
}

/// Adds the headers to a response, with this policy.
pub(super) fn protected(mut response: Response, policy: HeaderValue) -> Response {
    // Other sites learn nothing of the page that leads to them.
    let referrer = HeaderValue::from_static("same-origin");
    response.headers_mut().extend([
        NOSNIFF,
        (header::REFERRER_POLICY, referrer),
        (header::CONTENT_SECURITY_POLICY, policy),
    ]);
    response
}
