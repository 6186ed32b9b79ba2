//! Two stale holders write late, but in the order of their tokens, and the fence accepts both.

use std::time::Duration;

use anyhow::Result;

use super::keeper::{
    ANSWERED, Check, DECIDED, Keeping, Kept, Locks, Row, Work, keeper, lock_is_free,
};
use crate::{
    case::Case,
    measurements::{Measure, Measurements},
    test_env::TestEnv,
    what_if::Knob,
};

const LEASE: Duration = Duration::from_secs(15);
/// Last token before the first holder's.
const LAST_TOKEN_BEFORE: i64 = 32;
const UNITS: u64 = 10;

/// Builds the case: its scenario, its knobs and its variants.
pub fn case() -> Case {
    Case::new("in-order-tokens", include_str!("in_order_tokens.toml"))
        .knobs(&[Knob::Stock, Knob::Lease])
        .faulty("fence alone", |env| Box::pin(run(env, Check::Fence)))
        .holds("fence and version", |env| {
            Box::pin(run(env, Check::FenceAndVersion))
        })
        .holds("claim, then fence and version", |env| {
            Box::pin(run(env, Check::Claim))
        })
}

async fn run(env: &TestEnv, check: Check) -> Result<Measurements> {
    let keeping = Keeping {
        work: Work::Sale,
        checks_lease: false,
        check,
    };
    let lease = env.what_if.lease.unwrap_or(LEASE);
    let units = env.what_if.stock.unwrap_or(UNITS);
    let row = Row::create(env, units).await?;
    let redis = env.redis().await?;
    let locks = Locks::OneServer {
        url: redis.url(),
        after: LAST_TOKEN_BEFORE,
    };
    let mut one = keeper(env, &row, 1, lease, locks.clone(), keeping).await?;
    let mut two = keeper(env, &row, 2, lease, locks, keeping).await?;
    one.until(DECIDED).await?;
    let first_stopped = one.pause().await?;
    two.until(DECIDED).await?;
    let second_stopped = two.pause().await?;
    lock_is_free([&redis]).await?;
    one.resume(first_stopped).await?;
    one.until(ANSWERED).await?;
    row.stock().await?;
    two.resume(second_stopped).await?;
    two.until(ANSWERED).await?;
    row.stock().await?;
    two.finish::<Kept>().await?;
    row.stock().await?;
    one.finish::<Kept>().await?;
    // Units that are left according to the row are sold as well.
    let sold = row.writes().await? + row.stock().await?;
    let measurements =
        Measurements::of(&env.timeline).judge_sale(units, sold, units.saturating_sub(sold));
    Ok(measurements.judge(Measure::LostUpdates, row.lost_updates().await?, 0))
}
