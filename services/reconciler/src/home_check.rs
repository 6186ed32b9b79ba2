//! The home check: whether a home still knows the orders that other segments have taken.
//!
//! An order that its home declines leaves no outbox entry there. A failover that loses the decline
//! leaves home's anchor as it was, so neither the recorder nor a snapshot notices. A repeat of the
//! order may then be refused, although the ledger has it.
//!
//! Each segment has a mark: the history of the server, its replication id, in which its decisions
//! were last found complete. A server that is promoted or restarted has a new one, and the mark
//! comes with the decisions, so a loss of decisions is a loss of every later mark. While the mark
//! of a home is not the server's history:
//!
//! 1. wait until every order has passed its deadline that home may have declined before. Another
//!    segment could still take it;
//! 2. read the outboxes of all segments, and wait until the ledger has what they had then;
//! 3. compare the ledger's off-home orders with home's decisions, page by page. Home checks its
//!    history with each page;
//! 4. if home does not know one, or still counts one that has ended, repair home. The check then
//!    begins again: a repair changes the epoch;
//! 5. otherwise set the mark. Home refuses it if it has another history by then.
//!
//! The check begins again when any segment has another history or another epoch, so no page is
//! older than a repair. `lab/models/tests/it/stock/forgotten.rs` checks these rules, and that each
//! is needed.
//!
//! At rest it costs nothing: snapshots have both the mark and the history. After a failover it
//! reads the orders of each item once, as a repair does.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use audit::Snapshot;
use domain::{EntryId, ItemId, Memory, OrderId, SafetyCheck, SegmentKey};
use ledger::NewJournalEntry;
use serde_json::json;
use stock::{Inspection, OffHomeOrder};

use crate::{Reconciler, ReconcilerError};

/// The action of the journal's entries on forgotten orders.
const FORGOTTEN: &str = "forgotten";
/// Forgotten orders that the journal names.
const NAMED_ORDERS_MAX: usize = 20;

/// A home whose mark is not its server's history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UncheckedHome {
    pub segment: SegmentKey,
    /// The server's history, as the check has begun with it.
    pub history: String,
}

/// How far the check of an item is.
#[derive(Default)]
pub(crate) struct HomeCheck(Option<Waiting>);

struct Waiting {
    /// History and epoch of each segment.
    began_with: Vec<(String, u64)>,
    since: Instant,
    /// The last entry of each segment, read after all deadlines.
    tails: Option<Vec<EntryId>>,
}

impl HomeCheck {
    /// Whether a home waits for its check.
    pub(crate) fn is_waiting(&self) -> bool {
        self.0.is_some()
    }

    /// The homes that are to be checked now. Every order that they may have forgotten is in the
    /// ledger. `deadlines` is the time after which no order of now can take units any more.
    pub(crate) fn due(
        &mut self,
        snapshots: &[Snapshot],
        deadlines: Duration,
        now: Instant,
    ) -> Vec<UncheckedHome> {
        let unchecked = unchecked(snapshots);
        if unchecked.is_empty() {
            self.0 = None;
            return Vec::new();
        }
        let waiting = self.waiting(snapshots, now);
        if now.saturating_duration_since(waiting.since) < deadlines {
            return Vec::new();
        }
        let tails = waiting
            .tails
            .get_or_insert_with(|| inspections(snapshots).map(|segment| segment.last).collect());
        let mut recorded = snapshots.iter().map(|snapshot| snapshot.row.checkpoint);
        let is_recorded = tails
            .iter()
            .all(|tail| recorded.next().flatten() >= Some(*tail));
        if is_recorded { unchecked } else { Vec::new() }
    }

    /// The check that is under way, or one that begins now.
    fn waiting(&mut self, snapshots: &[Snapshot], now: Instant) -> &mut Waiting {
        let histories: Vec<_> = inspections(snapshots)
            .map(|segment| (segment.history.clone(), segment.epoch))
            .collect();
        let known = self.0.take();
        let goes_on = known.filter(|waiting| waiting.began_with == histories);
        self.0.insert(goes_on.unwrap_or(Waiting {
            began_with: histories,
            since: now,
            tails: None,
        }))
    }
}

fn inspections(snapshots: &[Snapshot]) -> impl Iterator<Item = &Inspection> {
    snapshots
        .iter()
        .filter_map(|snapshot| snapshot.inspection.as_ref())
}

