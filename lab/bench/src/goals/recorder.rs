//! P4: the recorder alone, on PostgreSQL. The baseline copies rows into the same tables and updates
//! a counter with them.
//!
//! The ledger does more than the baseline. It claims its segments and skips orders that it already
//! has (the copy would fail). It replays the effect of each entry on the counters, and moves the
//! checkpoint by compare-and-set. If the item has a limit, it checks the limit for off-home orders.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use ::stock::Acknowledge;
use anyhow::{Context, Result};
use domain::{BuyerId, Change, Entry, EntryId, Item, OrderId, Quantity, SegmentKey, TakenOrder};
use jiff::Timestamp;
use ledger::{Ledger, SegmentReplay, SegmentRow};
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use testbed::{Postgres, Redis};
use tokio::task::JoinSet;

use super::{
    crowd::{Count, Crowd},
    in_process::{self, Recording},
    raw::rows::{Rows, Variant},
    servers,
};
use crate::{
    goal::{Bound, Line, Measured, Sample},
    options::Options,
};

const SEGMENTS: u16 = 8;
/// Concurrent transactions on either side, each on its own segments.
const TASKS: u16 = 2;
/// Orders in a transaction.
const BATCH: usize = 5000;
/// Orders in an outbox entry, as the order services batch them.
const ORDERS_PER_ENTRY: usize = 128;
/// Absolute part of the goal.
const ORDERS_PER_SECOND: f64 = 200_000.0;
/// Orders in the outboxes when the recorder starts.
const BACKLOG: u64 = 200_000;

/// Result of one run.
#[derive(Debug, Clone, Copy)]
struct Run {
    count: Count,
    drift: i64,
    oversold: u64,
}

/// Measures it.
pub async fn measure(options: &Options) -> Result<Measured> {
    let (env, each) = (
        TestEnv::open().await?,
        Duration::from_secs(options.seconds.clamp(1, 3)),
    );
    let [
        mut against_copy,
        mut against_number,
        mut against_unnest,
        mut against_no_events,
        mut limited,
        mut service,
        mut service_against_no_events,
    ] = lines();
    for repeat in 0..options.repeats {
        let ledger = async |events| env.ledger(each, None, events).await;
        let [ours, without] = with_and_without_events(repeat, ledger).await?;
        let copy = env.raw(each, Variant::Copy).await?;
        let watched = env
            .ledger(each, Some(Quantity::ONE), Events::Written)
            .await?;
        let unnest = env.raw(each, Variant::Unnest).await?;
        let drain = async |events| env.service(events).await;
        let [drained, drained_without] = with_and_without_events(repeat, drain).await?;
        against_copy.samples.push(sample(&ours, &copy));
        against_number.samples.push(Sample {
            baseline: ORDERS_PER_SECOND,
            ..sample(&ours, &ours)
        });
        against_unnest.samples.push(sample(&ours, &unnest));
        against_no_events.samples.push(sample(&ours, &without));
        limited.samples.push(sample(&watched, &copy));
        service.samples.push(sample(&drained, &copy));
        service_against_no_events
            .samples
            .push(sample(&drained, &drained_without));
    }
    let lines = vec![
        against_copy,
        against_number,
        against_unnest,
        against_no_events,
        limited,
        service,
        service_against_no_events,
    ];
    Ok(Measured {
        goal: "P4",
        title: "the recorder alone, PostgreSQL",
        lines,
    })
}

/// Measures the rate with events and without, and returns it in this order. Every other repeat
/// begins without, so that neither side always runs on a server that is newer.
async fn with_and_without_events(
    repeat: usize,
    measure: impl AsyncFn(Events) -> Result<Run>,
) -> Result<[Run; 2]> {
    if repeat.is_multiple_of(2) {
        let with = measure(Events::Written).await?;
        return Ok([with, measure(Events::Dropped).await?]);
    }
    let without = measure(Events::Dropped).await?;
    Ok([measure(Events::Written).await?, without])
}

fn sample(figure: &Run, baseline: &Run) -> Sample {
    let twice = std::ptr::eq(figure, baseline);
    Sample {
        figure: figure.count.rate(),
        baseline: baseline.count.rate(),
        accepted: figure.count.accepted,
        rejected: figure.count.rejected,
        drift: figure.drift + if twice { 0 } else { baseline.drift },
        oversold: figure.oversold + if twice { 0 } else { baseline.oversold },
    }
}

