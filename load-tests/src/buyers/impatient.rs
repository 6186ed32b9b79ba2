//! A client whose timeout is shorter than the service sometimes takes: it repeats the request, and gives up on each but the last.

use std::time::Duration;

use super::{Kind, STORM};
use crate::visit::{Step, Storm, Visit};

/// Timeouts from 1 ms on, so that some requests are answered in time, some are not, and some are cut in the middle.
const PATIENCE_MS_MOST: u64 = 20;

/// A client with a short timeout.
pub const IMPATIENT: Kind = Kind {
    name: "impatient",
    buy: |visit| Box::pin(buy(visit)),
};

async fn buy(visit: &mut Visit<'_>) -> Step<()> {
    let patience = Duration::from_millis(1 + (visit.dice() >> 32) % PATIENCE_MS_MOST);
    visit
        .storm(
            STORM,
            1,
            Storm {
                rounds: 3,
                copies: 1,
                patience,
            },
        )
        .await
}
