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
/// PostgreSQL's sessions report what they did a second later if they go on, and ten seconds later
/// if they do not (`PGSTAT_IDLE_INTERVAL`).
const REPORT_DELAY: Duration = Duration::from_secs(11);
/// What a call of Redis is: a script, whatever commands it runs, or a scan of an item's buyers.
const CALLS: [&str; 3] = ["cmdstat_evalsha", "cmdstat_eval", "cmdstat_hscan"];

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
    // What the warm-up did must not count.
    sleep(REPORT_DELAY).await;
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

/// Reads the counters of the stores themselves: calls and transactions.
struct Meter {
    redis: MultiplexedConnection,
    postgres: PgConnection,
}

impl Meter {
    async fn connect(env: &TestEnv) -> Result<Self> {
        let redis = testbed::patient_connection(&env.redis.url()).await?;
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
        let stats: redis::InfoDict = redis::cmd("INFO")
            .arg("commandstats")
            .query_async(&mut self.redis)
            .await?;
        let redis = CALLS
            .iter()
            .filter_map(|command| stats.get::<String>(command))
            .map(|stats| calls_in(&stats))
            .sum::<Result<_>>()?;
        let transactions = "SELECT (xact_commit + xact_rollback)::float8 FROM pg_stat_database WHERE datname = 'bench'";
        let (sql,) = sqlx::query_as::<_, (f64,)>(transactions)
            .fetch_one(&mut self.postgres)
            .await?;
        Ok(Calls { redis, sql })
    }
}

/// Number of calls in a line such as `calls=3,usec=16,usec_per_call=5.33`.
fn calls_in(stats: &str) -> Result<f64> {
    let calls = stats.split([',', '=']).nth(1);
    let calls = calls.with_context(|| format!("no calls in {stats:?}"))?;
    Ok(calls.parse()?)
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
            Bound::AtLeast(0.95),
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
            calls("scripts and scans by Redis' own counter"),
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
    use super::{Calls, calls_in};

    #[test]
    fn calls_are_read_from_redis_own_statistics() {
        let stats = "calls=90210,usec=16,usec_per_call=5.33,rejected_calls=0,failed_calls=0";
        assert_eq!(calls_in(stats).unwrap(), 90_210.0);
        calls_in("calls=x").unwrap_err();
        calls_in("").unwrap_err();
    }

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
