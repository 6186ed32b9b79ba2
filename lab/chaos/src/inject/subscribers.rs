//! Receivers of webhooks and brokers that fail.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rand::{RngExt, rngs::StdRng, seq::SliceRandom};
use testbed::Traffic;
use tokio::time::sleep;

use super::Injected;
use crate::{
    env::{RECEIVER_TIMEOUT, TestEnv},
    plan::Round,
    subscribers::{Behavior, Broker},
};

/// Time for which connections are reset, so that both ends notice.
const RESET_DURATION: Duration = Duration::from_millis(20);

/// One receiver, or all in one of three cases, accepts nothing for a while, or only some requests.
pub(super) async fn receivers(
    env: &mut TestEnv,
    round: &Round,
    rng: &mut StdRng,
) -> Result<Injected> {
    let receivers = &env.subscribers.receivers;
    let mut done = Vec::new();
    for victim in victims(receivers.len(), rng) {
        let behaviors = behaviors(rng);
        let words: Vec<_> = behaviors.iter().map(ToString::to_string).collect();
        done.push(format!("{} {}", receivers[victim].name, words.join(", ")));
        receivers[victim].behave(behaviors);
    }
    // An answer that does not come must be missed.
    let lasts = (round.lasts * 2).max(RECEIVER_TIMEOUT.mul_f32(1.5));
    sleep(lasts).await;
    for receiver in receivers {
        receiver.behave(vec![Behavior::Accept]);
    }
    Ok(Injected::now(format!("{} for {lasts:?}", done.join("; "))))
}

/// One failing behavior, or all of them in turn with accepted requests in between.
fn behaviors(rng: &mut StdRng) -> Vec<Behavior> {
    let failing = Behavior::FAILING;
    if rng.random_ratio(2, 3) {
        return vec![failing[rng.random_range(0..failing.len())]];
    }
    let mut all = failing.to_vec();
    all.extend([Behavior::Accept; 4]);
    all.shuffle(rng);
    all
}

pub(super) async fn brokers_killed(
    env: &mut TestEnv,
    round: &Round,
    rng: &mut StdRng,
) -> Result<Injected> {
    let brokers = &mut env.subscribers.brokers;
    ensure!(!brokers.is_empty(), "this environment has no brokers");
    let victims = victims(brokers.len(), rng);
    for victim in &victims {
        brokers[*victim].kill().await?;
    }
    sleep(round.lasts).await;
    for victim in &victims {
        let restarted = brokers[*victim].restart().await;
        restarted.context("the broker could not be restarted")?;
    }
    Ok(Injected::now(format!(
        "{} killed, and restarted after {:?}",
        names(brokers, &victims),
        round.lasts
    )))
}

pub(super) async fn brokers_cut(
    env: &mut TestEnv,
    round: &Round,
    rng: &mut StdRng,
) -> Result<Injected> {
    let brokers = &env.subscribers.brokers;
    ensure!(!brokers.is_empty(), "this environment has no brokers");
    let victims = victims(brokers.len(), rng);
    let traffic = [
        Traffic::Hold,
        Traffic::HoldRequests,
        Traffic::HoldAnswers,
        Traffic::Reset,
        Traffic::Delay(Duration::from_millis(80)),
    ];
    let traffic = traffic[rng.random_range(0..traffic.len())];
    let lost = rng.random_bool(0.5);
    let lasts = (round.lasts * 2).max(RECEIVER_TIMEOUT.mul_f32(1.5));
    let set = |traffic| {
        victims
            .iter()
            .for_each(|victim| brokers[*victim].proxy.set(traffic))
    };
    set(traffic);
    sleep(lasts).await;
    if lost {
        set(Traffic::Reset);
        sleep(RESET_DURATION).await;
    }
    set(Traffic::Pass);
    let end = if lost {
        "held traffic was lost"
    } else {
        "held traffic arrived late"
    };
    let names = names(brokers, &victims);
    Ok(Injected::now(format!(
        "{traffic:?} for {names} during {lasts:?}; {end}"
    )))
}

/// One of so many, and in one of three cases all.
fn victims(count: usize, rng: &mut StdRng) -> Vec<usize> {
    if rng.random_ratio(1, 3) {
        (0..count).collect()
    } else {
        vec![rng.random_range(0..count)]
    }
}

fn names(brokers: &[Broker], victims: &[usize]) -> String {
    let names: Vec<_> = victims
        .iter()
        .map(|victim| format!("broker {}", brokers[*victim].kind))
        .collect();
    names.join(", ")
}
