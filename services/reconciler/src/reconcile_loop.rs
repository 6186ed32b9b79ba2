//! The reconcile loop: polls items, checks the conservation invariant, and starts the work that is
//! pending.
//!
//! It polls an item that sells a few times a second. What makes an item change reaches it: wake-ups
//! of outboxes, changes of the item in the ledger, transfers, and orders that wait for units. An
//! item without any of them is polled every ten seconds while orders are held, and otherwise it
//! rests: open, it is polled about once an hour, and closed, never. A subscription that was lost
//! has every item polled. Between the masters of a cluster a wake-up can be lost unnoticed, so
//! rests are shorter there.
//!
//! What is due by the clock (waves, the end of a window, archives) stands in a calendar that the
//! loop keeps of the items, and costs no call.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use domain::{ItemId, SegmentConfig};
use supervision::ErrorLatch;

use crate::{ERRORS, Reconciler};

mod due;
mod item;
mod rounds;

use rounds::Rounds;

/// Different numbers of units that are remembered for an item between two rounds. Orders repeat
/// their requests, so none is lost for good.
const REQUESTS_MAX: usize = 64;

/// Numbers of units that waiting orders need in one segment, by item.
type ConsolidationRequests = HashMap<ItemId, BTreeSet<u64>>;

pub(crate) async fn run(reconciler: Arc<Reconciler>) {
    let error_latch = ErrorLatch::new("a round of the reconcile loop", ERRORS);
    let (mut rounds, mut requests) = (Rounds::default(), ConsolidationRequests::new());
    let mut incoming = reconciler.stock.consolidation_requests();
    loop {
        match rounds.reconcile_due(&reconciler, &requests).await {
            Ok(()) => error_latch.recovered(),
            Err(error) => error_latch.failed(&error),
        }
        requests.clear();
        tokio::select! {
            () = reconciler.stop.cancelled() => return rounds.end(&reconciler).await,
            () = tokio::time::sleep(reconciler.settings.poll_interval) => {}
            Some(request) = incoming.recv() => take_in(&mut requests, request),
        }
        while let Ok(request) = incoming.try_recv() {
            take_in(&mut requests, request);
        }
    }
}

/// `None`: requests may have been missed. Orders repeat them.
fn take_in(requests: &mut ConsolidationRequests, request: Option<(ItemId, u64)>) {
    if let Some((item, units)) = request {
        note(requests, item, units);
    }
}

fn note(requests: &mut ConsolidationRequests, item: ItemId, units: u64) {
    let wanted = requests.entry(item).or_default();
    if wanted.len() < REQUESTS_MAX {
        wanted.insert(units);
    }
}

/// The most units that an order may have of those that orders wait for. Anyone can ask for more
/// than the item's limit, and the units would be moved for an order that is refused.
fn wanted(requests: &ConsolidationRequests, id: &ItemId, settings: &SegmentConfig) -> Option<u64> {
    let limit = settings
        .limit_per_buyer
        .map_or(u64::MAX, |limit| u64::from(limit.get()));
    requests.get(id)?.range(..=limit).next_back().copied()
}
