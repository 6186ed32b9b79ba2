//! P1a: accepted orders over HTTP, which are acknowledged when Redis has them on its disk.

use anyhow::Result;

use super::recorded_orders::load_setting;
use crate::{
    buyers::{CROWD, Crowd},
    cli::Bench,
    goal::{Bound, Line, Measured, Sample},
    rival::{Kind, around},
    sale::{Terms, sell},
    site::Site,
};

/// Each repeat is Stockade on new servers, and the bare handler before and after.
pub async fn measure(bench: &Bench) -> Result<Measured> {
    let (crowd, mut samples) = (Crowd::new(CROWD)?, Vec::new());
    for _ in 0..bench.repeats {
        let (baseline, sample) = around(Kind::Bare, bench, &crowd, accepted(bench, &crowd)).await?;
        samples.push(Sample { baseline, ..sample });
    }
    let line = Line {
        figure: "accepted orders".into(),
        baseline: "bare axum handler".into(),
        unit: "orders/s",
        bound: Bound::AtLeast(0.8),
        setting: format!(
            "as P1, answered when Redis has flushed them; the recorder writes them to the ledger meanwhile; {}",
            load_setting(bench)
        ),
        samples,
    };
    Ok(Measured {
        goal: "P1a",
        title: "accepted orders (202 after the script) over HTTP",
        lines: vec![line],
    })
}

async fn accepted(bench: &Bench, crowd: &Crowd) -> Result<Sample> {
    let Bench {
        connections,
        seconds,
        ..
    } = *bench;
    let site = Site::start().await?;
    let (answered, sample) = sell(
        &site,
        crowd,
        Terms {
            item: "p1a",
            durability: "accepted",
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
