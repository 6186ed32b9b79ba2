//! What the audit found, in the words of the ledger.

use ledger::{ByOrders, ItemTotals, SegmentRow};
use serde::Serialize;
use utoipa::ToSchema;

use crate::look::{Look, signed};

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
    /// Units of orders that have ended, on their way back.
    pub returning: u64,
    /// Units on their way from one segment to another, into the stock, or out of it.
    pub in_transit: u64,
    /// Units that were taken in Redis and are on their way to the ledger.
    pub in_flight: u64,
    /// Units that the identity does not explain, summed over the segments without sign. Must be 0.
    pub drift: u64,
    /// Units that the orders say otherwise than the counters of their rows, summed over the segments without sign; drift has them too. Must be 0.
    pub miscounted: u64,
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
    /// Units of orders that have ended, on their way back.
    pub returning: u64,
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
        let miscounts: Vec<_> = totals
            .segments
            .iter()
            .zip(&totals.by_orders)
            .map(|(row, by_orders)| miscount(row, by_orders))
            .collect();
        let segments: Vec<_> = looks
            .iter()
            .zip(&miscounts)
            .map(|(look, miscount)| SegmentReport::new(look, *miscount))
            .collect();
        let sum = |units: fn(&SegmentReport) -> u64| segments.iter().map(units).sum::<u64>();
        let stock = totals.item.stock;
        let allocated: u64 = totals.segments.iter().map(|row| row.allocated).sum();
        let drift = sum(|segment| segment.drift.unsigned_abs())
            + stock.abs_diff(allocated + totals.in_transit);
        let oversold = oversold(totals, &segments);
        let rejected_orders = totals
            .orders_by_state
            .iter()
            .find(|(state, _)| state == "rejected")
            .map_or(0, |(_, orders)| *orders);
        Self {
            item: totals.item.id.to_string(),
            stock,
            available: sum(|segment| segment.available.unwrap_or(0)),
            held: sum(|segment| segment.held),
            confirmed: sum(|segment| segment.confirmed),
            returning: sum(|segment| segment.returning),
            in_transit: totals.in_transit,
            in_flight: sum(|segment| segment.in_flight),
            drift,
            miscounted: miscounts
                .iter()
                .map(|miscount| miscount.unsigned_abs())
                .sum(),
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
    let by_orders: u64 = totals
        .by_orders
        .iter()
        .map(|units| units.held + units.confirmed)
        .sum();
    by_counters.max(by_orders).saturating_sub(totals.item.stock)
}

/// What a segment's orders hold beyond what its counters say. Both are of one snapshot.
fn miscount(row: &SegmentRow, by_orders: &ByOrders) -> i64 {
    let pairs = [
        (by_orders.held, row.held),
        (by_orders.confirmed, row.confirmed),
        (by_orders.returning, row.returning),
    ];
    // A unit that is counted in the wrong place is wrong twice; one of the two is enough to be wrong.
    pairs
        .into_iter()
        .map(|(orders, counter)| signed(orders) - signed(counter))
        .max_by_key(|difference| difference.abs())
        .unwrap_or(0)
}

impl SegmentReport {
    fn new(look: &Look, miscount: i64) -> Self {
        let row = &look.row;
        let (drift, finding) = match look.drift() {
            0 => (
                miscount,
                (miscount != 0).then(|| {
                    format!("the orders hold {miscount} units more than the counters say")
                }),
            ),
            drift => (drift, look.finding()),
        };
        Self {
            segment: row.key.segment,
            allocated: row.allocated,
            available: look
                .inspection
                .as_ref()
                .map(|inspection| inspection.available),
            available_at_checkpoint: row.available,
            held: row.held,
            confirmed: row.confirmed,
            returning: row.returning,
            in_flight: look.in_flight(),
            checkpoint: row.checkpoint.map(|id| id.to_string()),
            last: look
                .inspection
                .as_ref()
                .map(|inspection| inspection.last.to_string()),
            drift,
            finding,
        }
    }
}
