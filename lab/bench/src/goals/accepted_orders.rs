//! P1a: accepted orders over HTTP, which are acknowledged once Redis has flushed them to disk.
//!
//! They are recorded too, and that takes processor time. So they are measured twice: with the
//! recorder beside them, and with a recorder that starts after the last answer.

use anyhow::Result;
use client::Durability;

use super::recorded_orders::load_setting;
use crate::{
    baseline::{Kind, around},
    buyers::{CROWD, Crowd},
    goal::{Bound, Line, Measured, Sample},
    options::Options,
    sale::{Begun, Terms, sell},
    test_env::{SEGMENTS, TestEnv},
};

/// Each repeat measures both on new servers, and the bare handler before and after each.
pub async fn measure(options: &Options) -> Result<Measured> {
    let crowd = Crowd::new(CROWD)?;
    let (mut beside, mut afterwards) = (recorder_beside(options), recorder_afterwards(options));
    for _ in 0..options.repeats {
        let (baseline, sample) =
            around(Kind::Bare, options, &crowd, accepted(options, &crowd)).await?;
        beside.samples.push(Sample { baseline, ..sample });
        let ours = accepted_before_recording(options, &crowd);
        let (baseline, sample) = around(Kind::Bare, options, &crowd, ours).await?;
        afterwards.samples.push(Sample { baseline, ..sample });
    }
    Ok(Measured {
        goal: "P1a",
        title: "accepted orders (202 after the script) over HTTP",
        lines: vec![beside, afterwards],
    })
}

fn recorder_beside(options: &Options) -> Line {
    Line {
        figure: "accepted orders".into(),
        baseline: "bare axum handler".into(),
        unit: "orders/s",
        bound: Bound::AtLeast(0.55),
        setting: format!(
            "as P1, answered when Redis has flushed them; the recorder writes them to the ledger meanwhile; {}",
            load_setting(options)
        ),
        samples: Vec::new(),
    }
}

fn recorder_afterwards(options: &Options) -> Line {
    Line {
        figure: "accepted orders, recorded afterwards".into(),
        bound: Bound::AtLeast(0.8),
        setting: format!(
            "the same, but the recorder starts when the load has ended; the audit follows; {}",
            load_setting(options)
        ),
        ..recorder_beside(options)
    }
}

fn terms(options: &Options) -> Terms<'static> {
    Terms {
        item: "p1a",
        segments: SEGMENTS,
        durability: Durability::Accepted,
        status: 202,
        connections: options.connections,
        seconds: options.seconds,
    }
}

async fn accepted(options: &Options, crowd: &Crowd) -> Result<Sample> {
    let env = TestEnv::start().await?;
    let (answered, sample) = sell(&env, crowd, terms(options)).await?;
    Ok(Sample {
        figure: answered.per_second(),
        ..sample
    })
}

/// The warm-up is recorded before the load, so that the history can be read.
async fn accepted_before_recording(options: &Options, crowd: &Crowd) -> Result<Sample> {
    let mut env = TestEnv::without_recorder().await?;
    env.start_recorder().await?;
    let begun = Begun::begin(&env, crowd, terms(options)).await?;
    env.stop_recorder();
    let answered = begun.load(&env, crowd).await?;
    env.start_recorder().await?;
    Ok(Sample {
        figure: answered.per_second(),
        ..begun.settle(&env, &answered).await?
    })
}