fn lines() -> [Line; 7] {
    let setting = format!(
        "{}; {BATCH} orders in a transaction, {TASKS} connections, {SEGMENTS} segments",
        servers::POSTGRES
    );
    let line = |figure: &str, baseline: &str, bound| Line {
        figure: figure.into(),
        baseline: baseline.into(),
        unit: "orders/s",
        bound,
        setting: setting.clone(),
        samples: Vec::new(),
    };
    let copy = "raw COPY + segment update";
    let no_events = "the same, but PostgreSQL drops the events";
    let service = |baseline, bound| Line {
        setting: format!(
            "{}; {BACKLOG} orders in the outboxes of {SEGMENTS} segments ({}), until the last is recorded",
            servers::POSTGRES,
            servers::REDIS
        ),
        ..line("recorder service, from the outboxes", baseline, bound)
    };
    [
        line(
            "recorded by the ledger, no limit",
            copy,
            Bound::AtLeast(0.7),
        ),
        line(
            "recorded by the ledger, no limit",
            "200,000 a second",
            Bound::AtLeast(1.0),
        ),
        line(
            "recorded by the ledger, no limit",
            "raw UNNEST + segment update",
            Bound::None,
        ),
        line(
            "recorded by the ledger, no limit",
            no_events,
            Bound::AtLeast(0.95),
        ),
        line(
            "recorded by the ledger, limit 1 (off-home orders are checked)",
            copy,
            Bound::None,
        ),
        service(copy, Bound::None),
        service(no_events, Bound::None),
    ]
}

/// What becomes of the events that the recorder writes in its transactions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Events {
    Written,
    /// PostgreSQL takes and drops them: what is left is their cost in the ledger alone.
    Dropped,
}

/// Drops every event before it becomes a row.
const DROP_EVENTS: &str = "CREATE FUNCTION no_event() RETURNS trigger LANGUAGE plpgsql \
    AS 'BEGIN RETURN NULL; END'; \
    CREATE TRIGGER no_event BEFORE INSERT ON events FOR EACH ROW EXECUTE FUNCTION no_event()";

/// A PostgreSQL server. Every run has its own database, which is dropped afterwards.
struct TestEnv {
    postgres: Postgres,
    databases: AtomicU64,
}

impl TestEnv {
    async fn open() -> Result<Self> {
        Ok(Self {
            postgres: servers::postgres().await?,
            databases: AtomicU64::default(),
        })
    }

    async fn database(&self) -> Result<(String, String)> {
        let name = format!("run_{}", self.databases.fetch_add(1, Ordering::Relaxed));
        let url = self.postgres.create_database(&name).await?;
        ledger::connect(&url, 1).await?.migrate().await?;
        Ok((name, url))
    }

    async fn database_with(&self, events: Events) -> Result<(String, String)> {
        let (name, url) = self.database().await?;
        if events == Events::Dropped {
            let mut connection = PgConnection::connect(&url).await?;
            sqlx::raw_sql(DROP_EVENTS).execute(&mut connection).await?;
            connection.close().await?;
        }
        Ok((name, url))
    }

    async fn drop(&self, name: &str) -> Result<()> {
        let mut connection = PgConnection::connect(&self.postgres.url("postgres")).await?;
        sqlx::raw_sql(AssertSqlSafe(format!("DROP DATABASE {name} WITH (FORCE)")))
            .execute(&mut connection)
            .await?;
        // What the last run has written is on disk before the next one begins.
        sqlx::raw_sql("CHECKPOINT").execute(&mut connection).await?;
        Ok(())
    }

