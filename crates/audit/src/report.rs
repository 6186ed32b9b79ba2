//! The report of an audit.

use domain::OrderState;
use jiff::Timestamp;
use ledger::{ByOrders, FinalAudit, ItemTotals, SegmentRow};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    AuditError,
    snapshot::{Snapshot, signed},
};

/// The conservation invariant of an item.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditReport {
    /// The item.
    pub item: String,
    /// Units that exist.
    pub stock: u64,
    /// Free units in Redis.
    pub available: u64,
    /// Units of orders that wait for payment, by the ledger.
    pub held: u64,
    /// Units of paid orders.
    pub confirmed: u64,
    /// Units of orders that have ended, on their way back.
    pub returning: u64,
    /// Units on their way from one segment to another, into the stock, or out of it.
    pub in_transit: u64,
    /// Units that were taken in Redis and are on their way to the ledger.
    pub in_flight: u64,
    /// Units that the invariant does not explain, summed over the segments without sign. Must be 0.
    pub drift: u64,
    /// Units by which the orders differ from the counters of their rows, summed over the segments
    /// without sign; drift includes them. Must be 0.
    pub miscounted: u64,
    /// Units promised beyond the stock. Must be 0.
    pub oversold: u64,
    /// Orders that the ledger refused to cover. Their buyers received `sold_out`.
    pub rejected_orders: u64,
    /// Paid orders without units, whose money must be returned.
    pub refund_due_orders: u64,
    /// `true` if drift and oversold are 0.
    pub ok: bool,
    /// When the item was archived: this is its final audit. Later refunds are not in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub archived_at: Option<Timestamp>,
    /// When the last order of the archived item was dropped: the ledger has this audit alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub dropped_at: Option<Timestamp>,
    /// The segments.
    pub segments: Vec<SegmentReport>,
}

/// The conservation invariant of a segment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SegmentReport {
    /// Number of the segment.
    pub segment: u16,
    /// Units that belong to it.
    pub allocated: u64,
    /// Free units in Redis; null if the segment does not exist there.
    pub available: Option<u64>,
    /// Free units at the checkpoint.
    pub available_at_checkpoint: u64,
    /// Units of orders that wait for payment, at the checkpoint.
    pub held: u64,
    /// Units of paid orders.
    pub confirmed: u64,
    /// Units of orders that have ended, on their way back.
    pub returning: u64,
    /// Units that were taken after the checkpoint.
    pub in_flight: u64,
    /// The last outbox entry that the ledger has recorded.
    pub checkpoint: Option<String>,
    /// The last outbox entry.
    pub last: Option<String>,
    /// Units in Redis beyond those of the invariant; negative if Redis has fewer. Must be 0.
    pub drift: i64,
    /// The anomaly in words, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finding: Option<String>,
}

impl AuditReport {
    pub(crate) fn new(totals: &ItemTotals, snapshots: &[Snapshot]) -> Self {
        let miscounts: Vec<_> = totals
            .segments
            .iter()
            .zip(&totals.by_orders)
            .map(|(row, by_orders)| miscount(row, by_orders))
            .collect();
        let segments: Vec<_> = snapshots
            .iter()
            .zip(&miscounts)
            .map(|(snapshot, miscount)| SegmentReport::new(snapshot, *miscount))
            .collect();
        let sum = |units: fn(&SegmentReport) -> u64| segments.iter().map(units).sum::<u64>();
        let stock = totals.item.stock;
        let allocated: u64 = totals.segments.iter().map(|row| row.allocated).sum();
        let drift = sum(|segment| segment.drift.unsigned_abs())
            + stock.abs_diff(allocated + totals.in_transit);
        let oversold = oversold(totals, &segments);
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
            rejected_orders: orders_in(totals, OrderState::Rejected),
            refund_due_orders: orders_in(totals, OrderState::RefundDue),
            ok: drift == 0 && oversold == 0,
            archived_at: None,
            dropped_at: None,
            segments,
        }
    }

    /// The report as the ledger keeps it.
    pub(crate) fn to_json(&self) -> serde_json::Value {
        serde_json::json!(self)
    }

    pub(crate) fn from_final(audit: FinalAudit) -> Result<Self, AuditError> {
        let report: Self = serde_json::from_value(audit.report)?;
        Ok(Self {
            archived_at: Some(audit.at),
            dropped_at: audit.dropped_at,
            ..report
        })
    }
}

fn orders_in(totals: &ItemTotals, wanted: OrderState) -> u64 {
    let mut states = totals.orders_by_state.iter();
    states
        .find(|(state, _)| state == wanted.as_str())
        .map_or(0, |(_, orders)| *orders)
}

/// Promised units beyond the stock, including those on their way to the ledger.
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

/// Units of a segment's orders beyond its counters. Both come from one snapshot of the ledger.
fn miscount(row: &SegmentRow, by_orders: &ByOrders) -> i64 {
    let pairs = [
        (by_orders.held, row.held),
        (by_orders.confirmed, row.confirmed),
        (by_orders.returning, row.returning),
    ];
    // A unit that is counted in the wrong place makes two counters wrong. The result is the larger
    // of the two differences.
    pairs
        .into_iter()
        .map(|(orders, counter)| signed(orders) - signed(counter))
        .max_by_key(|difference| difference.abs())
        .unwrap_or(0)
}

impl SegmentReport {
    fn new(snapshot: &Snapshot, miscount: i64) -> Self {
        let row = &snapshot.row;
        let (drift, finding) = match snapshot.drift() {
            0 => (
                miscount,
                (miscount != 0)
                    .then(|| format!("the orders hold {miscount} units more than the counters")),
            ),
            drift => (drift, snapshot.finding()),
        };
        Self {
            segment: row.key.segment,
            allocated: row.allocated,
            available: snapshot
                .inspection
                .as_ref()
                .map(|inspection| inspection.available),
            available_at_checkpoint: row.available,
            held: row.held,
            confirmed: row.confirmed,
            returning: row.returning,
            in_flight: snapshot.in_flight(),
            checkpoint: row.checkpoint.map(|id| id.to_string()),
            last: snapshot
                .inspection
                .as_ref()
                .map(|inspection| inspection.last.to_string()),
            drift,
            finding,
        }
    }
}
