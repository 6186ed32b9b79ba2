//! Counts how many waiters a release wakes.
//!
//! A waiter that wakes up sends a message: it tries again, or it acknowledges. A waiter may also
//! send a message without a release, because even waiters that are notified try again at long
//! intervals. Those messages are counted in a window of the same length before the release, and
//! subtracted.

use std::time::Duration;

use anyhow::{Context, Result};
use tokio::{
    sync::mpsc,
    task::JoinSet,
    time::{sleep, timeout},
};

use super::{
    counting::{Counter, total_sent},
    target::{ACQUIRE_TIMEOUT, Target, acquire},
};
use crate::client::Client;

const WAITERS: usize = 8;
const ROUNDS: u32 = 12;
/// Time until all waiters wait again.
const SETTLE_TIME: Duration = Duration::from_millis(60);
/// Long enough for a waiter to wake up, and short compared with retry intervals.
const WINDOW: Duration = Duration::from_millis(20);

/// A waiter, as the measurement sees it.
struct Waiter {
    counters: Vec<Counter>,
    release: mpsc::UnboundedSender<()>,
}

/// Of eight waiters, how many a release wakes. `None`: the lock uses no network.
pub(super) async fn woken(target: &Target<'_>) -> Result<Option<f64>> {
    let (mut tasks, mut waiters) = (JoinSet::new(), Vec::new());
    let (acquired, mut acquisitions) = mpsc::unbounded_channel();
    for number in 0..=WAITERS {
        let Some((client, counters)) = target.counted_client().await? else {
            return Ok(None);
        };
        let (release, released) = mpsc::unbounded_channel();
        tasks.spawn(wait(client, number, acquired.clone(), released));
        waiters.push(Waiter { counters, release });
    }
    let (mut before_release, mut after_release) = (0, 0);
    for _ in 0..ROUNDS {
        let holder = timeout(ACQUIRE_TIMEOUT, acquisitions.recv())
            .await?
            .context("all waiters ended before the measurement did")?;
        sleep(SETTLE_TIME).await;
        let settled = messages(&waiters);
        sleep(WINDOW).await;
        let released = messages(&waiters);
        waiters[holder].release.send(())?;
        sleep(WINDOW).await;
        let woken = messages(&waiters);
        before_release += active(&settled, &released, holder);
        after_release += active(&released, &woken, holder);
    }
    drop(tasks);
    Ok(Some(
        woken_share(before_release, after_release) * WAITERS as f64,
    ))
}

/// Share of the waiters that are active because of the release.
fn woken_share(before_release: usize, after_release: usize) -> f64 {
    let observations = f64::from(ROUNDS) * WAITERS as f64;
    let before = before_release as f64 / observations;
    let after = after_release as f64 / observations;
    // If all waiters are active anyway, nothing can be seen.
    if before < 1.0 {
        ((after - before) / (1.0 - before)).max(0.0)
    } else {
        0.0
    }
}

/// Acquires the lock repeatedly, and releases it on request.
async fn wait(
    client: Box<dyn Client>,
    number: usize,
    acquired: mpsc::UnboundedSender<usize>,
    mut released: mpsc::UnboundedReceiver<()>,
) -> Result<()> {
    loop {
        let held = acquire(client.as_ref(), "woken").await?;
        acquired.send(number)?;
        released.recv().await.context("the measurement has ended")?;
        held.release().await;
        // Does not compete with the waiters that the release has woken.
        sleep(WINDOW + SETTLE_TIME / 2).await;
    }
}

/// Number of messages that each waiter has sent.
fn messages(waiters: &[Waiter]) -> Vec<u64> {
    waiters
        .iter()
        .map(|waiter| total_sent(&waiter.counters))
        .collect()
}

/// Number of waiters that sent a message between two counts.
fn active(before: &[u64], after: &[u64], holder: usize) -> usize {
    before
        .iter()
        .zip(after)
        .enumerate()
        .filter(|(number, (before, after))| *number != holder && before != after)
        .count()
}
