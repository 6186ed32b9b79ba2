//! Removes events that are too old, in steps, so that no transaction is long. What is too old is
//! told by the earliest of three clocks: this process's, the ledger's, which has dated the events,
//! and that of another store.

use crate::{Publisher, PublisherError};

const STEP: usize = 1000;

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
    while !publisher.stop.is_cancelled() {
        let removed = publisher.ledger.remove_events(before, STEP).await?;
        metrics::counter!("stockade_events_removed_total").increment(removed as u64);
        if removed < STEP {
            break;
        }
    }
    Ok(())
}
