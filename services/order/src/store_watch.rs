//! Looks at the stores once a second, so that a process knows whether it could place an order.

use std::{sync::Arc, time::Duration};

use tokio::time::{Interval, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use crate::Engine;

/// Time between two looks.
const PERIOD: Duration = Duration::from_secs(1);

/// Looks at the stores until `stop`. Without it a process is never ready. A store that is slow
/// delays no look at the others.
pub async fn watch_stores(engine: Arc<Engine>, stop: CancellationToken) {
    let redis = async {
        let mut ticks = ticks();
        loop {
            ticks.tick().await;
            engine.look_at_redis().await;
        }
    };
    let ledger = async {
        let mut ticks = ticks();
        loop {
            ticks.tick().await;
            engine.look_at_ledger().await;
        }
    };
    tokio::select! {
        () = stop.cancelled() => {}
        () = redis => {}
        () = ledger => {}
    }
}

/// A look that took longer than a period is followed by the next one at once, and then by one each
/// period.
fn ticks() -> Interval {
    let mut ticks = interval(PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}
