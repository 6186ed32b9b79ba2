//! Holds that expire together, and the orders of another item meanwhile.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::{
    HOT,
    calls::{Load, Orders, WARM},
    env::GrowthEnv,
    fill,
    results::Results,
    series::ascending,
};
use crate::options::{LedgerKind, Options};

/// The time of expiry lies ahead by this, and by this more for each hold: the ledger must have it
/// before it comes.
const LEAD: Duration = Duration::from_secs(10);
const LEAD_PER_HOLD: Duration = Duration::from_micros(60);
const BACK_TIMEOUT: Duration = Duration::from_secs(3600);
const BACK_INTERVAL: Duration = Duration::from_millis(100);
/// Orders are measured for at least this: a few holds are back sooner.
const MEASURED_MIN: Duration = Duration::from_secs(1);

/// A step of the series.
#[derive(Debug, Clone, Serialize)]
pub struct Expiry {
    /// Holds that expired together.
    pub holds: u64,
    /// Carts of one line that they are held in, each with its own.
    pub carts: u64,
    /// Seconds from their time until all of their units can be bought again.
    pub back_s: f64,
    /// Orders of the hot item before.
    pub quiet: Orders,
    /// And from the time of expiry until all units are back.
    pub meanwhile: Orders,
    /// Units of both items that are not accounted for at the end. Must be 0.
    pub drift: u64,
    /// Units of both items that were sold beyond the stock. Must be 0.
    pub oversold: u64,
}

/// Measures every step on the same servers, and writes the results after each.
pub async fn measure(ledger: LedgerKind, options: &Options, results: &mut Results) -> Result<()> {
    let env = GrowthEnv::start(ledger).await?;
    fill::open(&env, HOT).await?;
    let most = options.growth.holds;
    let sizes = ascending([most / 100, most / 10, most]).into_iter();
    let steps = sizes.filter(|holds| *holds > 0).map(|holds| (holds, 0));
    let in_carts = most.div_ceil(10);
    for (number, (holds, carts)) in steps.chain([(in_carts, in_carts)]).enumerate() {
        eprintln!("P12: {ledger}, {holds} holds that expire together, in {carts} carts");
        results.add_expiry(ledger, step(&env, number, (holds, carts), options).await?)?;
    }
    Ok(())
}

async fn step(
    env: &GrowthEnv,
    number: usize,
    (holds, carts): (u64, u64),
    options: &Options,
) -> Result<Expiry> {
    // Each step has an item and keys of its own.
    let item = &format!("holds-{number}");
    fill::open(env, item).await?;
    match carts {
        0 => fill::held_orders(env, item, 0..holds).await?,
        _ => fill::held_carts(env, item, 0..carts).await?,
    }
    let full = env.until_at_rest(item).await?;
    ensure!(full.held == holds, "{item} has {} holds", full.held);
    let load = |run: &str, until, time| Load {
        env,
        run: format!("{run}-{number}"),
        until,
        time,
    };
    let time = Duration::from_secs(options.seconds);
    let quiet = load("quiet", CancellationToken::new(), time).run(options);
    let quiet = quiet.await?;
    let due = expire_later(env, item, holds).await?;
    sleep(due.saturating_duration_since(Instant::now() + WARM)).await;
    let over = CancellationToken::new();
    let meanwhile = load("expiry", over.clone(), BACK_TIMEOUT).run(options);
    let (meanwhile, back_s) = tokio::join!(meanwhile, seconds_until_back(env, item, due, over));
    let (meanwhile, back_s) = (meanwhile?, back_s?);
    let audits = [
        env.until_at_rest(item).await?,
        env.until_at_rest(HOT).await?,
    ];
    Ok(Expiry {
        holds,
        carts,
        back_s,
        quiet,
        meanwhile,
        drift: audits.iter().map(|audit| audit.drift).sum(),
        oversold: audits.iter().map(|audit| audit.oversold).sum(),
    })
}

/// Gives all holds one time of expiry, and returns it. The ledger is tidy before it comes.
async fn expire_later(env: &GrowthEnv, item: &str, holds: u64) -> Result<Instant> {
    let lead = LEAD + LEAD_PER_HOLD * u32::try_from(holds)?;
    let (due, due_at) = (
        Instant::now() + lead,
        Timestamp::now() + SignedDuration::try_from(lead)?,
    );
    let ms = due_at.as_millisecond();
    env.database.expire_at(item, ms).await?;
    env.database.tidy().await?;
    ensure!(
        Instant::now() + WARM < due,
        "the ledger took longer than {lead:?} to change {holds} holds"
    );
    Ok(due)
}

/// Ends the load in any case, so that a failure is reported.
async fn seconds_until_back(
    env: &GrowthEnv,
    item: &str,
    due: Instant,
    load: CancellationToken,
) -> Result<f64> {
    let _ends = load.drop_guard();
    while !is_back(env, item).await? {
        ensure!(
            due.elapsed() < BACK_TIMEOUT,
            "the units of {item} are not back after {BACK_TIMEOUT:?}"
        );
        sleep(BACK_INTERVAL).await;
    }
    let back = due.elapsed();
    sleep((due + MEASURED_MIN).saturating_duration_since(Instant::now())).await;
    Ok(back.as_secs_f64())
}

/// Whether no unit of the item is held or on its way back.
async fn is_back(env: &GrowthEnv, item: &str) -> Result<bool> {
    let item = env.patient.item(item).await?;
    let segments = item.segments.unwrap_or_default();
    let is_back = segments
        .iter()
        .all(|segment| segment.held == 0 && segment.returning == 0);
    Ok(is_back && !segments.is_empty())
}
