//! Which pages of other origins may call the API from a browser.
//!
//! Nothing is allowed by default: a shop whose pages call through its own backend needs none of it.
//! A page cannot send a buyer's token by itself, so credentials (cookies) are not allowed either.

use std::{str::FromStr, time::Duration};

use axum::Router;
use http::{HeaderName, HeaderValue, Method, Uri, header};
use tower_http::cors::{AllowOrigin, CorsLayer};

use super::Api;

/// How long a browser may remember the answer to its preflight.
const MAX_AGE: Duration = Duration::from_secs(600);

/// The origins whose pages may call.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CorsOrigins {
    any: bool,
    listed: Vec<HeaderValue>,
}

/// A text that is no list of origins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected {}", CorsOrigins::EXPECTED)]
pub struct InvalidOrigins;

impl CorsOrigins {
    /// What their text may be.
    pub const EXPECTED: &str =
        "origins as a browser writes them, comma-separated: https://shop.example; or *";
}

impl FromStr for CorsOrigins {
    type Err = InvalidOrigins;

    fn from_str(text: &str) -> Result<Self, InvalidOrigins> {
        if text.trim() == "*" {
            return Ok(Self {
                any: true,
                listed: Vec::new(),
            });
        }
        let names = text
            .split(',')
            .map(str::trim)
            .filter(|name| !name.is_empty());
        Ok(Self {
            any: false,
            listed: names.map(origin).collect::<Result<_, _>>()?,
        })
    }
}

/// A browser compares origins byte by byte: scheme and host in lower case, a port only if it is not
/// the usual one, no path.
fn origin(name: &str) -> Result<HeaderValue, InvalidOrigins> {
    let uri: Uri = name.parse().map_err(|_| InvalidOrigins)?;
    let (Some(scheme @ ("http" | "https")), Some(authority)) = (uri.scheme_str(), uri.authority())
    else {
        return Err(InvalidOrigins);
    };
    let is_exact =
        name == format!("{scheme}://{authority}") && !authority.as_str().contains(['@', '*']);
    if !is_exact || name.bytes().any(|byte| byte.is_ascii_uppercase()) {
        return Err(InvalidOrigins);
    }
    HeaderValue::try_from(name).map_err(|_| InvalidOrigins)
}

/// The routes, which answer preflights and name the allowed origin. Without origins they stay as they
/// are: a layer costs something for every request.
///
/// With origins every request goes through the router, which has the layer.
pub fn with_cors(api: Api, origins: &CorsOrigins) -> Api {
    let origin = match (origins.any, origins.listed.is_empty()) {
        (true, _) => AllowOrigin::any(),
        (false, true) => return api,
        (false, false) => AllowOrigin::list(origins.listed.clone()),
    };
    let layer = CorsLayer::new()
        .allow_origin(origin)
        .allow_methods([Method::GET, Method::POST, Method::DELETE])
        .allow_headers([
            header::AUTHORIZATION,
            header::CONTENT_TYPE,
            HeaderName::from_static("idempotency-key"),
            HeaderName::from_static("prefer"),
            HeaderName::from_static("x-request-id"),
        ])
        .expose_headers([
            header::LOCATION,
            header::RETRY_AFTER,
            HeaderName::from_static("idempotent-replayed"),
            HeaderName::from_static("preference-applied"),
            HeaderName::from_static("ratelimit"),
            HeaderName::from_static("ratelimit-policy"),
            HeaderName::from_static("x-request-id"),
        ])
        .max_age(MAX_AGE);
    Router::from(api).layer(layer).into()
}

#[cfg(test)]
mod tests {
    use super::CorsOrigins;

    #[test]
    fn only_origins_as_browsers_write_them_are_accepted() {
        for text in [
            "",
            "*",
            "https://shop.example",
            "http://a:8080, https://b.example",
        ] {
            assert!(text.parse::<CorsOrigins>().is_ok(), "{text}");
        }
        for text in [
            "shop.example",
            "https://shop.example/",
            "https://shop.example/path",
            "https://Shop.example",
            "https://*",
            "ftp://shop.example",
            "https://ann@shop.example",
            "*,https://shop.example",
            "null",
        ] {
            assert!(text.parse::<CorsOrigins>().is_err(), "{text}");
        }
    }
}
