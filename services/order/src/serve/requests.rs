//! Durations of requests, by route and status.
//!
//! The routes are those of the API's description. A label is the pattern of a route and never a
//! path, which a client chooses. Each pair of route and status has a handle that is made once, so a
//! request costs a lookup and two clock reads.

use std::{
    sync::{LazyLock, OnceLock},
    time::Duration,
};

use http::StatusCode;
use metrics::Histogram;

use crate::http::ROUTE_PATTERNS;

/// Label of a path that is no route of the API.
const OTHER: &str = "other";

/// Statuses that have a handle of their own.
const STATUSES: [u16; 22] = [
    200, 201, 202, 204, 304, 307, 400, 401, 403, 404, 405, 408, 409, 410, 412, 413, 415, 422, 428,
    429, 500, 503,
];

/// The routes, and the durations of their requests.
pub(super) struct Requests {
    matcher: matchit::Router<usize>,
    routes: Vec<Route>,
}

struct Route {
    pattern: &'static str,
    durations: [OnceLock<Histogram>; STATUSES.len()],
}

impl Requests {
    /// Those of this process. Every listener shares them.
    pub(super) fn shared() -> &'static Self {
        static REQUESTS: LazyLock<Requests> = LazyLock::new(|| Requests::new(&ROUTE_PATTERNS));
        &REQUESTS
    }

    fn new(patterns: &[&'static str]) -> Self {
        let (mut matcher, mut routes) = (matchit::Router::new(), vec![Route::new(OTHER)]);
        for &pattern in patterns {
            // A pattern that cannot be matched falls under the others.
            if matcher.insert(pattern, routes.len()).is_ok() {
                routes.push(Route::new(pattern));
            }
        }
        Self { matcher, routes }
    }

    /// The route of a path, for [`Requests::record`].
    pub(super) fn route(&self, path: &str) -> usize {
        self.matcher.at(path).map_or(0, |found| *found.value)
    }

    /// Records the duration of a request.
    pub(super) fn record(&self, route: usize, status: StatusCode, duration: Duration) {
        let route = &self.routes[route];
        let known = STATUSES.iter().position(|known| *known == status.as_u16());
        let seconds = duration.as_secs_f64();
        match known {
            Some(index) => route.durations[index]
                .get_or_init(|| route.histogram(status))
                .record(seconds),
            None => route.histogram(status).record(seconds),
        }
    }
}

impl Route {
    fn new(pattern: &'static str) -> Self {
        Self {
            pattern,
            durations: [const { OnceLock::new() }; STATUSES.len()],
        }
    }

    fn histogram(&self, status: StatusCode) -> Histogram {
        metrics::histogram!(
            "http_server_request_duration_seconds",
            "http_route" => self.pattern,
            "http_response_status_code" => status.as_str().to_owned()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::Requests;

    #[test]
    fn a_path_is_shown_by_the_pattern_of_its_route() {
        let requests = Requests::shared();
        let table = [
            ("/v1/items/vase/orders", "/v1/items/{item}/orders"),
            ("/v1/items/vase", "/v1/items/{item}"),
            ("/v1/items/", "other"),
            ("/v1/items", "/v1/items"),
            ("/healthz", "/healthz"),
            ("/v1/items/vase/orders/more", "other"),
            ("/etc/passwd", "other"),
            ("", "other"),
        ];
        for (path, pattern) in table {
            let route = &requests.routes[requests.route(path)];
            assert_eq!(route.pattern, pattern, "{path}");
        }
    }
}
