//! P2: the cost of a refusal once an item is sold out.
//!
//! The service always checks in Redis for a buyer who holds units, since the order may be a retry.
//! Therefore a few early buyers buy all units, and the measured refusals go to other, late buyers.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use client::Durability;
use redis::aio::MultiplexedConnection;
use sqlx::{Connection, PgConnection};
use tokio::time::sleep;

use super::recorded_orders::load_setting;
use crate::{
    baseline::{Kind, around},
    buyers::{CROWD, Crowd},
    goal::{Bound, Line, Measured, Sample},
    options::Options,
    sale::{Expected, History, settle},
    test_env::TestEnv,
    wrk::{Load, load},
};

const ITEM: &str = "p2";
/// Sold within the warm-up.
const STOCK: u64 = 1000;
const WARM_SECONDS: u64 = 2;
/// Buyers of the whole stock.
const EARLY: usize = 64;
/// PostgreSQL's sessions report what they did with a delay of a second at most.
const REPORT_DELAY: Duration = Duration::from_millis(1500);

/// Each repeat is Stockade on new servers, and the bare handler before and after.
pub async fn measure(options: &Options) -> Result<Measured> {
    let (early, late, mut lines) = (
        Crowd::numbered(CROWD..CROWD + EARLY)?,
        Crowd::new(CROWD)?,
        lines(options),
    );
    for _ in 0..options.repeats {
        let (
            ceiling,
            Refused {
                per_second,
                calls,
                sample,
            },
        ) = around(Kind::Bare, options, &late, refuse(options, &early, &late)).await?;
        let answers = sample.rejected as f64;
        let per_answer = |calls: f64| Sample {
            figure: calls / answers,
            baseline: 1.0,
            ..sample
        };
        let samples = [
            Sample {
                figure: per_second,
                baseline: ceiling,
                ..sample
            },
            per_answer(calls.redis),
            per_answer(calls.sql),
        ];
        for (line, sample) in lines.iter_mut().zip(samples) {
            line.samples.push(sample);
        }
    }
    Ok(Measured {
        goal: "P2",
        title: "`sold_out` answers once an item is empty",
        lines,
    })
}

/// Result of the load on a sold-out item.
struct Refused {
    per_second: f64,
    calls: Calls,
    sample: Sample,
}

async fn refuse(options: &Options, early: &Crowd, late: &Crowd) -> Result<Refused> {
    let Options {
        connections,
        seconds,
        ..
    } = *options;
    let env = TestEnv::start().await?;
    let mut meter = Meter::connect(&env).await?;
    env.open(ITEM, STOCK, Durability::Recorded).await?;
    let order = Load {
        run: "early",
        ..Load::warm(&env.url, ITEM, early.tokens(), connections, WARM_SECONDS)
    };
    let warm = load(order).await?;
    ensure!(
        warm.statuses
            .keys()
            .all(|status| [201, 409].contains(status)),
        "orders of {ITEM} were answered {:?}",
        warm.statuses
    );
    let late = Load {
        tokens: late.tokens(),
        run: "warm",
        ..order
    };
    let warm_late = load(late).await?;
    ensure!(
        warm_late.statuses.keys().eq([&409]),
        "orders of {ITEM} were answered {:?}, not all 409",
        warm_late.statuses
    );
    let before = History::read(&env, ITEM).await?;
    ensure!(
        env.audit(ITEM).await?.available == 0,
        "{ITEM} was not sold out by the warm-up: {:?}",
        warm.statuses
    );
    // Background calls are not caused by the answers, and are subtracted.
    let idle = meter.during(sleep(Duration::from_secs(seconds))).await?.0;
    let (busy, answered) = meter
        .during(load(Load {
            run: "run",
            seconds,
            statuses: false,
            ..late
        }))
        .await?;
    let answered = answered?;
    let after = History::read(&env, ITEM).await?;
    let sample = settle(Expected::SoldOut, connections, &answered, &before, &after)?;
    Ok(Refused {
        per_second: answered.per_second(),
        calls: busy.beyond(idle),
        sample,
    })
}

/// Calls that the stores received.
#[derive(Debug, Clone, Copy)]
struct Calls {
    redis: f64,
    sql: f64,
}

impl Calls {
    /// Calls in addition to those of an idle service.
    fn beyond(self, idle: Self) -> Self {
        Self {
            redis: (self.redis - idle.redis).max(0.0),
            sql: (self.sql - idle.sql).max(0.0),
        }
    }
}

/// Reads the counters of the stores themselves: commands, those of scripts included, and
/// transactions.
struct Meter {
    redis: MultiplexedConnection,
    postgres: PgConnection,
}

impl Meter {
    async fn connect(env: &TestEnv) -> Result<Self> {
        let redis = redis::Client::open(env.redis.url())?
            .get_multiplexed_async_connection()
            .await?;
        // From another database, so that our own transactions are not counted.
        let postgres = PgConnection::connect(&env.postgres.url("postgres")).await?;
        Ok(Self { redis, postgres })
    }

    /// Calls during `what`, and its result.
    async fn during<T>(&mut self, what: impl Future<Output = T>) -> Result<(Calls, T)> {
        let before = self.read().await?;
        let done = what.await;
        sleep(REPORT_DELAY).await;
        let after = self.read().await?;
        Ok((
            Calls {
                redis: after.redis - before.redis,
                sql: after.sql - before.sql,
            },
            done,
        ))
    }

    async fn read(&mut self) -> Result<Calls> {
        let info: redis::InfoDict = redis::cmd("INFO")
            .arg("stats")
            .query_async(&mut self.redis)
            .await?;
        let redis: f64 = info
            .get("total_commands_processed")
            .context("INFO has no total_commands_processed")?;
        let transactions = "SELECT (xact_commit + xact_rollback)::float8 FROM pg_stat_database WHERE datname = 'bench'";
        let (sql,) = sqlx::query_as::<_, (f64,)>(transactions)
            .fetch_one(&mut self.postgres)
            .await?;
        Ok(Calls { redis, sql })
    }
}

fn lines(options: &Options) -> Vec<Line> {
    let line = |figure: &str, baseline: &str, unit, bound, setting: String| Line {
        figure: figure.into(),
        baseline: baseline.into(),
        unit,
        bound,
        setting,
        samples: Vec::new(),
    };
    let calls = |what| {
        format!(
            "{what}, less those of as many seconds without a request; the rest are the reads, at most ten a second, that refresh the sold-out cache"
        )
    };
    vec![
        line(
            "sold_out answers",
            "bare axum handler",
            "answers/s",
            Bound::AtLeast(0.9),
            format!(
                "an item of {STOCK} units that {EARLY} others have bought; {}",
                load_setting(options)
            ),
        ),
        line(
            "Redis calls per refusal",
            "one for each",
            "calls/answer",
            Bound::AtMost(0.001),
            calls("commands by Redis' own counter, those inside of scripts included"),
        ),
        line(
            "SQL transactions per refusal",
            "one for each",
            "calls/answer",
            Bound::AtMost(0.001),
            calls("transactions by PostgreSQL's own counter"),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::Calls;

    #[test]
    fn background_calls_are_subtracted_but_never_below_zero() {
        let calls = Calls {
            redis: 120.0,
            sql: 3.0,
        }
        .beyond(Calls {
            redis: 100.0,
            sql: 4.0,
        });
        assert_eq!((calls.redis, calls.sql), (20.0, 0.0));
    }
}
