//! What all readers of events of a process may cost the ledger together.
//!
//! Hundreds of readers may walk through old events, or wait for new ones. Two things keep the
//! ledger for the orders:
//!
//! * a few reads at a time, each of which rests for as long as it took before the next one begins;
//! * readers at the end share one look at whether there is anything new.

use std::time::Duration;

use ledger::{EventCursor, Events, Ledger, LedgerError};
use tokio::{
    sync::{Mutex, Semaphore},
    time::{Instant, sleep},
};

/// Reads at a time.
const READS_MAX: usize = 2;

/// The longest rest of a read.
const REST_MAX: Duration = Duration::from_secs(1);

/// How old the end that readers share may be.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// The budget of all readers.
pub(crate) struct EventReads {
    turns: Semaphore,
    /// The end of the events, and when it was looked up.
    end: Mutex<Option<(Instant, EventCursor)>>,
}

impl Default for EventReads {
    fn default() -> Self {
        Self {
            turns: Semaphore::new(READS_MAX),
            end: Mutex::default(),
        }
    }
}

impl EventReads {
    /// The next events behind the cursor, when it is the reader's turn.
    pub(super) async fn read(
        &self,
        ledger: &dyn Ledger,
        after: EventCursor,
        at_most: usize,
    ) -> Result<Events, LedgerError> {
        self.in_turn(ledger.events(after, at_most)).await
    }

    /// The end of the events of now, when it is the reader's turn.
    pub(super) async fn end_of_now(&self, ledger: &dyn Ledger) -> Result<EventCursor, LedgerError> {
        self.in_turn(ledger.end_of_events()).await
    }

    async fn in_turn<T>(&self, read: impl Future<Output = T>) -> T {
        // It is never closed.
        let _turn = self.turns.acquire().await.ok();
        let begun = Instant::now();
        let read = read.await;
        sleep(begun.elapsed().min(REST_MAX)).await;
        read
    }

    /// The end of the events, which is a moment old. While it stays, so does what every reader has
    /// seen.
    pub(super) async fn end(&self, ledger: &dyn Ledger) -> Result<EventCursor, LedgerError> {
        let mut end = self.end.lock().await;
        if let Some((_, end)) = end.filter(|(seen, _)| seen.elapsed() < POLL_INTERVAL) {
            return Ok(end);
        }
        let now = Instant::now();
        let newest = ledger.end_of_events().await?;
        *end = Some((now, newest));
        Ok(newest)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::future::join_all;

    use super::{EventReads, READS_MAX};

    #[tokio::test]
    async fn of_many_readers_few_read_at_a_time_and_all_have_their_turn() {
        let (reads, running) = (EventReads::default(), AtomicUsize::new(0));
        let most = AtomicUsize::new(0);
        let readers = (0..300).map(|_| {
            reads.in_turn(async {
                most.fetch_max(1 + running.fetch_add(1, Ordering::SeqCst), Ordering::SeqCst);
                tokio::task::yield_now().await;
                running.fetch_sub(1, Ordering::SeqCst);
            })
        });
        assert_eq!(join_all(readers).await.len(), 300);
        assert_eq!(most.into_inner(), READS_MAX);
    }
}
