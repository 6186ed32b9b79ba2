//! P8: two masters of a Redis Cluster on two cores, compared with one master.
//!
//! On two cores, two busy servers leave no processor for the stock crate, which needs one. The goal
//! is therefore measured with the crate's own script and batches that are encoded beforehand:
//! sending them costs very little, so the servers are the limit with one master and with two. Two
//! servers that flush every write share a disk here, unlike on separate machines. The goal is
//! therefore measured with one flush a second; a further line flushes every write. Two more lines
//! measure the crate itself: by the clock, where all share the two cores, and by capacity. Capacity
//! is the orders per second of the masters' processor time, times the number of masters.

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use ::stock::{Acknowledge, Reservation, Stock};
use anyhow::{Result, ensure};
use domain::{Item, Quantity, SegmentKey};
use redis::{Cmd, Script, Value, aio::MultiplexedConnection};
use testbed::RedisCluster;
use tokio::{sync::Mutex, task::JoinSet};

use super::{
    crowd::{Count, Crowd},
    in_process, servers,
};
use crate::{
    goal::{Bound, Line, Measured, Sample},
    options::Options,
};

/// Two for each of two masters. (Two in all lie on the same one whatever the item is called: the
/// slots of names that end in 0 and in 1 differ in bits that do not tell the halves of a cluster
/// apart.)
const SEGMENTS: u16 = 4;
const BATCH: usize = 512;
/// Batches in flight per segment.
const BATCHES_IN_FLIGHT: usize = 2;
const ENCODED_BATCHES_PER_SECOND: u64 = 700;
const ORDERS_PER_SECOND: u64 = 120_000;
/// How long a batch may wait.
const DEADLINE: Duration = Duration::from_secs(3600);

const RESERVE_HOME: &str = include_str!("../../../../lua/reserve_home.lua");

/// Measures it.
pub async fn measure(options: &Options) -> Result<Measured> {
    let (one, two) = (Masters::start(1).await?, Masters::start(2).await?);
    let item = two.an_item_on_every_master(options.seconds).await?;
    let seconds = options.seconds.clamp(1, 4);
    let encoded = Arc::new(Encoded::new(&item, seconds * ENCODED_BATCHES_PER_SECOND)?);
    let reservations = reservations(&item, seconds * ORDERS_PER_SECOND)?;
    let [mut script, mut flushed, mut by_clock, mut by_processor] = lines();
    for _ in 0..options.repeats {
        for (line, flush) in [(&mut script, "everysec"), (&mut flushed, "always")] {
            two.flush(flush).await?;
            one.flush(flush).await?;
            let (figure, baseline) = (
                two.encoded(&item, &encoded).await?,
                one.encoded(&item, &encoded).await?,
            );
            line.samples.push(sample(&figure, &baseline, Run::rate));
        }
        let (figure, baseline) = (
            two.of_the_crate(&item, &reservations).await?,
            one.of_the_crate(&item, &reservations).await?,
        );
        by_clock.samples.push(sample(&figure, &baseline, Run::rate));
        by_processor
            .samples
            .push(sample(&figure, &baseline, Run::capacity));
    }
    Ok(Measured {
        goal: "P8",
        title: "two Redis masters on two cores",
        lines: vec![script, flushed, by_processor, by_clock],
    })
}

fn lines() -> [Line; 4] {
    let line = |what: &str, unit, bound, flush: &str, setting: &str| Line {
        figure: format!("{what}, 2 masters"),
        baseline: format!("{what}, 1 master"),
        unit,
        bound,
        setting: format!(
            "Redis Cluster, appendfsync {flush}, no rewriting of the file; one item, {SEGMENTS} segments, limit 1; {setting}"
        ),
        samples: Vec::new(),
    };
    let encoded = format!(
        "batches of {BATCH} encoded beforehand, {BATCHES_IN_FLIGHT} in flight for each segment"
    );
    [
        line(
            "the crate's script",
            "orders/s",
            Bound::AtLeast(1.8),
            "everysec",
            &format!("{encoded}: the servers' processors are the limit"),
        ),
        line(
            "the crate's script, flushed",
            "orders/s",
            Bound::None,
            "always",
            &format!("{encoded}: what they flush goes to one disk, and each waits for it"),
        ),
        line(
            "stock crate",
            "orders/s",
            Bound::None,
            "always",
            &format!(
                "batches of at most {BATCH}; by the clock: the crate and the masters share the same cores, and the crate is the limit"
            ),
        ),
        line(
            "stock crate, masters always busy",
            "orders/s",
            Bound::None,
            "always",
            &format!(
                "batches of at most {BATCH}; orders for each second of the masters' processor time, times their number"
            ),
        ),
    ]
}

