//! Orders at a fixed rate. Each order starts at its scheduled time, whether earlier ones have been
//! answered or not, and its latency counts from that time. A stall therefore appears in the latency
//! of every order that would have waited in it. A closed loop sends fewer requests to a stalled
//! service (coordinated omission).
//!
//! As in wrk2, each connection sends every n-th request of the schedule. A request whose connection
//! still waits for an answer starts late, and the wait counts. The driver's own delay counts as
//! well: timers have a resolution of a millisecond, and the driver shares the processors with the
//! service. `load-tests capacity` does the same with a complete HTTP client and a history of every
//! order, which at half of the maximum rate take more of two cores than the service.

use std::{sync::Arc, time::Duration};

use anyhow::{Context, Result, ensure};
use reporting::statistics::percentile;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep_until, timeout_at},
};
use tokio_util::sync::CancellationToken;

use crate::connection::{Connection, order_request};

/// Delay from the last opened connection to the first request.
const START_DELAY: Duration = Duration::from_millis(100);
/// Longer than the service takes to answer that the outcome is unknown.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// A load.
#[derive(Debug, Clone)]
pub struct OpenLoop {
    /// `HOST:PORT`
    pub address: String,
    /// Item that the buyers order.
    pub item: String,
    /// Tokens of the buyers.
    pub tokens: Arc<[String]>,
    /// Status of an acknowledged order.
    pub status: u16,
    /// Number of connections.
    pub connections: u64,
    /// Orders per second.
    pub rate: f64,
    /// Orders of the warm-up, which do not count.
    pub warm: u64,
    /// Orders that are measured, unless `until` ends the load earlier.
    pub orders: u64,
    /// Prefix of the idempotency keys, unique among the loads of the item.
    pub run: String,
    /// Ends the load as soon as it has a measured order: no further one starts.
    pub until: CancellationToken,
}

/// Milliseconds of each measured order, sorted.
#[derive(Debug, Default)]
pub struct Latencies {
    answered: Vec<f64>,
    begun: Vec<f64>,
}

impl Latencies {
    /// Number of measured orders.
    pub fn count(&self) -> u64 {
        self.answered.len() as u64
    }

    /// Percentile of the latency, from the scheduled time to the last byte of the answer.
    pub fn answered_within(&self, percent: f64) -> f64 {
        percentile(&self.answered, percent)
    }

    /// Adds those of another load.
    pub fn add(&mut self, other: Self) {
        for (all, more) in [
            (&mut self.answered, other.answered),
            (&mut self.begun, other.begun),
        ] {
            all.extend(more);
            all.sort_by(f64::total_cmp);
        }
    }

    /// Percentile of the driver's own delay, from the scheduled time to the request.
    pub fn begun_within(&self, percent: f64) -> f64 {
        percentile(&self.begun, percent)
    }
}

impl OpenLoop {
    /// Runs the load. Fails if an answer is not an order.
    pub async fn run(self) -> Result<Latencies> {
        let mut open = Vec::new();
        for _ in 0..self.connections {
            open.push(Connection::open(&self.address).await?);
        }
        let (load, begins) = (Arc::new(self), Instant::now() + START_DELAY);
        let mut tasks = JoinSet::new();
        for (number, connection) in (0..).zip(open) {
            tasks.spawn(Arc::clone(&load).on_one_connection(connection, number, begins));
        }
        let ends = begins + load.due(load.warm + load.orders) + ANSWER_TIMEOUT;
        let (mut answered, mut begun) = (Vec::new(), Vec::new());
        while let Some(done) = timeout_at(ends, tasks.join_next())
            .await
            .context("some orders were not answered in time")?
        {
            for (began_ms, answered_ms) in done?? {
                begun.push(began_ms);
                answered.push(answered_ms);
            }
        }
        let mut latencies = Latencies::default();
        latencies.add(Latencies { answered, begun });
        Ok(latencies)
    }

    /// Scheduled time of an order, relative to the first.
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
            let key = format!("{}-{order}", self.run);
            let request = order_request(&self.item, token, &key);
            let due = begins + self.due(order);
            tokio::select! {
                biased;
                () = self.until.cancelled(), if order > self.warm => break,
                () = sleep_until(due) => {}
            }
            let began = due.elapsed();
            let status = connection.send(&request).await?;
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpListener,
        sync::watch,
        time::Instant,
    };
    use tokio_util::sync::CancellationToken;

    use super::{OpenLoop, START_DELAY};

    /// Answers every request 201, and the very first after this many of another connection.
    async fn service(stall: u64) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        tokio::spawn(async move {
            let mut stall = stall;
            let answered = watch::Sender::new(0);
            while let Ok((mut stream, _)) = listener.accept().await {
                let (mut stall, answered) = (std::mem::take(&mut stall), answered.clone());
                tokio::spawn(async move {
                    let mut request = [0; 4096];
                    while stream
                        .read(&mut request)
                        .await
                        .is_ok_and(|length| length > 0)
                    {
                        let stall = std::mem::take(&mut stall);
                        let mut answers = answered.subscribe();
                        drop(answers.wait_for(|answers| *answers >= stall).await.unwrap());
                        stream
                            .write_all(b"HTTP/1.1 201 Created\r\ncontent-length: 2\r\n\r\n{}")
                            .await
                            .unwrap();
                        answered.send_modify(|answers| *answers += 1);
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
            run: "open".into(),
            until: CancellationToken::new(),
        }
    }

    #[tokio::test]
    async fn an_order_behind_a_stall_counts_its_wait() {
        let begun = Instant::now();
        // The first connection stalls until the other one has sent its 20 orders, the last of which
        // is due after 390 ms. It would end in an error if the stall delayed the other one.
        let took = load(service(20).await, 201).run().await.unwrap();
        let run_ms = begun.elapsed().saturating_sub(START_DELAY).as_secs_f64() * 1000.0;
        assert_eq!(took.answered.len(), 40);
        // Of the stalled connection, a request was due every 20 ms.
        let slow = took.answered.iter().filter(|ms| **ms > 100.0).count();
        assert!(slow >= 15, "{:?}", took.answered);
        assert!(took.answered_within(100.0) >= 390.0, "{:?}", took.answered);
        // Each order counts from its own time, and was answered before the end of the run.
        let most: f64 = (0..40).map(|order| run_ms - 10.0 * f64::from(order)).sum();
        let sum: f64 = took.answered.iter().sum();
        assert!(sum <= most, "{sum} of {most}: {:?}", took.answered);
    }

    #[tokio::test]
    async fn an_unexpected_status_fails_the_load() {
        let error = load(service(0).await, 202).run().await.unwrap_err();
        assert!(error.to_string().contains("201"), "{error}");
    }

    #[tokio::test]
    async fn a_load_that_is_ended_has_one_measured_order() {
        let load = load(service(0).await, 201);
        load.until.cancel();
        let took = load.run().await.unwrap();
        assert_eq!(took.count(), 1, "{:?}", took.answered);
    }
}
