//! The pages that say why there is no other.

use std::sync::Arc;

use axum::response::Response;
use http::StatusCode;
use order::engine::EngineError;

use super::HOME;
use crate::layout::failure;

/// The page that says that a store did not answer.
pub(super) fn unreadable(error: &Arc<EngineError>) -> Response {
    tracing::warn!(%error, "console: a store did not answer");
    let text = "A store does not answer. Try again in a moment.";
    failure(StatusCode::SERVICE_UNAVAILABLE, text, (HOME, "All items"))
}

/// The page that says that the item of the address does not exist.
pub(super) fn no_such_item() -> Response {
    failure(
        StatusCode::NOT_FOUND,
        "There is no such item.",
        (HOME, "All items"),
    )
}