/// Homes whose mark is not their server's history. None while a segment has to be repaired first,
/// and none of an item with one segment: no order is away from home.
fn unchecked(snapshots: &[Snapshot]) -> Vec<UncheckedHome> {
    let is_sound = |snapshot: &Snapshot| {
        let inspection = snapshot.inspection.as_ref();
        snapshot.is_intact() && inspection.is_some_and(|segment| segment.repairing.is_none())
    };
    if snapshots.len() < 2 || !snapshots.iter().all(is_sound) {
        return Vec::new();
    }
    inspections(snapshots)
        .filter(|segment| segment.checked != segment.history)
        .map(|segment| UncheckedHome {
            segment: segment.segment.clone(),
            history: segment.history.clone(),
        })
        .collect()
}

/// Compares the homes with the ledger, for the holder of the item's lock. Marks those that know
/// every order, and returns the others: they are to be repaired.
pub(crate) async fn check(
    reconciler: &Reconciler,
    id: &ItemId,
    token: u64,
    homes: Vec<UncheckedHome>,
) -> Result<Vec<SegmentKey>, ReconcilerError> {
    let mut repair = Vec::new();
    for (home, forgotten) in forgotten(reconciler, id, homes).await? {
        if forgotten.is_empty() {
            let UncheckedHome { segment, history } = &home;
            let marked = reconciler
                .stock
                .mark_checked(segment, token, history)
                .await?;
            tracing::info!(%segment, marked, "checked a home against the ledger");
        } else {
            report(reconciler, id, token, &home, &forgotten).await?;
            repair.push(home.segment);
        }
    }
    Ok(repair)
}

/// The orders that each home has forgotten. Homes whose servers have another history by now are
/// left out: they are checked later.
async fn forgotten(
    reconciler: &Reconciler,
    id: &ItemId,
    homes: Vec<UncheckedHome>,
) -> Result<Vec<(UncheckedHome, Vec<OrderId>)>, ReconcilerError> {
    let mut found: Vec<_> = homes.into_iter().map(|home| (home, Vec::new())).collect();
    let Some(item) = reconciler.ledger.item(id).await? else {
        return Ok(Vec::new());
    };
    let mut after = None;
    // An ablation test marks homes that were not compared.
    while SafetyCheck::HomeCheck.is_enabled() {
        let page_size = reconciler.settings.repair_page;
        let page = reconciler.ledger.memories(id, after, page_size).await?;
        let mut by_home = off_home_orders(&page.rows, item.segments);
        let mut still = Vec::with_capacity(found.len());
        for (home, mut forgotten) in found {
            let orders = by_home.remove(&home.segment.segment).unwrap_or_default();
            let checked = reconciler
                .stock
                .check_home(&home.segment, &home.history, &orders);
            if let Some(of_page) = checked.await? {
                forgotten.extend(of_page);
                still.push((home, forgotten));
            }
        }
        found = still;
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    Ok(found)
}

/// The orders that are away from home, by their home. An order that has reacquired its units is
/// known under its latest id.
fn off_home_orders(memories: &[Memory], segments: u16) -> BTreeMap<u16, Vec<OffHomeOrder>> {
    let mut by_home: BTreeMap<u16, Vec<OffHomeOrder>> = BTreeMap::new();
    for memory in memories {
        let home = memory.buyer.home(segments);
        if memory.segment != home {
            by_home.entry(home).or_default().push(OffHomeOrder {
                id: memory.order.reacquire(memory.attempt),
                has_units: memory.taken,
            });
        }
    }
    by_home
}

async fn report(
    reconciler: &Reconciler,
    id: &ItemId,
    token: u64,
    home: &UncheckedHome,
    forgotten: &[OrderId],
) -> Result<(), ReconcilerError> {
    let segment = &home.segment;
    tracing::error!(%segment, orders = forgotten.len(), "segment anomaly: {FORGOTTEN}, a failover has lost decisions on orders that other segments have");
    metrics::counter!("stockade_forgotten_orders_total").increment(forgotten.len() as u64);
    let named: Vec<_> = forgotten
        .iter()
        .take(NAMED_ORDERS_MAX)
        .map(OrderId::to_string)
        .collect();
    let entry = NewJournalEntry {
        item: id.clone(),
        actor: "reconciler".into(),
        action: FORGOTTEN.into(),
        token: Some(token),
        before: json!({ "segment": segment.segment, "forgotten": 0 }),
        after: json!({ "segment": segment.segment, "forgotten": forgotten.len(), "orders": named }),
    };
    Ok(reconciler.ledger.note(&entry).await?)
}
