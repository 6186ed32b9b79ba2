//! The three measurements.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::{task::JoinSet, time::sleep};

use crate::{
    contestants::{Client, Contestant, Via},
    figures::Figures,
};

const SLICE: Duration = Duration::from_millis(500);
const HOLDERS: usize = 16;
/// Names in turn: the last requests for one may still be on their way when it is wanted again.
const NAMES: usize = 64;
const COUNTED: u32 = 200;

/// One client, and nobody else who wants its locks.
pub async fn alone(contestants: &[Box<dyn Contestant>], each: Duration, figures: &mut [Figures]) {
    let mut clients = Vec::new();
    for contestant in contestants {
        let client = contestant.client(Via::Directly).await;
        one_after_the_other(client.as_ref(), SLICE, &mut Figures::default()).await;
        clients.push(client);
    }
    for _ in 0..each.div_duration_f64(SLICE).ceil() as u32 {
        for (client, figures) in clients.iter().zip(figures.iter_mut()) {
            one_after_the_other(client.as_ref(), SLICE, figures).await;
        }
    }
}

async fn one_after_the_other(client: &dyn Client, for_about: Duration, figures: &mut Figures) {
    let (since, mut turn) = (Instant::now(), 0);
    while since.elapsed() < for_about {
        let started = Instant::now();
        let held = client.take(&format!("alone {}", turn % NAMES)).await;
        let acquired = started.elapsed();
        held.give_back().await;
        let both = started.elapsed();
        figures.acquire.saturating_record(acquired.as_nanos() as u64);
        figures.both.saturating_record(both.as_nanos() as u64);
        turn += 1;
    }
    figures.alone += since.elapsed();
}

/// Sixteen clients that all want one lock, for nothing but to have had it.
pub async fn contended(contestants: &[Box<dyn Contestant>], each: Duration, figures: &mut [Figures]) {
    for (contestant, figures) in contestants.iter().zip(figures) {
        let since = Instant::now();
        let stop = Arc::new(AtomicBool::new(false));
        let (inside, held) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let mut holders = JoinSet::new();
        for _ in 0..HOLDERS {
            let client = contestant.client(Via::Directly).await;
            holders.spawn(hold(client, Arc::clone(&stop), Arc::clone(&inside), Arc::clone(&held)));
        }
        let (before, started) = (held.load(Ordering::Relaxed), Instant::now());
        sleep(each).await;
        figures.contended = held.load(Ordering::Relaxed) - before;
        figures.contended_for = started.elapsed();
        stop.store(true, Ordering::Relaxed);
        holders.join_all().await;
        assert!(since.elapsed() > each);
    }
}

async fn hold(client: Box<dyn Client>, stop: Arc<AtomicBool>, inside: Arc<AtomicBool>, held: Arc<AtomicU64>) {
    while !stop.load(Ordering::Relaxed) {
        let lock = client.take("contended").await;
        assert!(!inside.swap(true, Ordering::SeqCst), "two hold one lock");
        held.fetch_add(1, Ordering::Relaxed);
        inside.store(false, Ordering::SeqCst);
        lock.give_back().await;
    }
}

/// What one client sends for one lock.
pub async fn messages(contestant: &dyn Contestant) -> Option<f64> {
    let client = contestant.client(Via::Counters).await;
    // Connections are made, scripts are loaded, tokens are known.
    for _ in 0..2 * NAMES {
        client.take("counted").await.give_back().await;
    }
    sleep(SLICE).await;
    let before = contestant.sent()?;
    for _ in 0..COUNTED {
        client.take("counted").await.give_back().await;
        // The last answers of one do not mix with the next.
        sleep(Duration::from_millis(2)).await;
    }
    Some((contestant.sent()? - before) as f64 / f64::from(COUNTED))
}
