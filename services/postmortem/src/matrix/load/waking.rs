//! How many waiters a release wakes.
//!
//! A waiter that is woken says something: it asks, or it takes note. So does one that asks by itself now and then, which whoever can be woken
//! does rarely; how many do so when nothing is released is counted as often, and taken off.

use std::time::Duration;

use anyhow::{Context, Result};
use tokio::{
    sync::mpsc,
    task::JoinSet,
    time::{sleep, timeout},
};

use super::{
    Client, Loaded, PATIENCE,
    counting::{Counter, sent},
    take,
};

const WAITERS: usize = 8;
const ROUNDS: u32 = 12;
/// Until everybody waits again.
const SETTLED: Duration = Duration::from_millis(60);
/// Long enough for whoever is woken, short for whoever asks again.
const WINDOW: Duration = Duration::from_millis(20);

/// Of eight waiters, how many a release wakes. None without a network.
pub(super) async fn woken(loaded: &Loaded<'_>) -> Result<Option<f64>> {
    let (mut tasks, mut all) = (JoinSet::new(), Vec::new());
    let (has_it, mut had_by) = mpsc::unbounded_channel();
    for number in 0..=WAITERS {
        let Some((client, counters)) = loaded.counted().await? else {
            return Ok(None);
        };
        let (release, released) = mpsc::unbounded_channel();
        tasks.spawn(wait(client, number, has_it.clone(), released));
        all.push((counters, release));
    }
    let (mut quiet, mut active) = (0, 0);
    for _ in 0..ROUNDS {
        let holder = timeout(PATIENCE, had_by.recv())
            .await?
            .context("nobody wants it")?;
        sleep(SETTLED).await;
        let before = counts(&all);
        sleep(WINDOW).await;
        let between = counts(&all);
        all[holder].1.send(())?;
        sleep(WINDOW).await;
        let after = counts(&all);
        quiet += spoke(&before, &between, holder);
        active += spoke(&between, &after, holder);
    }
    drop(tasks);
    let most = f64::from(ROUNDS) * WAITERS as f64;
    let (quiet, active) = (quiet as f64 / most, active as f64 / most);
    // Whoever would have spoken by itself cannot be seen to be woken.
    let woken = if quiet < 1.0 {
        (active - quiet) / (1.0 - quiet)
    } else {
        0.0
    };
    Ok(Some(woken.max(0.0) * WAITERS as f64))
}

/// Takes it again and again, and gives it back when it is told to.
async fn wait(
    client: Box<dyn Client>,
    number: usize,
    has_it: mpsc::UnboundedSender<usize>,
    mut released: mpsc::UnboundedReceiver<()>,
) -> Result<()> {
    loop {
        let held = take(client.as_ref(), "woken").await?;
        has_it.send(number)?;
        released.recv().await.context("it is over")?;
        held.give_back().await;
        // It does not compete with those that it has woken.
        sleep(WINDOW + SETTLED / 2).await;
    }
}

fn counts<T>(all: &[(Vec<Counter>, T)]) -> Vec<u64> {
    all.iter().map(|(counters, _)| sent(counters)).collect()
}

fn spoke(before: &[u64], after: &[u64], holder: usize) -> usize {
    before
        .iter()
        .zip(after)
        .enumerate()
        .filter(|(number, (before, after))| *number != holder && before != after)
        .count()
}
