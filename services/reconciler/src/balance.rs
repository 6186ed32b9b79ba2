//! Plans transfers between segments, so that spillovers stay short during a sale, and so that an
//! order for several units finds them in one segment.
//!
//! A spillover does not find units that are in transit: its order waits until they have arrived,
//! and begins another round. So the reconciler moves no units in the last moments of a sale
//! ([`Pace`]), when spillovers find the remaining units themselves. It consolidates units only for
//! an order that waits for them.

mod pace;

use std::sync::Arc;

use audit::Snapshot;
use domain::{ItemId, ItemState, TransferId};
use ledger::TransferPlan;

pub(crate) use self::pace::Pace;
use crate::{Reconciler, ReconcilerError};

/// A segment with less than the mean divided by this number is refilled.
const REFILL_DIVISOR: u64 = 4;
/// Below this mean number of units per segment, evening out is not worth a transfer.
const EVEN_OUT_MEAN_MIN: u64 = 16;

/// Available units of each segment.
type Available = Vec<u64>;

pub(crate) async fn plan(
    reconciler: &Arc<Reconciler>,
    id: &ItemId,
    token: u64,
    wanted: u64,
) -> Result<(), ReconcilerError> {
    // Take a new snapshot: the one that asked for the transfers may be out of date.
    let snapshots = audit::snapshots(&reconciler.stock, &*reconciler.ledger, id).await?;
    let Some(available) = available(&snapshots) else {
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

/// Whether units should be moved. `wanted`: number of units that a waiting order needs in one
/// segment.
pub(crate) fn is_needed(snapshots: &[Snapshot], wanted: u64) -> bool {
    available(snapshots).is_some_and(|available| !moves(&available, wanted).is_empty())
}

/// `None`: not all segments are open and recorded.
fn available(snapshots: &[Snapshot]) -> Option<Available> {
    let sells = |snapshot: &Snapshot| {
        let inspection = snapshot
            .inspection
            .as_ref()
            .filter(|_| snapshot.is_anchored())?;
        (inspection.state == ItemState::Open && inspection.repairing.is_none())
            .then_some(inspection.available)
    };
    snapshots.iter().map(sells).collect()
}

fn moves(available: &[u64], wanted: u64) -> Vec<TransferPlan> {
    let total: u64 = available.iter().sum();
    let segments = available.len() as u64;
    if segments < 2 || total == 0 {
        return Vec::new();
    }
    if wanted <= total && available.iter().all(|units| *units < wanted) {
        return consolidate(available, wanted);
    }
    if total >= segments * EVEN_OUT_MEAN_MIN {
        even_out(available, total / segments)
    } else {
        Vec::new()
    }
}

/// Plans transfers from segments above the mean to those that are almost empty.
fn even_out(available: &[u64], mean: u64) -> Vec<TransferPlan> {
    let mut rich: Vec<(u16, u64)> = (0..)
        .zip(available.iter().map(|units| units.saturating_sub(mean)))
        .filter(|(_, spare)| *spare > 0)
        .collect();
    let mut plans = Vec::new();
    for (to, _) in (0..)
        .zip(available)
        .filter(|(_, units)| **units * REFILL_DIVISOR < mean)
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

/// Plans transfers into the fullest segment, until it has the units that an order waits for.
fn consolidate(available: &[u64], wanted: u64) -> Vec<TransferPlan> {
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
    fn an_empty_segment_is_refilled_while_the_others_have_enough() {
        assert_eq!(after(&[0, 200, 100], 0), [100, 100, 100]);
        assert_eq!(after(&[0, 0, 300], 0), [100, 100, 100]);
        assert_eq!(
            after(&[90, 110, 100], 0),
            [90, 110, 100],
            "small differences are not worth a transfer"
        );
        assert_eq!(
            after(&[0, 20, 20], 0),
            [0, 20, 20],
            "spillovers find the few remaining units"
        );
    }

    #[test]
    fn fragments_are_consolidated_for_an_order_that_waits() {
        assert_eq!(after(&[1, 1, 1], 2), [0, 1, 2]);
        assert_eq!(after(&[1, 3, 1], 5), [0, 5, 0]);
        assert_eq!(after(&[2, 1, 1], 2), [2, 1, 1], "one segment has enough");
        assert_eq!(after(&[1, 1, 1], 0), [1, 1, 1], "no order waits");
        assert_eq!(after(&[0, 0, 1], 2), [0, 0, 1]);
        assert_eq!(after(&[20, 20, 20, 20], 30).iter().max(), Some(&30));
        assert_eq!(
            after(&[20, 20, 20, 20], 81),
            [20, 20, 20, 20],
            "there are fewer units in total"
        );
        assert_eq!(
            after(&[20, 40, 20, 20], 30),
            [20, 40, 20, 20],
            "one segment has as many"
        );
    }

    #[test]
    fn a_single_segment_and_empty_segments_need_no_transfer() {
        assert!(moves(&[5], 9).is_empty());
        assert!(moves(&[0, 0], 9).is_empty());
    }
}
