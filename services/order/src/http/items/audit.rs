//! The audit of an item: without a walk over its orders, or with one.

use audit::AuditReport;
use axum::{
    Json,
    extract::{RawQuery, State},
};
use domain::ItemId;
use jiff::Timestamp;
use ledger::WithoutPause;
use url::form_urlencoded;

use crate::{
    engine::{Engine, EngineError},
    http::{
        App, Problem,
        access::{AdminWith, Name, Read},
        items::item_id,
        problem::FieldError,
    },
};

/// Proves that no unit was oversold, stranded or lost.
///
/// It compares one snapshot of each segment with the counters of the ledger, and answers at once,
/// however many orders the item has. `orders_checked` says when the counters were last compared
/// with the orders themselves. With `full=true` this call compares them: it reads every order of
/// the item, a million or two a second.
#[utoipa::path(get, path = "/v1/items/{item}/audit", operation_id = "auditItem", tag = "admins",
    params(("item" = String, Path, description = "the item"),
        ("full" = Option<bool>, Query, description = "`true`: reads every order of the item and compares it with the counters; it may take long. `false` (default): answers at once")),
    responses(AdminWith<Read>, (status = 200, description = "the conservation invariant for each segment and for the item", body = AuditReport), (status = 400, description = "`invalid_request`", body = Problem), (status = 404, description = "`item_not_found`", body = Problem)),
    security(("admin" = [])))]
pub(crate) async fn show(
    State(app): State<App>,
    _: AdminWith<Read>,
    Name(item): Name,
    RawQuery(query): RawQuery,
) -> Result<Json<AuditReport>, Problem> {
    let is_full = is_full(&query.unwrap_or_default())?;
    let (id, engine) = (item_id(&item)?, &app.engine);
    let report = if is_full {
        full(engine, &id).await?
    } else {
        audit::audit(&engine.stock, &*engine.ledger, &id)
            .await
            .map_err(EngineError::from)?
    };
    report.map(Json).ok_or_else(Problem::item_not_found)
}

/// A misspelt parameter must not read as an audit of all orders.
fn is_full(query: &str) -> Result<bool, Problem> {
    let (mut is_full, mut errors) = (None, Vec::new());
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        let expected = match (&*name, &*value, is_full) {
            ("full", "true" | "false", None) => {
                is_full = Some(value == "true");
                continue;
            }
            ("full", _, None) => "expected true or false",
            ("full", _, Some(_)) => "expected once",
            _ => "expected the parameter full",
        };
        errors.push(FieldError::new(&name, expected));
    }
    if errors.is_empty() {
        Ok(is_full.unwrap_or(false))
    } else {
        Err(Problem::invalid_fields(errors))
    }
}

async fn full(engine: &Engine, id: &ItemId) -> Result<Option<AuditReport>, EngineError> {
    let (ledger, at) = (&*engine.ledger, Timestamp::now());
    let audited = audit::full_audit(&engine.stock, ledger, id, at, &WithoutPause).await?;
    let Some(audited) = audited else {
        return Ok(None);
    };
    if let Err(error) = audited.store(ledger, id).await {
        // The report is true all the same.
        tracing::warn!(item = %id, %error, "failed to note the result of a full audit");
    }
    Ok(Some(audited.report))
}

#[cfg(test)]
mod tests {
    use super::is_full;

    #[test]
    fn only_full_is_a_parameter() {
        assert!(!is_full("").unwrap() && !is_full("full=false").unwrap());
        assert!(is_full("full=true").unwrap());
        for wrong in [
            "full",
            "full=1",
            "Full=true",
            "full=true&full=true",
            "fully=true",
        ] {
            assert!(is_full(wrong).is_err(), "{wrong}");
        }
    }
}
