//! P1a: accepted orders over HTTP, which are acknowledged once Redis has flushed them to disk.

use anyhow::Result;
use client::Durability;

use super::recorded_orders::load_setting;
use crate::{
    baseline::{Kind, around},
    buyers::{CROWD, Crowd},
    goal::{Bound, Line, Measured, Sample},
    options::Options,
    sale::{Terms, sell},
    test_env::TestEnv,
};

/// Each repeat measures Stockade on new servers, and the bare handler before and after it.
pub async fn measure(options: &Options) -> Result<Measured> {
    let (crowd, mut samples) = (Crowd::new(CROWD)?, Vec::new());
    for _ in 0..options.repeats {
        let (baseline, sample) =
            around(Kind::Bare, options, &crowd, accepted(options, &crowd)).await?;
        samples.push(Sample { baseline, ..sample });
    }
    let line = Line {
        figure: "accepted orders".into(),
        baseline: "bare axum handler".into(),
        unit: "orders/s",
        bound: Bound::AtLeast(0.8),
        setting: format!(
            "as P1, answered when Redis has flushed them; the recorder writes them to the ledger meanwhile; {}",
            load_setting(options)
        ),
        samples,
    };
    Ok(Measured {
        goal: "P1a",
        title: "accepted orders (202 after the script) over HTTP",
        lines: vec![line],
    })
}

async fn accepted(options: &Options, crowd: &Crowd) -> Result<Sample> {
    let Options {
        connections,
        seconds,
        ..
    } = *options;
    let env = TestEnv::start().await?;
    let (answered, sample) = sell(
        &env,
        crowd,
        Terms {
            item: "p1a",
            durability: Durability::Accepted,
            status: 202,
            connections,
            seconds,
        },
    )
    .await?;
    Ok(Sample {
        figure: answered.per_second(),
        ..sample
    })
}