/// One run on one cluster.
struct Run {
    count: Count,
    masters: usize,
    cpu_us: f64,
    drift: i64,
    oversold: u64,
}

impl Run {
    fn rate(&self) -> f64 {
        self.count.rate()
    }

    /// Orders per second if the masters were always busy.
    fn capacity(&self) -> f64 {
        self.count.accepted as f64 / (self.cpu_us / 1e6) * self.masters as f64
    }
}

fn sample(figure: &Run, baseline: &Run, of: fn(&Run) -> f64) -> Sample {
    Sample {
        figure: of(figure),
        baseline: of(baseline),
        accepted: figure.count.accepted,
        rejected: figure.count.rejected,
        drift: figure.drift + baseline.drift,
        oversold: figure.oversold + baseline.oversold,
    }
}

/// Built beforehand: deriving ids is work of the service, not of the stock crate.
fn reservations(item: &Item, orders: u64) -> Result<Arc<Vec<Reservation>>> {
    Ok(Arc::new(
        (0..orders)
            .map(|buyer| in_process::reservation(item, buyer, Acknowledge::Accepted))
            .collect::<Result<_>>()?,
    ))
}

/// Batches of orders, encoded for the script, by segment.
struct Encoded {
    by_segment: Vec<Vec<Cmd>>,
}

impl Encoded {
    /// Encodes this many batches, spread over the segments. Every order is at its home segment.
    fn new(item: &Item, batches: u64) -> Result<Self> {
        let each = usize::try_from(batches)?.div_ceil(usize::from(SEGMENTS));
        let hash = Script::new(RESERVE_HOME).get_hash().to_owned();
        let deadline_ms = (SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)? + DEADLINE)
            .as_millis() as u64;
        let mut waiting: Vec<Vec<Reservation>> = in_process::segments(item)
            .iter()
            .map(|_| Vec::with_capacity(BATCH))
            .collect();
        let mut by_segment: Vec<Vec<Cmd>> = waiting.iter().map(|_| Vec::new()).collect();
        for buyer in 0.. {
            let reservation = in_process::reservation(item, buyer, Acknowledge::Accepted)?;
            let home = usize::from(reservation.buyer.home(SEGMENTS));
            if by_segment[home].len() == each {
                if by_segment.iter().all(|batches| batches.len() == each) {
                    break;
                }
                continue;
            }
            waiting[home].push(reservation);
            if waiting[home].len() == BATCH {
                let segment = SegmentKey {
                    item: item.id.clone(),
                    segment: u16::try_from(home)?,
                };
                by_segment[home].push(command(
                    &hash,
                    &segment,
                    &std::mem::take(&mut waiting[home]),
                    deadline_ms,
                ));
            }
        }
        Ok(Self { by_segment })
    }
}

/// The call that the header of `lua/reserve_home.lua` describes.
fn command(
    hash: &str,
    segment: &SegmentKey,
    reservations: &[Reservation],
    deadline_ms: u64,
) -> Cmd {
    let mut command = redis::cmd("EVALSHA");
    command.arg(hash).arg(5);
    for kind in ["stock", "decisions", "buyers", "outbox", "spillovers"] {
        command.arg(key(kind, segment));
    }
    command
        .arg(reservations.len())
        .arg(deadline_ms)
        .arg(0)
        .arg(segment.to_string());
    let packed: Vec<u8> = reservations.iter().flat_map(packed).collect();
    // Each order is for one unit.
    command.arg(1).arg(packed);
    for reservation in reservations {
        command.arg(&reservation.order.as_bytes()[..]);
    }
    for reservation in reservations {
        command.arg(reservation.buyer.as_str());
    }
    command
}

