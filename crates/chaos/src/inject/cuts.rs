//! Partitions: nothing gets through, or only one way, and then everything arrives late or is lost.

use std::time::Duration;

use anyhow::{Result, ensure};
use rand::{RngExt, rngs::StdRng};
use testbed::{Proxy, Traffic};
use tokio::time::sleep;

use super::Injected;
use crate::{
    fault::Fault,
    plan::Round,
    stage::{Process, Stage},
};

/// A reset that nobody sees would be none.
const RESET: Duration = Duration::from_millis(20);

pub(super) async fn cut(stage: &mut Stage, round: &Round, dice: &mut StdRng) -> Result<Injected> {
    let victims = victims(stage, dice);
    let traffic = [
        Traffic::Hold,
        Traffic::HoldRequests,
        Traffic::HoldAnswers,
        Traffic::Reset,
        Traffic::Delay(Duration::from_millis(80)),
    ];
    let (traffic, lost) = (
        traffic[dice.random_range(0..traffic.len())],
        dice.random_bool(0.5),
    );
    let lasts = round.lasts * 2;
    set(stage, round.fault, &victims, traffic)?;
    sleep(lasts).await;
    if lost {
        set(stage, round.fault, &victims, Traffic::Reset)?;
        sleep(RESET).await;
    }
    set(stage, round.fault, &victims, Traffic::Pass)?;
    let names: Vec<_> = victims
        .iter()
        .map(|victim| stage.processes[*victim].name.clone())
        .collect();
    let end = if lost {
        "what was held was lost"
    } else {
        "what was held arrived late"
    };
    Ok(Injected::now(format!(
        "{traffic:?} for {} during {lasts:?}; {end}",
        names.join(", ")
    )))
}

/// One process, and every third time all of them.
fn victims(stage: &Stage, dice: &mut StdRng) -> Vec<usize> {
    let all = 0..stage.processes.len();
    if dice.random_ratio(1, 3) {
        all.collect()
    } else {
        vec![dice.random_range(all)]
    }
}

fn set(stage: &Stage, fault: Fault, victims: &[usize], traffic: Traffic) -> Result<()> {
    let way = |process: &Process| -> Option<()> {
        let proxy: &Proxy = if fault == Fault::RedisCut {
            process.to_redis.as_ref()?
        } else {
            process.to_ledger.as_ref()?
        };
        proxy.set(traffic);
        Some(())
    };
    let set = victims
        .iter()
        .filter_map(|victim| way(&stage.processes[*victim]))
        .count();
    ensure!(
        set == victims.len(),
        "nothing stands between the processes of this stage and what they are to be cut from"
    );
    Ok(())
}
