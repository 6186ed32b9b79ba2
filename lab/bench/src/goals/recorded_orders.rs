//! P1: recorded orders over HTTP, compared with the bare handler and with three services that
//! record straight into PostgreSQL.

use anyhow::Result;
use client::Durability;

use crate::{
    baseline::{Kind, around},
    buyers::{CROWD, Crowd},
    goal::{Bound, Line, Measured, Sample},
    options::Options,
    sale::{Terms, sell},
    test_env::{SEGMENTS, TestEnv},
};

/// Segments on one server, for comparison: each has batches of its own.
const MANY_SEGMENTS: u16 = 8;

/// Each repeat measures each on new servers, the baselines before and after the figure, and the
/// bare handler closest to it.
pub async fn measure(options: &Options) -> Result<Measured> {
    let (crowd, mut lines) = (Crowd::new(CROWD)?, lines(options));
    let mut many = many_segments(options);
    for _ in 0..options.repeats {
        let ours = around(
            Kind::Bare,
            options,
            &crowd,
            recorded(options, &crowd, SEGMENTS),
        );
        let ours = around(Kind::Duties, options, &crowd, ours);
        let ours = around(Kind::Batches, options, &crowd, ours);
        let (transactions, (batches, (duties, (ceiling, (figure, sample))))) =
            around(Kind::Transaction, options, &crowd, ours).await?;
        let baselines = [ceiling, transactions, duties, batches];
        for (line, baseline) in lines.iter_mut().zip(baselines) {
            line.samples.push(Sample {
                figure,
                baseline,
                ..sample
            });
        }
        let in_many = recorded(options, &crowd, MANY_SEGMENTS);
        let (ceiling, (figure, sample)) = around(Kind::Bare, options, &crowd, in_many).await?;
        many.samples.push(Sample {
            figure,
            baseline: ceiling,
            ..sample
        });
    }
    lines.push(many);
    Ok(Measured {
        goal: "P1",
        title: "recorded orders (201 after the ledger's commit) over HTTP",
        lines,
    })
}

/// Description of the loads over HTTP.
pub fn load_setting(options: &Options) -> String {
    let Options {
        connections,
        seconds,
        ..
    } = options;
    format!(
        "closed loop, wrk -t1 -c{connections} -d{seconds}s after a warm-up, {CROWD} buyers; of the baseline half the time before the figure and half after it"
    )
}

async fn recorded(options: &Options, crowd: &Crowd, segments: u16) -> Result<(f64, Sample)> {
    let env = TestEnv::start().await?;
    let Options {
        connections,
        seconds,
        ..
    } = *options;
    let (answered, sample) = sell(
        &env,
        crowd,
        Terms {
            item: "p1",
            segments,
            durability: Durability::Recorded,
            status: 201,
            connections,
            seconds,
        },
    )
    .await?;
    Ok((answered.per_second(), sample))
}

fn roles_and_load(options: &Options) -> String {
    format!(
        "every role in one process, PostgreSQL with fsync, Redis with AOF always, all on this machine; {}",
        load_setting(options)
    )
}

fn many_segments(options: &Options) -> Line {
    Line {
        figure: format!("recorded orders, {MANY_SEGMENTS} segments"),
        baseline: "bare axum handler".into(),
        unit: "orders/s",
        bound: Bound::None,
        setting: format!(
            "{MANY_SEGMENTS} segments on one server, {}",
            roles_and_load(options)
        ),
        samples: Vec::new(),
    }
}

fn lines(options: &Options) -> Vec<Line> {
    let line = |baseline: &str, bound, setting: &str| Line {
        figure: "recorded orders".into(),
        baseline: baseline.into(),
        unit: "orders/s",
        bound,
        setting: format!("compared with {baseline}: {setting}"),
        samples: Vec::new(),
    };
    let all = format!(
        "one item, one segment for each master, {}",
        roles_and_load(options)
    );
    vec![
        line("bare axum handler", Bound::AtLeast(0.5), &all),
        line(
            "one SQL transaction per order",
            Bound::AtLeast(22.0),
            "INSERT, UPDATE of one row and COMMIT, 16 connections, behind the same HTTP layer and check of tokens; the rest as above",
        ),
        line(
            "natural batches with the same duties",
            Bound::AtLeast(1.0),
            "straight into PostgreSQL, no Redis, no log: one statement for all queued orders inserts them, counts and bounds what each buyer has, \
             and updates the stock; an index of the holds; a repeat gets the first answer; two writers, behind the same HTTP layer and check of \
             tokens; the rest as above",
        ),
        line(
            "natural batches straight into PostgreSQL",
            Bound::None,
            "no Redis, no limit for a buyer, no log: INSERT from UNNEST and UPDATE in one statement for all queued orders, two writers, behind the same HTTP layer \
             and check of tokens; the rest as above",
        ),
    ]
}
