//! The patterns of the routes, by which requests are measured.

/// Every path of the API's description. To make the description takes many times as long as a
/// request, and the first request of a process would wait for it.
pub(crate) const ROUTE_PATTERNS: [&str; 34] = [
    "/healthz",
    "/metrics",
    "/readyz",
    "/v1/buyers/{buyer}/erase",
    "/v1/carts",
    "/v1/carts/{cart}",
    "/v1/carts/{cart}/hold",
    "/v1/carts/{cart}/lines/{order}/refund",
    "/v1/carts/{cart}/payment",
    "/v1/carts/{cart}/refund",
    "/v1/events",
    "/v1/items",
    "/v1/items/{item}",
    "/v1/items/{item}/archive",
    "/v1/items/{item}/audit",
    "/v1/items/{item}/journal",
    "/v1/items/{item}/orders",
    "/v1/items/{item}/orders:batch",
    "/v1/items/{item}/state",
    "/v1/items/{item}/stock",
    "/v1/items:batch",
    "/v1/journal",
    "/v1/orders",
    "/v1/orders/{order}",
    "/v1/orders/{order}/hold",
    "/v1/orders/{order}/payment",
    "/v1/orders/{order}/refund",
    "/v1/refunds-due",
    "/v1/refunds-due/{id}/done",
    "/v1/webhooks",
    "/v1/webhooks/stripe",
    "/v1/webhooks/{webhook}",
    "/v1/webhooks/{webhook}/enable",
    "/v1/webhooks/{webhook}/test",
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use utoipa::OpenApi;

    use super::ROUTE_PATTERNS;
    use crate::http::meta::Api;

    #[test]
    fn they_are_the_paths_of_the_description() {
        let described: BTreeSet<String> = Api::openapi().paths.paths.into_keys().collect();
        let known: BTreeSet<String> = ROUTE_PATTERNS.map(str::to_owned).into();
        assert_eq!(known, described);
    }
}
