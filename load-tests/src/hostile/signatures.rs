//! Payments of no one, with signatures that are long to check.

use std::{
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use uuid::Uuid;

use super::{Field, answer, pace};

/// Bytes of a signature header: one that the service reads, and one above its limit for a head.
const SIGNATURE_BYTES: [usize; 2] = [6 * 1024, 32 * 1024];

/// Reports payments with as many wrong tags as fit into a header. No tag may be worth a computation
/// of its own.
pub(super) async fn sign_at_length(field: Arc<Field>) {
    let tag = format!(",v1={}", "0".repeat(64));
    let tags = SIGNATURE_BYTES.map(|bytes| tag.repeat(bytes / tag.len()));
    let body = "x".repeat(8 * 1024);
    let mut pace = pace(&field);
    for tags in tags.iter().cycle() {
        pace.tick().await;
        field.count();
        let url = format!("{}/v1/orders/{}/payment", field.host, Uuid::new_v4());
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let request = field
            .http
            .post(url)
            .header("Stockade-Signature", format!("t={}{tags}", now.as_secs()))
            .body(body.clone());
        field.note("huge signatures", answer(request).await);
    }
}
