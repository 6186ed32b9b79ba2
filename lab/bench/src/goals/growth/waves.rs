//! Waves of many items at one moment, and the orders of another item meanwhile.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use client::{ItemPatch, Wave};
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::{
    HOT,
    calls::{Load, Orders, WARM},
    env::GrowthEnv,
    fill,
};
use crate::{options::Options, sale::PLENTY};

/// The moment lies ahead by this, and by this more for each item, whose wave is announced before.
const LEAD: Duration = Duration::from_secs(10);
const LEAD_PER_ITEM: Duration = Duration::from_millis(5);
const UNITS: u64 = 5;
const ADDED_TIMEOUT: Duration = Duration::from_secs(3600);
const ADDED_INTERVAL: Duration = Duration::from_millis(100);

/// What was measured.
#[derive(Debug, Clone, Serialize)]
pub struct Waves {
    /// Items with a wave at that moment.
    pub waves: u64,
    /// Seconds from the moment until the units of all can be bought.
    pub added_s: f64,
    /// Orders of the hot item before.
    pub quiet: Orders,
    /// And from the moment until all units are there.
    pub meanwhile: Orders,
    /// Units of all items that are not accounted for at the end. Must be 0.
    pub drift: u64,
    /// Units of all items that were sold beyond the stock. Must be 0.
    pub oversold: u64,
}

/// Measures the waves of as many items as `--waves` says.
pub async fn measure(env: &GrowthEnv, options: &Options) -> Result<Waves> {
    let waves = options.growth.waves;
    fill::open(env, HOT).await?;
    fill::each_item(0..waves, async |item| fill::open(env, &item).await).await?;
    env.until_at_rest(HOT).await?;
    env.database.tidy().await?;
    let load = |run: &str, until, time| Load {
        env,
        run: run.to_owned(),
        until,
        time,
    };
    let time = Duration::from_secs(options.seconds);
    let quiet = load("quiet-waves", CancellationToken::new(), time).run(options);
    let quiet = quiet.await?;
    let due = announce(env, waves).await?;
    sleep(due.saturating_duration_since(Instant::now() + WARM)).await;
    let over = CancellationToken::new();
    let meanwhile = load("waves", over.clone(), ADDED_TIMEOUT).run(options);
    let (meanwhile, added_s) = tokio::join!(meanwhile, seconds_until_added(env, waves, due, over));
    let (meanwhile, added_s) = (meanwhile?, added_s?);
    let [drift, oversold] = audited(env, waves).await?;
    Ok(Waves {
        waves,
        added_s,
        quiet,
        meanwhile,
        drift,
        oversold,
    })
}

/// Gives each item a wave at one moment, and returns it.
async fn announce(env: &GrowthEnv, waves: u64) -> Result<Instant> {
    let lead = LEAD + LEAD_PER_ITEM * u32::try_from(waves)?;
    let due = Instant::now() + lead;
    let at = Timestamp::now() + SignedDuration::try_from(lead)?;
    let wave = ItemPatch::default().waves(vec![Wave { at, units: UNITS }]);
    fill::each_item(0..waves, async |item| {
        env.patient.patch_item(&item, &wave, None).await?;
        Ok(())
    })
    .await?;
    ensure!(
        Instant::now() + WARM < due,
        "it took longer than {lead:?} to announce {waves} waves"
    );
    Ok(due)
}

/// Ends the load in any case, so that a failure is reported.
async fn seconds_until_added(
    env: &GrowthEnv,
    waves: u64,
    due: Instant,
    load: CancellationToken,
) -> Result<f64> {
    let _ends = load.drop_guard();
    while env.database.segments_with(PLENTY + UNITS).await? < waves {
        ensure!(
            due.elapsed() < ADDED_TIMEOUT,
            "not all of {waves} waves were added after {ADDED_TIMEOUT:?}"
        );
        sleep(ADDED_INTERVAL).await;
    }
    Ok(due.elapsed().as_secs_f64())
}

/// Drift and oversold units of all items.
async fn audited(env: &GrowthEnv, waves: u64) -> Result<[u64; 2]> {
    let hot = env.until_at_rest(HOT).await?;
    let mut sums = [hot.drift, hot.oversold];
    for number in 0..waves {
        let audit = env.until_at_rest(&fill::name(number)).await?;
        sums[0] += audit.drift;
        sums[1] += audit.oversold;
    }
    Ok(sums)
}