fn key(kind: &str, segment: &SegmentKey) -> String {
    format!("{kind}:{{{segment}}}")
}

fn packed(reservation: &Reservation) -> Vec<u8> {
    let buyer = reservation.buyer.as_str().as_bytes();
    let length = [u8::try_from(buyer.len()).unwrap_or(u8::MAX)];
    [
        &reservation.order.as_bytes()[..],
        &reservation.quantity.get().to_be_bytes(),
        &length,
        buyer,
    ]
    .concat()
}

/// A cluster, and connections that read its processor time.
struct Masters {
    cluster: RedisCluster,
    connections: Vec<MultiplexedConnection>,
    stock: Arc<Stock>,
}

impl Masters {
    async fn start(masters: usize) -> Result<Self> {
        let cluster = RedisCluster::start(masters).await?;
        let connections = servers::connect_all(cluster.nodes()).await?;
        let stock = in_process::stock(&cluster.url(), BATCH).await?;
        Ok(Self {
            cluster,
            connections,
            stock,
        })
    }

    /// An item with the same number of segments on every master, and stock for this many seconds.
    async fn an_item_on_every_master(&self, seconds: u64) -> Result<Item> {
        let units = 2 * seconds.clamp(1, 4) * ENCODED_BATCHES_PER_SECOND * BATCH as u64;
        for number in 0..1000 {
            let item = in_process::item(
                &format!("shards-{number}"),
                units,
                SEGMENTS,
                Some(Quantity::ONE),
            )?;
            let mut homes = Vec::new();
            for segment in in_process::segments(&item) {
                homes.push(self.master_of(&segment).await?);
            }
            let here = |master| homes.iter().filter(|home| **home == master).count();
            if (0..self.connections.len())
                .all(|master| here(master) * self.connections.len() == homes.len())
            {
                return Ok(item);
            }
        }
        anyhow::bail!("none of 1000 item names spreads its segments evenly over the masters")
    }

    /// Index of the master that owns the segment's slot. The other masters reply with an error.
    async fn master_of(&self, segment: &SegmentKey) -> Result<usize> {
        for (number, mut connection) in self.connections.iter().cloned().enumerate() {
            if redis::cmd("EXISTS")
                .arg(key("stock", segment))
                .query_async::<i64>(&mut connection)
                .await
                .is_ok()
            {
                return Ok(number);
            }
        }
        anyhow::bail!("no master has {segment}")
    }

    /// Sets `appendfsync`, and disables rewriting of the append-only file. A rewrite is another
    /// process: one master leaves a core for it, two do not.
    async fn flush(&self, when: &str) -> Result<()> {
        for mut connection in self.connections.clone() {
            let mut config = redis::cmd("CONFIG");
            config
                .arg("SET")
                .arg("appendfsync")
                .arg(when)
                .arg("auto-aof-rewrite-percentage")
                .arg(0);
            config.query_async::<()>(&mut connection).await?;
        }
        Ok(())
    }

    /// Empties the masters and opens the item again.
    async fn refill(&self, item: &Item) -> Result<()> {
        for mut connection in self.connections.clone() {
            redis::cmd("FLUSHALL")
                .query_async::<()>(&mut connection)
                .await?;
        }
        self.stock.ready().await?;
        self.stock.open(item).await?;
        Ok(())
    }

    async fn encoded(&self, item: &Item, encoded: &Arc<Encoded>) -> Result<Run> {
        self.refill(item).await?;
        let mut meter = self.connections.clone();
        let before = servers::cpu_us(&mut meter).await?;
        let (began, mut senders) = (Instant::now(), JoinSet::new());
        for segment in in_process::segments(item) {
            let connection = self.connections[self.master_of(&segment).await?].clone();
            let places = 0..encoded.by_segment[usize::from(segment.segment)].len();
            let waiting = Arc::new(Mutex::new(places.collect::<VecDeque<_>>()));
            for _ in 0..BATCHES_IN_FLIGHT {
                let (encoded, waiting, connection) = (
                    Arc::clone(encoded),
                    Arc::clone(&waiting),
                    connection.clone(),
                );
                senders.spawn(async move {
                    send(
                        &encoded.by_segment[usize::from(segment.segment)],
                        &waiting,
                        connection,
                    )
                    .await
                });
            }
        }
        let mut count = Count::default();
        while let Some(sent) = senders.join_next().await {
            let (accepted, rejected) = sent??;
            count.accepted += accepted;
            count.rejected += rejected;
        }
        count.took = began.elapsed();
        let cpu_us = servers::cpu_us(&mut meter).await? - before;
        self.judge(item, count, cpu_us).await
    }

