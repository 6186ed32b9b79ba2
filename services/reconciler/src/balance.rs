//! Which units to move between segments: so that walks stay short while a sale runs, and so that an order for several units finds them in one place.
//!
//! What a reader could get wrong: a walk does not meet units that are on their way. If all segments are empty when it comes past, it ends sold out, for
//! good, and the units arrive behind it. So nothing is moved in the last moments of a sale ([`Pace`]), when walks find by themselves what is left, and
//! units are gathered only if somebody waits for them.

mod pace;

use std::sync::Arc;

use audit::Look;
use domain::{ItemId, ItemState, TransferId};
use ledger::TransferPlan;

pub(crate) use self::pace::Pace;
use crate::{Reconciler, ReconcilerError};

/// A segment with less than this part of what the others have on average is filled up.
const POOR: u64 = 4;
/// Below this many units a segment, evening out is not worth a transfer.
const WORTHWHILE: u64 = 16;

/// What is available in each segment.
type Available = Vec<u64>;

pub(crate) async fn plan(
    reconciler: &Arc<Reconciler>,
    id: &ItemId,
    token: u64,
    wanted: u64,
) -> Result<(), ReconcilerError> {
    // Decided on a look of our own: what asked for it may be out of date.
    let looks = audit::look(&reconciler.stock, &*reconciler.ledger, id).await?;
    let Some(available) = available(&looks) else {
        return Ok(());
    };
    if !reconciler.ledger.open_transfers(Some(id)).await?.is_empty() {
        return Ok(());
    }
    let plans = moves(&available, wanted);
    if plans.is_empty() {
        return Ok(());
    }
    metrics::counter!("stockade_transfers_total").increment(plans.len() as u64);
    Ok(reconciler.ledger.plan_transfers(id, token, &plans).await?)
}

/// Whether there is something to move. `wanted`: somebody waits for so many units in one place.
pub(crate) fn is_needed(looks: &[Look], wanted: u64) -> bool {
    available(looks).is_some_and(|available| !moves(&available, wanted).is_empty())
}

/// `None`: not all of them sell.
fn available(looks: &[Look]) -> Option<Available> {
    let sells = |look: &Look| {
        let inspection = look.inspection.as_ref().filter(|_| look.is_anchored())?;
        (inspection.state == ItemState::Open && inspection.mending.is_none())
            .then_some(inspection.available)
    };
    looks.iter().map(sells).collect()
}

fn moves(available: &[u64], wanted: u64) -> Vec<TransferPlan> {
    let total: u64 = available.iter().sum();
    let segments = available.len() as u64;
    if segments < 2 || total == 0 {
        return Vec::new();
    }
    if wanted <= total && available.iter().all(|units| *units < wanted) {
        return gather(available, wanted);
    }
    if total >= segments * WORTHWHILE {
        even_out(available, total / segments)
    } else {
        Vec::new()
    }
}

/// From those that have more than the mean to those that have next to nothing.
fn even_out(available: &[u64], mean: u64) -> Vec<TransferPlan> {
    let mut rich: Vec<(u16, u64)> = (0..)
        .zip(available.iter().map(|units| units.saturating_sub(mean)))
        .filter(|(_, spare)| *spare > 0)
        .collect();
    let mut plans = Vec::new();
    for (to, _) in (0..)
        .zip(available)
        .filter(|(_, units)| **units * POOR < mean)
    {
        let mut wanted = mean - available[usize::from(to)];
        for (from, spare) in &mut rich {
            let units = wanted.min(*spare);
            if units > 0 {
                plans.push(TransferPlan {
                    id: TransferId::random(),
                    from: *from,
                    to,
                    units,
                });
                (*spare, wanted) = (*spare - units, wanted - units);
            }
        }
    }
    plans
}

/// Into the fullest segment, until it has what somebody waits for.
fn gather(available: &[u64], wanted: u64) -> Vec<TransferPlan> {
    let Some((to, most)) = (0..)
        .zip(available.iter().copied())
        .max_by_key(|(_, units)| *units)
    else {
        return Vec::new();
    };
    let mut missing = wanted.saturating_sub(most);
    let mut plans = Vec::new();
    for (from, units) in (0..)
        .zip(available.iter().copied())
        .filter(|(from, units)| *from != to && *units > 0)
    {
        let units = units.min(missing);
        if units > 0 {
            plans.push(TransferPlan {
                id: TransferId::random(),
                from,
                to,
                units,
            });
            missing -= units;
        }
    }
    plans
}

#[cfg(test)]
mod tests {
    use super::moves;

    fn after(available: &[u64], wanted: u64) -> Vec<u64> {
        let mut after = available.to_vec();
        for plan in moves(available, wanted) {
            after[usize::from(plan.from)] -= plan.units;
            after[usize::from(plan.to)] += plan.units;
        }
        after
    }

    #[test]
    fn an_empty_segment_is_filled_up_while_there_is_plenty() {
        assert_eq!(after(&[0, 200, 100], 0), [100, 100, 100]);
        assert_eq!(after(&[0, 0, 300], 0), [100, 100, 100]);
        assert_eq!(
            after(&[90, 110, 100], 0),
            [90, 110, 100],
            "nearly even is even enough"
        );
        assert_eq!(
            after(&[0, 20, 20], 0),
            [0, 20, 20],
            "walks find what little is left"
        );
    }

    #[test]
    fn fragments_are_gathered_for_somebody_who_waits() {
        assert_eq!(after(&[1, 1, 1], 2), [0, 1, 2]);
        assert_eq!(after(&[1, 3, 1], 5), [0, 5, 0]);
        assert_eq!(after(&[2, 1, 1], 2), [2, 1, 1], "one segment has enough");
        assert_eq!(after(&[1, 1, 1], 0), [1, 1, 1], "nobody waits");
        assert_eq!(after(&[0, 0, 1], 2), [0, 0, 1]);
        assert_eq!(after(&[20, 20, 20, 20], 30).iter().max(), Some(&30));
        assert_eq!(
            after(&[20, 20, 20, 20], 81),
            [20, 20, 20, 20],
            "there are not so many"
        );
        assert_eq!(
            after(&[20, 40, 20, 20], 30),
            [20, 40, 20, 20],
            "somebody has as many"
        );
    }

    #[test]
    fn there_is_nothing_to_move_in_one_segment_or_in_none() {
        assert!(moves(&[5], 9).is_empty());
        assert!(moves(&[0, 0], 9).is_empty());
    }
}
