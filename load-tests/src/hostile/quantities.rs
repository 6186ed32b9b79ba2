//! Orders of more units than a buyer may have.

use std::sync::Arc;

use uuid::Uuid;

use super::{Field, answer, pace};

/// Far above the limit of any run.
const QUANTITY: u32 = 9_000;

/// Orders too many units again and again. No units may be moved for them.
pub(super) async fn ask_for_too_many(field: Arc<Field>, number: usize) {
    let token = field.token(&format!("hostile-{number}"));
    let url = format!("{}/v1/items/{}/orders", field.host, field.item);
    let mut pace = pace(&field);
    loop {
        pace.tick().await;
        field.count();
        let request = field
            .http
            .post(&url)
            .bearer_auth(token.as_str())
            .header("Idempotency-Key", Uuid::new_v4().to_string())
            .json(&serde_json::json!({ "quantity": QUANTITY }));
        field.note("quantities above the limit", answer(request).await);
    }
}
