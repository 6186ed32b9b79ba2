//! Removes events that are too old, in steps, so that no transaction is long, and with pauses, which
//! belong to the orders. What is too old is told by the earliest of three clocks: this process's, the
//! ledger's, which has dated the events, and that of another store.

use std::time::Instant;

use crate::{Publisher, PublisherError};

/// Events that one transaction removes.
const STEP: usize = 500;
/// After each transaction but the last, the pause is so many times as long as it took.
const PAUSE_FACTOR: u32 = 2;

/// Removes old events until the publisher stops.
pub(crate) async fn run(publisher: &Publisher) {
    while !publisher
        .is_stopped_after(publisher.settings.removal_interval)
        .await
    {
        match remove(publisher).await {
            Ok(()) => publisher.removing.recovered(),
            Err(error) => publisher.removing.failed(&error),
        }
    }
}

async fn remove(publisher: &Publisher) -> Result<(), PublisherError> {
    let Ok(before) = publisher
        .earliest_time()
        .await?
        .checked_sub(publisher.settings.keep)
    else {
        return Ok(());
    };
    loop {
        let began = Instant::now();
        let removed = publisher.ledger.remove_events(before, STEP).await?;
        metrics::counter!("stockade_events_removed_total").increment(removed as u64);
        let pause = began.elapsed() * PAUSE_FACTOR;
        if removed < STEP || publisher.is_stopped_after(pause).await {
            return Ok(());
        }
    }
}
