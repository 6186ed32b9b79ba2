//! Orders at a fixed rate: each begins when the schedule says, whether earlier ones have been answered or not, and its latency counts from that moment, so a stall is
//! seen by everybody who would have waited in it. A closed loop asks a stalled service less (coordinated omission).
//!
//! As in wrk2, each connection has every n-th request of the schedule; one whose connection still waits for an answer begins late, and the wait counts. The
//! driver's own delay counts, too: timers are a millisecond coarse, and the driver shares the processors with what it measures. `load-tests capacity` does the same with
//! a whole HTTP client and a crowd's books, which at half of the maximum take more of two cores than the service.

use std::{sync::Arc, time::Duration};

use anyhow::{Context, Result, ensure};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep_until, timeout_at},
};

use crate::connection::{Connection, order_request};

/// From when all connections are open to the first request.
const BEGINS_AFTER: Duration = Duration::from_millis(100);
/// Longer than the service takes to say that it does not know.
const PATIENCE: Duration = Duration::from_secs(30);

/// A load.
#[derive(Debug, Clone)]
pub struct OpenLoop {
    /// `HOST:PORT`
    pub address: String,
    /// What is ordered.
    pub item: String,
    /// Who orders.
    pub tokens: Arc<[String]>,
    /// The status of an order.
    pub status: u16,
    /// Connections.
    pub connections: u64,
    /// Orders a second.
    pub rate: f64,
    /// Orders before those that count.
    pub warm: u64,
    /// Orders that count.
    pub orders: u64,
}

/// What came of it: milliseconds of each order that counts, the shortest first.
#[derive(Debug)]
pub struct Latencies {
    answered: Vec<f64>,
    begun: Vec<f64>,
}

impl Latencies {
    /// So many of a hundred took no longer, from when the order was due to the last byte of the answer.
    pub fn answered_within(&self, percent: f64) -> f64 {
        percentile(&self.answered, percent)
    }

    /// So many of a hundred began no later after they were due.
    pub fn begun_within(&self, percent: f64) -> f64 {
        percentile(&self.begun, percent)
    }
}

impl OpenLoop {
    /// Makes the load. An error if an answer is not an order.
    pub async fn run(self) -> Result<Latencies> {
        let mut open = Vec::new();
        for _ in 0..self.connections {
            open.push(Connection::open(&self.address).await?);
        }
        let (load, begins) = (Arc::new(self), Instant::now() + BEGINS_AFTER);
        let mut tasks = JoinSet::new();
        for (number, connection) in (0..).zip(open) {
            tasks.spawn(Arc::clone(&load).on_one_connection(connection, number, begins));
        }
        let ends = begins + load.due(load.warm + load.orders) + PATIENCE;
        let (mut answered, mut begun) = (Vec::new(), Vec::new());
        while let Some(done) = timeout_at(ends, tasks.join_next())
            .await
            .context("orders were not answered at all")?
        {
            for (began_ms, answered_ms) in done?? {
                begun.push(began_ms);
                answered.push(answered_ms);
            }
        }
        begun.sort_by(f64::total_cmp);
        answered.sort_by(f64::total_cmp);
        Ok(Latencies { answered, begun })
    }

    /// When an order is due, from the first.
    fn due(&self, order: u64) -> Duration {
        Duration::from_secs_f64(order as f64 / self.rate)
    }

    async fn on_one_connection(
        self: Arc<Self>,
        mut connection: Connection,
        number: u64,
        begins: Instant,
    ) -> Result<Vec<(f64, f64)>> {
        let mut took = Vec::new();
        let mut order = number;
        while order < self.warm + self.orders {
            let token = &self.tokens[usize::try_from(order)? % self.tokens.len()];
            let request = order_request(&self.item, token, &format!("open-{order}"));
            let due = begins + self.due(order);
            sleep_until(due).await;
            let began = due.elapsed();
            let status = connection.ask(&request).await?;
            ensure!(
                status == self.status,
                "an order of {} was answered {status}",
                self.item
            );
            if order >= self.warm {
                took.push((
                    began.as_secs_f64() * 1000.0,
                    due.elapsed().as_secs_f64() * 1000.0,
                ));
            }
            order += self.connections;
        }
        Ok(took)
    }
}

/// Of sorted values.
fn percentile(sorted: &[f64], percent: f64) -> f64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a rank of a list in memory"
    )]
    // 99.9 % of 1000 is a little more than 999 where numbers are binary.
    let rank = (percent / 100.0 * sorted.len() as f64 - 1e-6).ceil() as usize;
    sorted
        .get(rank.saturating_sub(1).min(sorted.len().saturating_sub(1)))
        .copied()
        .unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpListener,
    };

    use super::{OpenLoop, percentile};

    /// Answers every request 201 after this long, and the very first after `stall` more.
    async fn service(takes: Duration, stall: Duration) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        tokio::spawn(async move {
            let mut stall = stall;
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut extra = std::mem::take(&mut stall);
                tokio::spawn(async move {
                    let mut request = [0; 4096];
                    while stream
                        .read(&mut request)
                        .await
                        .is_ok_and(|length| length > 0)
                    {
                        tokio::time::sleep(takes + std::mem::take(&mut extra)).await;
                        stream
                            .write_all(b"HTTP/1.1 201 Created\r\ncontent-length: 2\r\n\r\n{}")
                            .await
                            .unwrap();
                    }
                });
            }
        });
        address
    }

    fn load(address: String, status: u16) -> OpenLoop {
        let tokens: Arc<[String]> = ["a token".to_owned()].into();
        OpenLoop {
            address,
            item: "vase".into(),
            tokens,
            status,
            connections: 2,
            rate: 100.0,
            warm: 0,
            orders: 40,
        }
    }

    #[tokio::test]
    async fn who_waits_behind_a_stall_waits_on_the_clock() {
        let took = load(
            service(Duration::ZERO, Duration::from_millis(300)).await,
            201,
        )
        .run()
        .await
        .unwrap();
        assert_eq!(took.answered.len(), 40);
        // Of the stalled connection, a request was due every 20 ms; about half of those 15 waited longer than 150 ms.
        let slow = took.answered.iter().filter(|ms| **ms > 100.0).count();
        assert!(slow >= 8, "{:?}", took.answered);
        assert!(
            took.answered_within(100.0) >= 300.0 && took.answered_within(50.0) < 100.0,
            "{:?}",
            took.answered
        );
    }

    #[tokio::test]
    async fn an_answer_that_is_no_order_ends_the_load() {
        let error = load(service(Duration::ZERO, Duration::ZERO).await, 202)
            .run()
            .await
            .unwrap_err();
        assert!(error.to_string().contains("201"), "{error}");
    }

    #[test]
    fn percentiles_are_values_that_were_measured() {
        let values: Vec<f64> = (1..=1000).map(f64::from).collect();
        assert_eq!(
            [50.0, 99.0, 99.9, 100.0].map(|percent| percentile(&values, percent)),
            [500.0, 990.0, 999.0, 1000.0]
        );
        assert!(percentile(&[], 50.0).is_nan());
    }
}
