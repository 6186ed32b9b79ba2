//! `SETNX`, then `EXPIRE`, and a crash between the two.

use std::time::Duration;

use anyhow::Result;

use super::till::{Free, Locking, OVERDUE, READ, REFUSED, TAKEN, Take, TillEnv, run_until};
use crate::{
    case::Case, measurements::Measurements, test_env::TestEnv, timeline::Doing, what_if::Knob,
};

const LEASE: Duration = Duration::from_secs(15);
/// Number of leases for which the other tills retry; then the number for which a lock may outlive
/// its holder.
const RETRY_LEASES: u32 = 4;
const STUCK_LEASES_MAX: u32 = 3;
const UNITS: u64 = 1;

/// Builds the case: its scenario, its knobs and its variants.
pub fn case() -> Case {
    Case::new("immortal-lock", include_str!("immortal_lock.toml"))
        .knobs(&[Knob::Lease])
        .faulty("SETNX, then EXPIRE", |env| {
            Box::pin(run(env, Take::SetNxThenExpire))
        })
        .does_not_help("expiry time in the value", |env| {
            Box::pin(run(env, Take::TimeInTheValue))
        })
        .holds("SET NX PX", |env| Box::pin(run(env, Take::SetNxPx)))
}

async fn run(env: &TestEnv, take: Take) -> Result<Measurements> {
    let locking = Locking {
        take,
        renewed: false,
        free: Free::CompareAndDelete,
    };
    let lease = env.what_if.lease.unwrap_or(LEASE);
    let tills = TillEnv::open(env, UNITS).await?;
    let mut one = tills.till(1, lease, locking).await?;
    let mut two = tills.till(2, lease, locking).await?;
    let mut three = tills.till(3, lease, locking).await?;
    one.until(TAKEN).await?;
    one.kill().await?;
    let dead = env
        .timeline
        .lane("the lock")
        .is(Doing::Stalled, "locked by till 1, which is dead");
    two.until(REFUSED).await?;
    three.until(REFUSED).await?;
    if let Some(mut at) = tills
        .wait_at(&mut two, &[OVERDUE, READ], lease * RETRY_LEASES)
        .await?
    {
        // Till 3 tries once more before till 2 continues. It sees what till 2 has seen, or that
        // till 2 was faster.
        let mut third = run_until(&mut three, &[OVERDUE, REFUSED]).await?;
        if at == OVERDUE {
            at = run_until(&mut two, &[READ]).await?;
        }
        drop(dead);
        if third == OVERDUE {
            third = run_until(&mut three, &[READ, REFUSED]).await?;
        }
        anyhow::ensure!(
            at == READ && third != OVERDUE,
            "expected both tills to have passed the overdue lock"
        );
        two.finish::<bool>().await?;
        tills.note_stock().await?;
        three.finish::<bool>().await?;
    }
    let (sold, left) = tills.count().await?;
    Ok(Measurements::of(&env.timeline)
        .judge_sale(UNITS, sold, left)
        .judge_holders()
        .judge_stuck((lease * STUCK_LEASES_MAX).as_secs_f64()))
}
