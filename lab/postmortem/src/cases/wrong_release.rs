//! A holder whose lease has expired deletes the lock of its successor.

use std::time::Duration;

use anyhow::{Result, ensure};

use super::till::{BEFORE_DELETE, Free, Locking, READ, REFUSED, Take, TillEnv, run_until};
use crate::{
    case::Case, measurements::Measurements, test_env::TestEnv, timeline::Event, what_if::Knob,
};

const LEASE: Duration = Duration::from_secs(30);
const UNITS: u64 = 2;

/// Builds the case: its scenario, its knobs and its variants.
pub fn case() -> Case {
    Case::new("wrong-release", include_str!("wrong_release.toml"))
        .knobs(&[Knob::Lease])
        .faulty("DEL", |env| Box::pin(run(env, Free::Delete)))
        .does_not_help("GET, then DEL", |env| {
            Box::pin(run(env, Free::GetThenDelete))
        })
        .holds("compare and delete", |env| {
            Box::pin(run(env, Free::CompareAndDelete))
        })
}

async fn run(env: &TestEnv, free: Free) -> Result<Measurements> {
    let locking = Locking {
        take: Take::SetNxPx,
        renewed: false,
        free,
    };
    let lease = env.what_if.lease.unwrap_or(LEASE);
    let tills = TillEnv::open(env, UNITS).await?;
    let mut one = tills.till(1, lease, locking).await?;
    let mut two = tills.till(2, lease, locking).await?;
    let mut three = tills.till(3, lease, locking).await?;
    one.until(READ).await?;
    two.until(REFUSED).await?;
    three.until(REFUSED).await?;
    one.until(BEFORE_DELETE).await?;
    tills.note_stock().await?;
    let stopped = one.pause().await?;
    two.until(READ).await?;
    one.resume(stopped).await?;
    ensure!(
        one.finish::<bool>().await?,
        "expected till 1 to have sold a unit"
    );
    if !tills.is_locked().await? {
        two.lane()
            .notes(Event::Stolen, "its lock was deleted by till 1");
    }
    run_until(&mut three, &[READ, REFUSED]).await?;
    two.finish::<bool>().await?;
    tills.note_stock().await?;
    three.finish::<bool>().await?;
    let (sold, left) = tills.count().await?;
    Ok(Measurements::of(&env.timeline)
        .judge_sale(UNITS, sold, UNITS.saturating_sub(sold).min(left))
        .judge_holders())
}
