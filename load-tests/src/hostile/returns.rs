//! Units that return to a sold-out item all the time.

use std::sync::Arc;

use client::{Client, NewOrder, RetryPolicy};

use super::{Field, pace};

/// Orders a unit of an item that has too few, and cancels it at once, each time as another buyer. A
/// unit that returns must not make the service look at all buyers who were refused.
pub(super) async fn order_and_cancel(field: Arc<Field>, number: usize) {
    let Ok(client) = Client::new(&field.host) else {
        return;
    };
    let client = client
        .with_http(field.http.clone())
        .with_retry(RetryPolicy::never());
    let mut pace = pace(&field);
    for session in 0_u64.. {
        pace.tick().await;
        let token = field.token(&format!("returns-{number}-{session}"));
        let buyer = client.buyer(token);
        field.count();
        let answer = match buyer.place(&NewOrder::new(&field.scarce_item, 1)).await {
            Ok(placed) => {
                field.count();
                match buyer.cancel(placed.order.id).await {
                    Ok(_) => "returned".to_owned(),
                    Err(error) => status(&error),
                }
            }
            Err(error) => status(&error),
        };
        field.note("returns to a sold-out item", answer);
    }
}

fn status(error: &client::Error) -> String {
    error.problem().map_or_else(
        || "connection closed".into(),
        |problem| problem.status.to_string(),
    )
}
