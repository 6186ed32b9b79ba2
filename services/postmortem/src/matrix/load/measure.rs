//! How long it takes, how often it can be done, and how much is sent for it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::Result;
use tokio::{task::JoinSet, time::sleep};

use super::{Client, Figures, Loaded, counting::sent, figures::Timed, take};

const SLICE: Duration = Duration::from_millis(500);
const HOLDERS: usize = 16;
/// Names in turn: the last requests for one may still be on their way when it is wanted again.
const NAMES: usize = 64;
const WARM: usize = 64;
const COUNTED: u32 = 100;

/// One client, and nobody else who wants its locks.
pub(super) async fn alone(
    loaded: &[Loaded<'_>],
    each: Duration,
    figures: &mut [Figures],
) -> Result<()> {
    for loaded in loaded {
        one_after_the_other(loaded.client.as_ref(), SLICE / 2, &mut Timed::default()).await?;
    }
    let slice = SLICE.min(each);
    for _ in 0..each.div_duration_f64(slice).ceil() as u32 {
        for (loaded, figures) in loaded.iter().zip(figures.iter_mut()) {
            one_after_the_other(loaded.client.as_ref(), slice, &mut figures.alone).await?;
        }
    }
    Ok(())
}

async fn one_after_the_other(
    client: &dyn Client,
    for_about: Duration,
    timed: &mut Timed,
) -> Result<()> {
    let (since, mut turn) = (Instant::now(), 0);
    while since.elapsed() < for_about {
        let started = Instant::now();
        let held = take(client, &format!("alone {}", turn % NAMES)).await?;
        timed.acquired_after(started.elapsed());
        held.give_back().await;
        turn += 1;
    }
    timed.went_on_for(since.elapsed());
    Ok(())
}

/// What sixteen that want one lock share.
#[derive(Default)]
struct Room {
    stop: AtomicBool,
    is_taken: AtomicBool,
    given_twice: AtomicU64,
}

/// Sixteen clients that all want one lock, for nothing but to have had it.
pub(super) async fn contended(
    loaded: &Loaded<'_>,
    each: Duration,
    figures: &mut Figures,
) -> Result<()> {
    let room = Arc::new(Room::default());
    let mut holders = JoinSet::new();
    let mut clients = Vec::new();
    for _ in 0..HOLDERS {
        clients.push(loaded.client().await?);
    }
    let began = Instant::now();
    for client in clients {
        holders.spawn(hold(client, Arc::clone(&room)));
    }
    sleep(each).await;
    room.stop.store(true, Ordering::Relaxed);
    figures.contended.went_on_for(began.elapsed());
    while let Some(timed) = holders.join_next().await {
        figures.contended.add(&timed??);
    }
    figures.given_twice = room.given_twice.load(Ordering::Relaxed);
    Ok(())
}

async fn hold(client: Box<dyn Client>, room: Arc<Room>) -> Result<Timed> {
    let mut timed = Timed::default();
    while !room.stop.load(Ordering::Relaxed) {
        let started = Instant::now();
        let held = take(client.as_ref(), "contended").await?;
        // Whoever gets it when the time is over is not counted.
        if !room.stop.load(Ordering::Relaxed) {
            timed.acquired_after(started.elapsed());
        }
        if room.is_taken.swap(true, Ordering::SeqCst) {
            room.given_twice.fetch_add(1, Ordering::Relaxed);
        }
        room.is_taken.store(false, Ordering::SeqCst);
        held.give_back().await;
    }
    Ok(timed)
}

/// What one client sends for one lock.
pub(super) async fn messages(loaded: &Loaded<'_>) -> Result<Option<f64>> {
    let Some((client, counters)) = loaded.counted().await? else {
        return Ok(None);
    };
    // Connections are made, scripts are loaded, tokens are known.
    for _ in 0..WARM {
        take(client.as_ref(), "counted").await?.give_back().await;
    }
    sleep(SLICE).await;
    let before = sent(&counters);
    for _ in 0..COUNTED {
        take(client.as_ref(), "counted").await?.give_back().await;
        // The last answers of one do not mix with the next.
        sleep(Duration::from_millis(2)).await;
    }
    Ok(Some((sent(&counters) - before) as f64 / f64::from(COUNTED)))
}