    /// The ledger without Redis. Entries are synthetic, as the recorder would decode them.
    async fn ledger(&self, each: Duration, limit: Option<Quantity>, events: Events) -> Result<Run> {
        let (name, url) = self.database_with(events).await?;
        let ledger = ledger::connect(&url, u32::from(TASKS)).await?;
        let item = in_process::item("recorder", Item::MAX_STOCK, SEGMENTS, limit)?;
        ledger.create_item(&item).await?;
        let runs = (0..TASKS).map(|task| {
            let (ledger, item) = (Arc::clone(&ledger), item.clone());
            async move { record_for_a_while(&*ledger, &item, task, each).await }
        });
        let count = all(runs).await?;
        let totals = ledger.totals(&item.id).await?.context("the item is gone")?;
        let rows = totals
            .segments
            .iter()
            .map(|row| row.available + row.held)
            .sum::<u64>();
        let by_orders = totals
            .by_orders
            .iter()
            .map(|orders| orders.held)
            .sum::<u64>();
        let held = totals.segments.iter().map(|row| row.held).sum::<u64>();
        let drift = item.stock.abs_diff(rows)
            + held.abs_diff(by_orders)
            + by_orders.abs_diff(count.accepted);
        drop(ledger);
        self.drop(&name).await?;
        Ok(Run {
            count,
            drift: i64::try_from(drift)?,
            oversold: by_orders.saturating_sub(item.stock),
        })
    }

    async fn raw(&self, each: Duration, variant: Variant) -> Result<Run> {
        let (name, url) = self.database().await?;
        let rows = Arc::new(Rows::open(&url, TASKS.into(), variant).await?);
        let item = in_process::item("raw", Item::MAX_STOCK, SEGMENTS, None)?;
        for segment in 0..SEGMENTS {
            rows.fill(
                item.id.as_str(),
                segment,
                i64::try_from(item.share(segment))?,
            )
            .await?;
        }
        let runs = (0..TASKS).map(|task| {
            let (rows, item) = (Arc::clone(&rows), item.clone());
            async move { copy_for_a_while(&rows, &item, task, each).await }
        });
        let count = all(runs).await?;
        let (drift, oversold) = rows.audit(item.id.as_str(), count.accepted).await?;
        if let Some(rows) = Arc::into_inner(rows) {
            rows.close().await;
        }
        self.drop(&name).await?;
        Ok(Run {
            count,
            drift,
            oversold,
        })
    }

    /// The recorder service, from its start with full outboxes until the last entry is recorded.
    async fn service(&self, events: Events) -> Result<Run> {
        let (name, url) = self.database_with(events).await?;
        let redis = Redis::start().await?;
        let item = Arc::new(in_process::item("service", 2 * BACKLOG, SEGMENTS, None)?);
        ledger::connect(&url, 1).await?.create_item(&item).await?;
        let stock = in_process::stock(&redis.url(), ORDERS_PER_ENTRY).await?;
        stock.open(&item).await?;
        let mut crowd = Crowd::of(2 * ORDERS_PER_ENTRY * usize::from(SEGMENTS));
        let count = crowd.order(BACKLOG, {
            let (stock, item) = (Arc::clone(&stock), Arc::clone(&item));
            move |buyer| {
                let (stock, item) = (Arc::clone(&stock), Arc::clone(&item));
                async move {
                    in_process::buy(
                        &stock,
                        &item,
                        in_process::reservation(&item, buyer, Acknowledge::Accepted)?,
                    )
                    .await
                }
            }
        });
        let mut count = count.await?;
        let recording = Recording::start(&redis.url(), &url).await?;
        let began = Instant::now();
        recording.has_all(&stock, &item).await?;
        count.took = began.elapsed();
        let (drift, oversold) = recording.audit(&stock, &item, count.accepted).await?;
        recording.stop().await?;
        stock.shutdown().await;
        self.drop(&name).await?;
        Ok(Run {
            count,
            drift,
            oversold,
        })
    }
}

/// Runs the tasks concurrently. Returns recorded and rejected orders over the time of all.
async fn all<F>(runs: impl Iterator<Item = F>) -> Result<Count>
where
    F: Future<Output = Result<(u64, u64)>> + Send + 'static,
{
    let began = Instant::now();
    let mut tasks: JoinSet<_> = runs.collect();
    let mut count = Count::default();
    while let Some(recorded) = tasks.join_next().await {
        let (accepted, rejected) = recorded??;
        count.accepted += accepted;
        count.rejected += rejected;
    }
    count.took = began.elapsed();
    Ok(count)
}

/// The segments of a task.
fn of_task(task: u16) -> impl Iterator<Item = u16> + Clone {
    (task..SEGMENTS).step_by(TASKS.into())
}

