//! What the audit found, in the words of the ledger.

use domain::{Change, Entry};
use ledger::ItemTotals;
use serde::Serialize;
use utoipa::ToSchema;

use super::Look;

/// The identity of an item.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct AuditReport {
    /// The item.
    pub item: String,
    /// Units that exist.
    pub stock: u64,
    /// Units that nobody has, as Redis has it.
    pub available: u64,
    /// Units of orders that wait for payment, as the ledger has it.
    pub held: u64,
    /// Units of paid orders.
    pub confirmed: u64,
    /// Units that were taken in Redis and are on their way to the ledger.
    pub in_flight: u64,
    /// Units that the identity does not explain, summed over the segments without sign. Must be 0.
    pub drift: u64,
    /// Units promised beyond the stock. Must be 0.
    pub oversold: u64,
    /// Orders that the ledger refused to cover. They were answered `sold_out`.
    pub rejected_orders: u64,
    /// `true` if drift and oversold are 0.
    pub ok: bool,
    /// Each segment.
    pub segments: Vec<SegmentReport>,
}

/// The identity of a segment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct SegmentReport {
    /// Which one.
    pub segment: u16,
    /// Units that belong to it.
    pub allocated: u64,
    /// Units that nobody has, as Redis has it; null if the segment is not there.
    pub available: Option<u64>,
    /// Units that nobody had at the checkpoint.
    pub available_at_checkpoint: u64,
    /// Units of orders that wait for payment, at the checkpoint.
    pub held: u64,
    /// Units of paid orders.
    pub confirmed: u64,
    /// Units that were taken after the checkpoint.
    pub in_flight: u64,
    /// The last outbox entry that the ledger has.
    pub checkpoint: Option<String>,
    /// The last outbox entry.
    pub last: Option<String>,
    /// What Redis has beyond what the identity says it should; negative if it has less. Must be 0.
    pub drift: i64,
    /// What is wrong, if something is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finding: Option<String>,
}

impl AuditReport {
    pub(crate) fn new(totals: &ItemTotals, looks: &[Look]) -> Self {
        let segments: Vec<_> = looks.iter().zip(miscounts(totals)).map(|(look, miscount)| SegmentReport::new(look, miscount)).collect();
        let sum = |units: fn(&SegmentReport) -> u64| segments.iter().map(units).sum::<u64>();
        let (held, confirmed, in_flight) =
            (sum(|segment| segment.held), sum(|segment| segment.confirmed), sum(|segment| segment.in_flight));
        let stock = totals.item.stock;
        let unallocated = stock.abs_diff(sum(|segment| segment.allocated));
        let drift = sum(|segment| segment.drift.unsigned_abs()) + unallocated;
        let oversold = oversold(totals, &segments);
        let rejected_orders = totals.orders_by_state.iter().find(|(state, _)| state == "rejected").map_or(0, |(_, orders)| *orders);
        Self {
            item: totals.item.id.to_string(),
            stock,
            available: sum(|segment| segment.available.unwrap_or(0)),
            held,
            confirmed,
            in_flight,
            drift,
            oversold,
            rejected_orders,
            ok: drift == 0 && oversold == 0,
            segments,
        }
    }
}

/// Promised units beyond the stock, those on their way to the ledger included.
fn oversold(totals: &ItemTotals, segments: &[SegmentReport]) -> u64 {
    let promised = |segment: &SegmentReport| segment.held + segment.confirmed + segment.in_flight;
    let by_counters: u64 = segments.iter().map(promised).sum();
    let by_orders: u64 = totals.held_by_orders.iter().sum();
    by_counters.max(by_orders).saturating_sub(totals.item.stock)
}

/// By segment, what its orders hold beyond what its counter says. Both are of one snapshot.
fn miscounts(totals: &ItemTotals) -> impl Iterator<Item = i64> {
    totals.segments.iter().zip(&totals.held_by_orders).map(|(row, by_orders)| signed(*by_orders) - signed(row.held))
}

fn signed(units: u64) -> i64 {
    i64::try_from(units).unwrap_or(i64::MAX)
}

impl SegmentReport {
    fn new(look: &Look, miscount: i64) -> Self {
        let row = &look.row;
        let in_flight = look.inspection.as_ref().map_or(0, |inspection| units_taken(behind(look, &inspection.entries)));
        let available = look.inspection.as_ref().map(|inspection| inspection.available);
        let (drift, finding) = judge(look, available, in_flight, miscount);
        Self {
            segment: row.key.segment,
            allocated: row.allocated,
            available,
            available_at_checkpoint: row.available,
            held: row.held,
            confirmed: row.confirmed,
            in_flight,
            checkpoint: row.checkpoint.map(|id| id.to_string()),
            last: look.inspection.as_ref().map(|inspection| inspection.last.to_string()),
            drift,
            finding,
        }
    }
}

/// The entries behind the checkpoint.
fn behind<'a>(look: &Look, entries: &'a [Entry]) -> &'a [Entry] {
    let anchor = usize::from(look.row.checkpoint.is_some() && look.is_anchored());
    &entries[anchor..]
}

fn units_taken(entries: &[Entry]) -> u64 {
    let taken = entries.iter().map(|entry| match &entry.change {
        Change::Taken { orders, .. } => orders.iter().map(|order| u64::from(order.quantity.get())).sum(),
        Change::Opened { .. } | Change::StateSet { .. } => 0,
    });
    taken.sum()
}

fn judge(look: &Look, available: Option<u64>, in_flight: u64, miscount: i64) -> (i64, Option<String>) {
    let row = &look.row;
    let Some(available) = available else {
        return (-signed(row.available).max(1), Some("the segment is not in Redis".into()));
    };
    let expected = signed(row.available) - signed(in_flight);
    let drift = signed(available) - expected;
    if !look.is_anchored() {
        // That is drift even where the counters happen to agree.
        let drift = if drift == 0 { signed(in_flight).max(1) } else { drift };
        return (drift, Some("the outbox does not begin with what was recorded last: history has diverged".into()));
    }
    if drift != 0 {
        return (drift, Some(format!("Redis has {available} units, the ledger and the entries behind its checkpoint say {expected}")));
    }
    let finding = (miscount != 0).then(|| format!("the orders hold {miscount} units more than the counter says"));
    (miscount, finding)
}
