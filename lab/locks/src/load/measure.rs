//! Latency, throughput and number of messages.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::Result;
use tokio::{task::JoinSet, time::sleep};

use super::{
    counting::total_sent,
    figures::{LoadFigures, Timings},
    target::{Target, acquire},
};
use crate::client::Client;

/// How long one lock is measured before the next one has its turn.
const SLICE: Duration = Duration::from_millis(500);
const COMPETITORS: usize = 16;
/// Lock names that one client uses in turn. With a single name, the last requests of one release
/// could delay the next acquisition.
const NAMES: usize = 64;
const WARM_UP_ACQUISITIONS: usize = 64;
const COUNTED_ACQUISITIONS: u32 = 100;
/// Keeps the last responses of one acquisition apart from the next one.
const COUNTED_INTERVAL: Duration = Duration::from_millis(2);

/// Measures one client without competitors.
pub(super) async fn alone(
    targets: &[Target<'_>],
    duration: Duration,
    figures: &mut [LoadFigures],
) -> Result<()> {
    for target in targets {
        acquire_repeatedly(target.client.as_ref(), SLICE / 2, &mut Timings::default()).await?;
    }
    let slice = SLICE.min(duration);
    for _ in 0..duration.div_duration_f64(slice).ceil() as u32 {
        for (target, figures) in targets.iter().zip(figures.iter_mut()) {
            acquire_repeatedly(target.client.as_ref(), slice, &mut figures.alone).await?;
        }
    }
    Ok(())
}

async fn acquire_repeatedly(
    client: &dyn Client,
    duration: Duration,
    timings: &mut Timings,
) -> Result<()> {
    let (began, mut turn) = (Instant::now(), 0);
    while began.elapsed() < duration {
        let requested = Instant::now();
        let held = acquire(client, &format!("alone {}", turn % NAMES)).await?;
        timings.record(requested.elapsed());
        held.release().await;
        turn += 1;
    }
    timings.add_period(began.elapsed());
    Ok(())
}

/// State that the competitors for one lock share.
#[derive(Default)]
struct Competition {
    stop: AtomicBool,
    is_held: AtomicBool,
    double_grants: AtomicU64,
}

/// Measures sixteen clients that compete for one lock and release it immediately.
pub(super) async fn contended(
    target: &Target<'_>,
    duration: Duration,
    figures: &mut LoadFigures,
) -> Result<()> {
    let competition = Arc::new(Competition::default());
    let mut tasks = JoinSet::new();
    let mut clients = Vec::new();
    for _ in 0..COMPETITORS {
        clients.push(target.new_client().await?);
    }
    let began = Instant::now();
    for client in clients {
        tasks.spawn(compete(client, Arc::clone(&competition)));
    }
    sleep(duration).await;
    competition.stop.store(true, Ordering::Relaxed);
    figures.contended.add_period(began.elapsed());
    while let Some(timings) = tasks.join_next().await {
        figures.contended.add_acquisitions(&timings??);
    }
    figures.double_grants = competition.double_grants.load(Ordering::Relaxed);
    Ok(())
}

async fn compete(client: Box<dyn Client>, competition: Arc<Competition>) -> Result<Timings> {
    let mut timings = Timings::default();
    while !competition.stop.load(Ordering::Relaxed) {
        let requested = Instant::now();
        let held = acquire(client.as_ref(), "contended").await?;
        // An acquisition after the end of the period does not count.
        if !competition.stop.load(Ordering::Relaxed) {
            timings.record(requested.elapsed());
        }
        if competition.is_held.swap(true, Ordering::SeqCst) {
            competition.double_grants.fetch_add(1, Ordering::Relaxed);
        }
        competition.is_held.store(false, Ordering::SeqCst);
        held.release().await;
    }
    Ok(timings)
}

/// Counts the messages that one client sends for one acquisition and release.
pub(super) async fn messages(target: &Target<'_>) -> Result<Option<f64>> {
    let Some((client, counters)) = target.counted_client().await? else {
        return Ok(None);
    };
    // Connects, loads scripts, and lets the client learn the current tokens.
    for _ in 0..WARM_UP_ACQUISITIONS {
        acquire(client.as_ref(), "counted").await?.release().await;
    }
    sleep(SLICE).await;
    let before = total_sent(&counters);
    for _ in 0..COUNTED_ACQUISITIONS {
        acquire(client.as_ref(), "counted").await?.release().await;
        sleep(COUNTED_INTERVAL).await;
    }
    let sent = total_sent(&counters) - before;
    Ok(Some(sent as f64 / f64::from(COUNTED_ACQUISITIONS)))
}