/// Creating the orders is included on both sides, as the recorder's decoding would be.
async fn record_for_a_while(
    ledger: &dyn Ledger,
    item: &Item,
    task: u16,
    each: Duration,
) -> Result<(u64, u64)> {
    let wanted: Vec<_> = of_task(task)
        .map(|segment| SegmentKey {
            item: item.id.clone(),
            segment,
        })
        .collect();
    let (began, mut recorded) = (Instant::now(), (0, 0));
    let mut round = 0;
    while began.elapsed() < each {
        let claim = ledger
            .claim(&wanted, wanted.len())
            .await?
            .context("another recorder has claimed the segments")?;
        let orders = BATCH / wanted.len();
        let replays = claim
            .rows()
            .iter()
            .map(|row| replay(item, row, orders, round))
            .collect::<Result<_>>()?;
        for segment in claim.record(replays).await? {
            recorded.0 += segment.held as u64;
            recorded.1 += segment.rejected.len() as u64;
        }
        round += 1;
    }
    Ok(recorded)
}

/// A batch belongs to one segment, so it updates one counter row, where the ledger updates four.
async fn copy_for_a_while(
    rows: &Rows,
    item: &Item,
    task: u16,
    each: Duration,
) -> Result<(u64, u64)> {
    let (began, mut recorded) = (Instant::now(), 0);
    for (round, segment) in of_task(task).cycle().enumerate() {
        if began.elapsed() >= each {
            break;
        }
        let orders = (0..BATCH)
            .map(|n| order(item, segment, round, n))
            .collect::<Result<Vec<_>>>()?;
        rows.record(item.id.as_str(), segment, orders).await?;
        recorded += BATCH as u64;
    }
    Ok((recorded, 0))
}

fn replay(item: &Item, row: &SegmentRow, orders: usize, round: usize) -> Result<SegmentReplay> {
    let mut id = row.checkpoint.unwrap_or_default();
    let mut next = || {
        id = EntryId {
            ms: id.ms + 1,
            seq: 0,
        };
        id
    };
    let mut entries = Vec::new();
    if row.checkpoint.is_none() {
        entries.push(Entry {
            id: next(),
            fingerprint: 1,
            change: Change::Opened {
                units: row.allocated,
                epoch: 1,
            },
        });
    }
    let taken: Vec<_> = (0..orders)
        .map(|n| order(item, row.key.segment, round, n))
        .collect::<Result<_>>()?;
    for orders in taken.chunks(ORDERS_PER_ENTRY) {
        let change = Change::Taken {
            price: None,
            expires_at: Timestamp::now(),
            orders: orders.to_vec(),
        };
        entries.push(Entry {
            id: next(),
            fingerprint: 2,
            change,
        });
    }
    Ok(SegmentReplay {
        row: row.clone(),
        entries,
    })
}

/// Every buyer orders once, at any segment, so most orders are off home. As in real orders, ids are
/// random after the tag and the buyer's bits. Hashing them is work of the order service.
fn order(item: &Item, segment: u16, round: usize, n: usize) -> Result<TakenOrder> {
    let buyer = BuyerId::new(format!("buyer-{segment}-{round}-{n}"))?;
    let [lowest, _] = OrderId::range_of(item.id.tag(), &buyer);
    let mut bytes = *lowest.as_bytes();
    bytes[8..].copy_from_slice(&uuid::Uuid::new_v4().as_bytes()[8..]);
    Ok(TakenOrder {
        id: OrderId::from_bytes(bytes),
        buyer,
        quantity: Quantity::ONE,
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use domain::Quantity;

    use super::{Events, TestEnv, Variant};

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn every_variant_records_the_orders_that_it_counts() {
        let (env, each) = (TestEnv::open().await.unwrap(), Duration::from_millis(300));
        let runs = [
            env.ledger(each, None, Events::Written).await.unwrap(),
            env.ledger(each, None, Events::Dropped).await.unwrap(),
            env.ledger(each, Some(Quantity::ONE), Events::Written)
                .await
                .unwrap(),
            env.raw(each, Variant::Copy).await.unwrap(),
            env.raw(each, Variant::Unnest).await.unwrap(),
            env.service(Events::Written).await.unwrap(),
        ];
        for (number, run) in runs.into_iter().enumerate() {
            assert!(run.count.accepted > 0, "run {number}");
            assert_eq!(
                (run.count.rejected, run.drift, run.oversold),
                (0, 0, 0),
                "run {number}"
            );
        }
    }
}
