//! Partitions: no traffic passes, or only in one direction. Held traffic then arrives late or is
//! lost.

use std::time::Duration;

use anyhow::{Result, ensure};
use rand::{RngExt, rngs::StdRng};
use testbed::{Proxy, Traffic};
use tokio::time::sleep;

use super::Injected;
use crate::{
    env::{Process, TestEnv},
    fault::Fault,
    plan::Round,
};

/// Time for which connections are reset, so that both ends notice.
const RESET_DURATION: Duration = Duration::from_millis(20);

pub(super) async fn cut(env: &mut TestEnv, round: &Round, rng: &mut StdRng) -> Result<Injected> {
    let victims = victims(env, rng);
    let traffic = [
        Traffic::Hold,
        Traffic::HoldRequests,
        Traffic::HoldAnswers,
        Traffic::Reset,
        Traffic::Delay(Duration::from_millis(80)),
    ];
    let (traffic, lost) = (
        traffic[rng.random_range(0..traffic.len())],
        rng.random_bool(0.5),
    );
    let lasts = round.lasts * 2;
    set(env, round.fault, &victims, traffic)?;
    sleep(lasts).await;
    if lost {
        set(env, round.fault, &victims, Traffic::Reset)?;
        sleep(RESET_DURATION).await;
    }
    set(env, round.fault, &victims, Traffic::Pass)?;
    let end = if lost {
        "held traffic was lost"
    } else {
        "held traffic arrived late"
    };
    Ok(Injected::now(format!(
        "{traffic:?} for {} during {lasts:?}; {end}",
        env.names(&victims)
    )))
}

/// One process, and in one of three cases all of them.
fn victims(env: &TestEnv, rng: &mut StdRng) -> Vec<usize> {
    let all = 0..env.processes.len();
    if rng.random_ratio(1, 3) {
        all.collect()
    } else {
        vec![rng.random_range(all)]
    }
}

fn set(env: &TestEnv, fault: Fault, victims: &[usize], traffic: Traffic) -> Result<()> {
    let cut = |process: &Process| -> Option<()> {
        let proxy: &Proxy = if fault == Fault::RedisCut {
            process.redis_proxy.as_ref()?
        } else {
            process.ledger_proxy.as_ref()?
        };
        proxy.set(traffic);
        Some(())
    };
    let set = victims
        .iter()
        .filter_map(|victim| cut(&env.processes[*victim]))
        .count();
    ensure!(
        set == victims.len(),
        "the processes of this environment have no proxy to the store that is to be cut off"
    );
    Ok(())
}
