//! Looks at the stores once a second, so that a process knows whether it could place an order.

use std::{sync::Arc, time::Duration};

use tokio_util::sync::CancellationToken;

use crate::Engine;

/// Time between two looks.
const PERIOD: Duration = Duration::from_secs(1);

/// Looks at the stores until `stop`. Without it a process is never ready.
pub async fn watch_stores(engine: Arc<Engine>, stop: CancellationToken) {
    let looking = async {
        loop {
            engine.look_at_stores().await;
            tokio::time::sleep(PERIOD).await;
        }
    };
    tokio::select! {
        () = stop.cancelled() => {}
        () = looking => {}
    }
}
