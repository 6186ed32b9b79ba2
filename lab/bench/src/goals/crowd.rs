//! Buyers in a closed loop: each orders again after the answer to its previous order.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::Result;
use tokio::task::JoinSet;

/// Answer to an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reply {
    /// The buyer has the unit.
    Sold,
    /// The order was refused.
    Refused,
}

/// Answers, and the time that they took.
#[derive(Debug, Clone, Copy, Default)]
pub struct Count {
    pub accepted: u64,
    pub rejected: u64,
    pub took: Duration,
}

impl Count {
    /// Accepted orders per second. Refusals do not count.
    pub fn rate(&self) -> f64 {
        self.accepted as f64 / self.took.as_secs_f64()
    }

    fn count(&mut self, reply: Reply) {
        match reply {
            Reply::Sold => self.accepted += 1,
            Reply::Refused => self.rejected += 1,
        }
    }

    /// Adds the answers of another count, but not its time.
    pub fn add(&mut self, other: &Self) {
        self.accepted += other.accepted;
        self.rejected += other.rejected;
    }
}

/// Concurrent buyers. Buyer numbers rise over all rushes, so no buyer orders twice.
pub struct Crowd {
    buyers: usize,
    next: Arc<AtomicU64>,
    /// Answers of all rushes.
    pub replies: Count,
}

impl Crowd {
    /// A crowd of this many concurrent buyers.
    pub fn of(buyers: usize) -> Self {
        Self {
            buyers,
            next: Arc::default(),
            replies: Count::default(),
        }
    }

    /// Orders for this long. Orders in flight at the end are awaited and counted, with their time.
    pub async fn rush<B, F>(&mut self, length: Duration, buy: B) -> Result<Count>
    where
        B: Fn(u64) -> F + Clone + Send + 'static,
        F: Future<Output = Result<Reply>> + Send + 'static,
    {
        let until = Instant::now() + length;
        self.go(buy, move |_| Instant::now() < until).await
    }

    /// Places this many orders in total.
    pub async fn order<B, F>(&mut self, orders: u64, buy: B) -> Result<Count>
    where
        B: Fn(u64) -> F + Clone + Send + 'static,
        F: Future<Output = Result<Reply>> + Send + 'static,
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
        F: Future<Output = Result<Reply>> + Send + 'static,
    {
        let began = Instant::now();
        let mut buyers = JoinSet::new();
        for _ in 0..self.buyers {
            let (next, buy) = (Arc::clone(&self.next), buy.clone());
            buyers.spawn(async move {
                let mut replies = Count::default();
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if !goes_on(number) {
                        return anyhow::Ok(replies);
                    }
                    replies.count(buy(number).await?);
                }
            });
        }
        let mut count = Count::default();
        while let Some(replies) = buyers.join_next().await {
            count.add(&replies??);
        }
        count.took = began.elapsed();
        self.replies.add(&count);
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Count, Crowd, Reply};

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
    async fn every_buyer_orders_once_and_is_counted() {
        let mut crowd = Crowd::of(3);
        let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
        for _ in 0..2 {
            let sender = sender.clone();
            let count = crowd.order(50, move |buyer| {
                let reply = sender.send(buyer).map(|()| {
                    if buyer % 5 == 0 {
                        Reply::Refused
                    } else {
                        Reply::Sold
                    }
                });
                async move { Ok(reply?) }
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
        assert_eq!((crowd.replies.accepted, crowd.replies.rejected), (80, 20));
    }
}
