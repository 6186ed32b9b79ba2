//! A cluster grows: slots of items on sale move to a master that has just joined.

use std::{collections::BTreeSet, time::Duration};

use anyhow::{Result, bail};
use rand::{RngExt, rngs::StdRng, seq::SliceRandom};
use testbed::RedisCluster;
use tokio::time::{Instant, sleep};

use super::Injected;
use crate::{
    env::{StockServers, TestEnv},
    heal::PROBE,
    plan::Round,
};

/// Longest time for which one slot is on its way. Its orders cannot succeed meanwhile, and a client
/// gives up after a minute.
const SLOT_TIME_MAX: Duration = Duration::from_millis(1500);
/// Slots that move in one round. More would only make the round longer.
const SLOTS_MAX: usize = 4;

/// Moves some slots of this round's items to the new master, key by key. An interrupted resharding
/// is simulated in one of three cases: the last slot goes back to its old master.
pub(super) async fn migration(
    env: &mut TestEnv,
    round: &Round,
    rng: &mut StdRng,
) -> Result<Injected> {
    let StockServers::Cluster(cluster) = &mut env.redis else {
        bail!("this environment has no cluster")
    };
    let (new, joined) = match cluster.first_grown() {
        Some(new) => (new, "which had joined before"),
        None => (cluster.grow().await?, "which had just joined"),
    };
    let slots = slots(cluster, round, rng).await?;
    let goes_back = rng.random_ratio(1, 3);
    let (mut moved, mut keys, since) = (Vec::new(), 0, Instant::now());
    for slot in slots {
        let old = cluster.owner_of(slot).await?;
        if old != new {
            keys += move_slot(cluster, slot, new, round, rng).await?;
            moved.push((slot, old));
        }
    }
    let took = since.elapsed();
    let mut back = String::new();
    if let Some((slot, old)) = moved.last().filter(|_| goes_back) {
        move_slot(cluster, *slot, *old, round, rng).await?;
        back = format!(", and slot {slot} back to node {old}");
    }
    let moved: Vec<_> = moved.iter().map(|(slot, _)| slot).collect();
    Ok(Injected::now(format!(
        "slots {moved:?} with {keys} keys moved in {took:.1?} to node {new}, {joined}{back}"
    )))
}

/// Slots with keys of the items on sale. The first item's come first.
async fn slots(cluster: &RedisCluster, round: &Round, rng: &mut StdRng) -> Result<Vec<u16>> {
    let mut slots = Vec::new();
    for item in [&round.item("main"), &round.item("fast"), PROBE] {
        let mut of_item = BTreeSet::new();
        for key in cluster.keys_like(&format!("*{{{item}:*}}")).await? {
            of_item.insert(cluster.slot_of(&key).await?);
        }
        let mut of_item: Vec<_> = of_item.into_iter().collect();
        of_item.shuffle(rng);
        let some = rng.random_range(1..=of_item.len().max(1));
        slots.extend(of_item.into_iter().take(some));
    }
    slots.truncate(SLOTS_MAX);
    Ok(slots)
}

/// Returns how many keys were moved one by one, in a random order and with pauses, so that orders
/// meet every mixture of keys here and there.
async fn move_slot(
    cluster: &mut RedisCluster,
    slot: u16,
    to: usize,
    round: &Round,
    rng: &mut StdRng,
) -> Result<usize> {
    let migration = cluster.begin_migration(slot, to).await?;
    let mut keys = cluster.keys_to_migrate(&migration).await?;
    // Orders add keys while the known ones move, and their server varies from run to run.
    keys.sort_unstable();
    keys.shuffle(rng);
    let pauses = u32::try_from(keys.len() + 1)?;
    let pause = round.lasts.min(SLOT_TIME_MAX) / pauses;
    sleep(pause).await;
    for key in &keys {
        cluster.migrate_key(&migration, key).await?;
        sleep(pause).await;
    }
    cluster.end_migration(migration).await?;
    Ok(keys.len())
}
