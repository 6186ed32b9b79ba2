//! P1: recorded orders over HTTP, beside the bare handler and beside the ways to record them straight into PostgreSQL.

use anyhow::Result;

use crate::{
    buyers::{CROWD, Crowd},
    cli::Bench,
    goal::{Bound, Line, Measured, Sample},
    rival::{Kind, around},
    sale::{Terms, sell},
    site::Site,
};

/// Each repeat is one of each on new servers, the baselines before and after, and the bare handler closest.
pub async fn measure(bench: &Bench) -> Result<Measured> {
    let (crowd, mut lines) = (Crowd::new(CROWD)?, lines(bench));
    for _ in 0..bench.repeats {
        let ours = around(Kind::Bare, bench, &crowd, recorded(bench, &crowd));
        let ours = around(Kind::Batches, bench, &crowd, ours);
        let (transactions, (batches, (ceiling, (figure, sample)))) =
            around(Kind::Transaction, bench, &crowd, ours).await?;
        for (line, baseline) in lines.iter_mut().zip([ceiling, transactions, batches]) {
            line.samples.push(Sample {
                figure,
                baseline,
                ..sample
            });
        }
    }
    Ok(Measured {
        goal: "P1",
        title: "recorded orders (201 after the ledger's commit) over HTTP",
        lines,
    })
}

/// How the loads over HTTP are made.
pub fn load_setting(bench: &Bench) -> String {
    let Bench {
        connections,
        seconds,
        ..
    } = bench;
    format!(
        "closed loop, wrk -t1 -c{connections} -d{seconds}s after a warm-up, {CROWD} buyers; of the baseline half the time before the figure and half after it"
    )
}

async fn recorded(bench: &Bench, crowd: &Crowd) -> Result<(f64, Sample)> {
    let site = Site::start().await?;
    let Bench {
        connections,
        seconds,
        ..
    } = *bench;
    let (answered, sample) = sell(
        &site,
        crowd,
        Terms {
            item: "p1",
            durability: "recorded",
            status: 201,
            connections,
            seconds,
        },
    )
    .await?;
    Ok((answered.per_second(), sample))
}

fn lines(bench: &Bench) -> Vec<Line> {
    let line = |baseline: &str, bound, setting: &str| Line {
        figure: "recorded orders".into(),
        baseline: baseline.into(),
        unit: "orders/s",
        bound,
        setting: format!("beside {baseline}: {setting}"),
        samples: Vec::new(),
    };
    let all = format!(
        "one item, 8 segments, every role in one process, PostgreSQL with fsync, Redis with AOF always, all on this machine; {}",
        load_setting(bench)
    );
    vec![
        line("bare axum handler", Bound::AtLeast(0.6), &all),
        line(
            "one SQL transaction per order",
            Bound::AtLeast(20.0),
            "INSERT, UPDATE of one row and COMMIT, 16 connections, behind the same HTTP layer and check of tokens; the rest as above",
        ),
        line(
            "natural batches straight into PostgreSQL",
            Bound::AtLeast(1.2),
            "no Redis, no limit for a buyer, no log: INSERT from UNNEST and UPDATE in one statement for all that wait, two writers, behind the same HTTP layer \
             and check of tokens; the rest as above",
        ),
    ]
}
