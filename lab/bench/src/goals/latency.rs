//! P5: latency of a recorded order at half of the maximum rate.

use std::sync::Arc;

use anyhow::{Result, ensure};
use client::Durability;
use tokio_util::sync::CancellationToken;

use crate::{
    buyers::{self, CROWD, Crowd},
    goal::{Bound, Line, Measured, Sample},
    open_loop::{Latencies, OpenLoop},
    options::Options,
    sale::{PLENTY, Terms, sell},
    test_env::{SEGMENTS, TestEnv},
};

const ITEM: &str = "p5";
const P99_MS_MAX: f64 = 25.0;
const P50_MS_MAX: f64 = 8.0;
/// Enough that a request rarely finds its connection still waiting for an answer.
const CONNECTIONS: u64 = 1024;
const WARM_SECONDS: f64 = 1.0;

/// Factor of the repeats: in a few seconds, one hiccup of the machine already decides the p99.
const REPEATS_FACTOR: usize = 2;

/// Each repeat finds the maximum first, on the same servers.
pub async fn measure(options: &Options) -> Result<Measured> {
    let (crowd, tokens) = (
        Crowd::new(CROWD)?,
        (0..CROWD)
            .map(buyers::token)
            .collect::<Result<Arc<[_]>>>()?,
    );
    let (mut rates, mut late, mut lines) = (Vec::new(), Vec::new(), lines());
    for _ in 0..REPEATS_FACTOR * options.repeats {
        let env = TestEnv::start().await?;
        let rate = half_of_the_maximum(options, &env, &crowd).await?;
        let (latencies, sample) = at_a_rate(options, &env, Arc::clone(&tokens), rate).await?;
        for ((line, _), percent) in lines.iter_mut().zip([99.0, 50.0, 99.9]) {
            line.samples.push(Sample {
                figure: latencies.answered_within(percent),
                ..sample
            });
        }
        rates.push(format!("{rate:.0}"));
        late.push(format!("{:.1}", latencies.begun_within(99.0)));
    }
    let setting = format!(
        "open loop, {} orders/s in the repeats, half of what a closed loop with {} connections got on the same servers; {} s over {CONNECTIONS} \
         connections, latency from when an order was due; the driver itself began 99 of 100 within {} ms, which is part of it",
        rates.join(", "),
        options.connections,
        options.seconds,
        late.join(", ")
    );
    let lines = lines
        .into_iter()
        .map(|(line, bound_ms)| finished(line, bound_ms, &setting))
        .collect();
    Ok(Measured {
        goal: "P5",
        title: "latency of a recorded order at half of the maximum rate",
        lines,
    })
}

async fn half_of_the_maximum(options: &Options, env: &TestEnv, crowd: &Crowd) -> Result<f64> {
    let Options {
        connections,
        seconds,
        ..
    } = *options;
    let terms = Terms {
        item: "p5-maximum",
        segments: SEGMENTS,
        durability: Durability::Recorded,
        status: 201,
        connections,
        seconds,
    };
    let (answered, sample) = sell(env, crowd, terms).await?;
    ensure!(
        sample.drift == 0 && sample.oversold == 0,
        "drift {} and oversold {} at the maximum rate",
        sample.drift,
        sample.oversold
    );
    Ok((answered.per_second() / 2.0).max(1.0))
}

async fn at_a_rate(
    options: &Options,
    env: &TestEnv,
    tokens: Arc<[String]>,
    rate: f64,
) -> Result<(Latencies, Sample)> {
    env.open(ITEM, PLENTY, Durability::Recorded).await?;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a number of orders"
    )]
    let in_seconds = |seconds: f64| (rate * seconds) as u64;
    let (warm, orders) = (in_seconds(WARM_SECONDS), in_seconds(options.seconds as f64));
    let address = env.url.trim_start_matches("http://").to_owned();
    let load = OpenLoop {
        address,
        item: ITEM.into(),
        tokens,
        status: 201,
        connections: CONNECTIONS,
        rate,
        warm,
        orders,
        run: "open".into(),
        until: CancellationToken::new(),
    };
    let latencies = load.run().await?;
    let audit = env.audit(ITEM).await?;
    ensure!(
        audit.held == warm + orders,
        "{} orders were acknowledged, and the ledger has {}",
        warm + orders,
        audit.held
    );
    Ok((
        latencies,
        Sample {
            accepted: orders,
            drift: i64::try_from(audit.drift)?,
            oversold: audit.oversold,
            ..Sample::default()
        },
    ))
}

/// The lines, each with its bound in milliseconds.
fn lines() -> [(Line, f64); 3] {
    let line = |figure: &str, bound| Line {
        figure: figure.into(),
        baseline: "bound".into(),
        unit: "ms",
        bound,
        setting: String::new(),
        samples: Vec::new(),
    };
    [
        (
            line("p99 of recorded orders", Bound::AtMost(1.0)),
            P99_MS_MAX,
        ),
        (line("p50", Bound::AtMost(1.0)), P50_MS_MAX),
        // No bound: p99.9 is compared with the bound of p99.
        (line("p99.9", Bound::None), P99_MS_MAX),
    ]
}

fn finished(mut line: Line, bound_ms: f64, setting: &str) -> Line {
    for sample in &mut line.samples {
        sample.baseline = bound_ms;
    }
    setting.clone_into(&mut line.setting);
    line
}
