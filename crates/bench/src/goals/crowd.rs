//! Buyers in a closed loop: each asks again when it has its answer.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::Result;
use tokio::task::JoinSet;

/// What a buyer was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Told {
    /// The unit is the buyer's.
    Sold,
    /// It is not.
    Refused,
}

/// What all of them were told, and how long that took.
#[derive(Debug, Clone, Copy, Default)]
pub struct Count {
    pub accepted: u64,
    pub rejected: u64,
    pub took: Duration,
}

impl Count {
    /// Accepted orders per second. Refusals are none.
    pub fn rate(&self) -> f64 {
        self.accepted as f64 / self.took.as_secs_f64()
    }

    fn hear(&mut self, told: Told) {
        match told {
            Told::Sold => self.accepted += 1,
            Told::Refused => self.rejected += 1,
        }
    }

    /// What others were told meanwhile, or before: the time is not theirs.
    pub fn add(&mut self, other: &Self) {
        self.accepted += other.accepted;
        self.rejected += other.rejected;
    }
}

/// So many buyers at a time. No number orders twice, from the first rush to the last.
pub struct Crowd {
    buyers: usize,
    next: Arc<AtomicU64>,
    /// Over all rushes.
    pub heard: Count,
}

impl Crowd {
    /// Nobody has come yet.
    pub fn of(buyers: usize) -> Self {
        Self {
            buyers,
            next: Arc::default(),
            heard: Count::default(),
        }
    }

    /// They order until the time is over. Whoever waits for an answer then is waited for, and counted, with the time that it took.
    pub async fn rush<B, F>(&mut self, length: Duration, buy: B) -> Result<Count>
    where
        B: Fn(u64) -> F + Clone + Send + 'static,
        F: Future<Output = Result<Told>> + Send + 'static,
    {
        let until = Instant::now() + length;
        self.go(buy, move |_| Instant::now() < until).await
    }

    /// They order so often, all together.
    pub async fn order<B, F>(&mut self, orders: u64, buy: B) -> Result<Count>
    where
        B: Fn(u64) -> F + Clone + Send + 'static,
        F: Future<Output = Result<Told>> + Send + 'static,
    {
        let end = self.next.load(Ordering::Relaxed) + orders;
        let count = self.go(buy, move |number| number < end).await;
        self.next.store(end, Ordering::Relaxed);
        count
    }

    async fn go<B, F>(
        &mut self,
        buy: B,
        goes_on: impl Fn(u64) -> bool + Copy + Send + 'static,
    ) -> Result<Count>
    where
        B: Fn(u64) -> F + Clone + Send + 'static,
        F: Future<Output = Result<Told>> + Send + 'static,
    {
        let began = Instant::now();
        let mut buyers = JoinSet::new();
        for _ in 0..self.buyers {
            let (next, buy) = (Arc::clone(&self.next), buy.clone());
            buyers.spawn(async move {
                let mut heard = Count::default();
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if !goes_on(number) {
                        return anyhow::Ok(heard);
                    }
                    heard.hear(buy(number).await?);
                }
            });
        }
        let mut count = Count::default();
        while let Some(heard) = buyers.join_next().await {
            count.add(&heard??);
        }
        count.took = began.elapsed();
        self.heard.add(&count);
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Count, Crowd, Told};

    #[test]
    fn refusals_are_no_orders() {
        let count = Count {
            accepted: 30,
            rejected: 1000,
            took: Duration::from_millis(500),
        };
        assert!((count.rate() - 60.0).abs() < 1e-9);
    }

    #[tokio::test]
    async fn nobody_orders_twice_and_everybody_is_counted() {
        let mut crowd = Crowd::of(3);
        let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
        for _ in 0..2 {
            let sender = sender.clone();
            let count = crowd.order(50, move |buyer| {
                let told = sender.send(buyer).map(|()| {
                    if buyer % 5 == 0 {
                        Told::Refused
                    } else {
                        Told::Sold
                    }
                });
                async move { Ok(told?) }
            });
            let count = count.await.unwrap();
            assert_eq!((count.accepted, count.rejected), (40, 10));
        }
        drop(sender);
        let mut buyers = Vec::new();
        while let Some(buyer) = receiver.recv().await {
            buyers.push(buyer);
        }
        buyers.sort_unstable();
        assert_eq!(buyers, (0..100).collect::<Vec<_>>());
        assert_eq!((crowd.heard.accepted, crowd.heard.rejected), (80, 20));
    }
}