    async fn of_the_crate(&self, item: &Item, reservations: &Arc<Vec<Reservation>>) -> Result<Run> {
        self.refill(item).await?;
        let mut meter = self.connections.clone();
        let mut crowd = Crowd::of(2 * BATCH * usize::from(SEGMENTS));
        let before = servers::cpu_us(&mut meter).await?;
        let count = in_process::buy_all(&mut crowd, &self.stock, item, reservations).await?;
        let cpu_us = servers::cpu_us(&mut meter).await? - before;
        self.judge(item, count, cpu_us).await
    }

    async fn judge(&self, item: &Item, count: Count, cpu_us: f64) -> Result<Run> {
        let logged = in_process::logged(&self.stock, item).await?;
        let (drift, oversold) = (
            logged.drift(item.stock, count.accepted),
            logged.taken.saturating_sub(item.stock),
        );
        Ok(Run {
            count,
            masters: self.cluster.masters(),
            cpu_us,
            drift,
            oversold,
        })
    }
}

async fn send(
    batches: &[Cmd],
    waiting: &Mutex<VecDeque<usize>>,
    mut connection: MultiplexedConnection,
) -> Result<(u64, u64)> {
    let (mut accepted, mut rejected) = (0, 0);
    loop {
        let Some(index) = waiting.lock().await.pop_front() else {
            return Ok((accepted, rejected));
        };
        let refused = refusals(&batches[index].query_async(&mut connection).await?)?;
        accepted += BATCH as u64 - refused;
        rejected += refused;
    }
}

/// Number of orders of a batch that did not get a unit.
fn refusals(reply: &Value) -> Result<u64> {
    let Value::Array(parts) = reply else {
        anyhow::bail!("the script answered {reply:?}")
    };
    ensure!(
        matches!(parts.first(), Some(Value::BulkString(word)) if word == b"ok"),
        "the script answered {parts:?}"
    );
    // Status, time, units, entry, end of the hold; then three values for each refused order.
    match parts.len().checked_sub(5) {
        Some(exceptions) => Ok(exceptions as u64 / 3),
        None => anyhow::bail!("the script answered {parts:?}"),
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use super::{Count, Encoded, Masters, Run, reservations};

    #[test]
    fn two_masters_with_the_same_cost_per_order_have_twice_the_capacity() {
        let run = |masters| Run {
            count: Count {
                accepted: 1000,
                rejected: 0,
                took: Duration::from_secs(3),
            },
            masters,
            cpu_us: 2000.0,
            drift: 0,
            oversold: 0,
        };
        assert!((run(1).capacity() - 500_000.0).abs() < 1e-6);
        assert!((run(2).capacity() - 1_000_000.0).abs() < 1e-6);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn encoded_batches_sell_as_the_crate_does() {
        let two = Masters::start(2).await.unwrap();
        let item = two.an_item_on_every_master(1).await.unwrap();
        let encoded = Arc::new(Encoded::new(&item, 8).unwrap());
        let run = two.encoded(&item, &encoded).await.unwrap();
        assert_eq!(
            (
                run.count.accepted,
                run.count.rejected,
                run.drift,
                run.oversold
            ),
            (8 * 512, 0, 0, 0)
        );
        let run = two
            .of_the_crate(&item, &reservations(&item, 5000).unwrap())
            .await
            .unwrap();
        assert_eq!(
            (
                run.count.accepted,
                run.count.rejected,
                run.drift,
                run.oversold
            ),
            (5000, 0, 0, 0)
        );
        assert!(run.cpu_us > 0.0);
    }
}
