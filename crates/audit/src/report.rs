//! The report of an audit.

use jiff::Timestamp;
use ledger::{
    ByOrders, FailedAudit, FinalAudit, GoodAudit, ItemRows, ItemTotals, LastAudits, SegmentRow,
};
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
    /// without sign; drift includes them. Must be 0. By the full audit that `orders_checked` tells
    /// of.
    pub miscounted: u64,
    /// Units promised beyond the stock. Must be 0. By the counters of the segments, and by the
    /// orders as of the full audit that `orders_checked` tells of.
    pub oversold: u64,
    /// Orders that the ledger refused to cover. Their buyers received `sold_out`.
    pub rejected_orders: u64,
    /// Paid orders without units, whose money must be returned.
    pub refund_due_orders: u64,
    /// `true` if drift and oversold are 0.
    pub ok: bool,
    /// What is known of the orders themselves: when a full audit has read all of them, and what it
    /// found.
    #[serde(default)]
    #[schema(required = true)]
    pub orders_checked: OrdersChecked,
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

/// What the last full audits have found when they compared all orders of the item with the
/// counters.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct OrdersChecked {
    /// When the last good one began: all orders agreed with the counters. Null: there was none yet.
    #[schema(value_type = Option<String>, format = DateTime, required = true)]
    pub at: Option<Timestamp>,
    /// `true` if the counters are those that all orders add up to, and no later audit has found a
    /// fault: nothing has changed since that audit, or whatever has was compared, too. `false`:
    /// units were ordered, paid for or returned since.
    pub current: bool,
    /// The fault that the last full audit has found, until a later one finds none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<OrdersFault>,
}

/// What a full audit has found wrong with the orders of an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OrdersFault {
    /// When it was found.
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// Units by which the orders differed from the counters.
    pub miscounted: u64,
    /// Units promised beyond the stock.
    pub oversold: u64,
}

/// The conservation invariant of a segment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SegmentReport {
    /// Number of the segment.
    pub segment: u16,
    /// Units that belong to it.
    pub allocated: u64,
    /// Free units in Redis; null if the segment does not exist there.
    #[schema(required = true)]
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
    #[schema(required = true)]
    pub checkpoint: Option<String>,
    /// The last outbox entry.
    #[schema(required = true)]
    pub last: Option<String>,
    /// Units in Redis beyond those of the invariant; negative if Redis has fewer. Must be 0.
    pub drift: i64,
    /// The anomaly in words, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finding: Option<String>,
}

/// What is known of the orders besides the rows.
struct Orders {
    /// By segment; empty if they were not read.
    miscounts: Vec<i64>,
    /// Units by which they differed from the rows when they were read before.
    miscounted_before: u64,
    oversold: u64,
    checked: OrdersChecked,
}

impl AuditReport {
    /// By rows and snapshots that tell of no order, and what was found before.
    pub(crate) fn of_rows(rows: &ItemRows, last: &LastAudits, snapshots: &[Snapshot]) -> Self {
        let fault = last.fault().map(OrdersFault::from);
        let revision = crate::revision(&rows.segments);
        let orders = Orders {
            miscounts: Vec::new(),
            miscounted_before: fault.map_or(0, |fault| fault.miscounted),
            oversold: fault.map_or(0, |fault| fault.oversold),
            checked: OrdersChecked {
                at: last.good.map(|good| good.at),
                current: last.has_compared(revision) && fault.is_none(),
                fault,
            },
        };
        Self::new(rows, orders, snapshots)
    }

    /// By all orders, in an audit from `began` to `ended`. `good` is the last good one before it.
    pub(crate) fn of_orders(
        totals: &ItemTotals,
        snapshots: &[Snapshot],
        good: Option<GoodAudit>,
        [began, ended]: [Timestamp; 2],
    ) -> Self {
        let rows = totals.segments.iter().zip(&totals.by_orders);
        let oversold = oversold_by_orders(totals);
        let orders = Orders {
            miscounts: rows.map(|(row, orders)| miscount(row, orders)).collect(),
            miscounted_before: 0,
            oversold,
            checked: OrdersChecked {
                at: Some(began),
                current: true,
                fault: None,
            },
        };
        let mut report = Self::new(&totals.rows(), orders, snapshots);
        // The counters of the segments were read at different moments, so what they promise is no
        // fault of the orders. Every audit shows it.
        if report.miscounted + oversold > 0 {
            report.orders_checked = OrdersChecked {
                at: good.map(|good| good.at),
                current: false,
                fault: Some(OrdersFault {
                    at: ended,
                    miscounted: report.miscounted,
                    oversold,
                }),
            };
        }
        report
    }

    fn new(rows: &ItemRows, orders: Orders, snapshots: &[Snapshot]) -> Self {
        let miscounts = orders.miscounts.iter().copied();
        let segments: Vec<_> = snapshots
            .iter()
            .zip(miscounts.clone().chain(std::iter::repeat(0)))
            .map(|(snapshot, miscount)| SegmentReport::new(snapshot, miscount))
            .collect();
        let sum = |units: fn(&SegmentReport) -> u64| segments.iter().map(units).sum::<u64>();
        let stock = rows.item.stock;
        let allocated: u64 = rows.segments.iter().map(|row| row.allocated).sum();
        let drift = sum(|segment| segment.drift.unsigned_abs())
            + stock.abs_diff(allocated + rows.in_transit)
            + orders.miscounted_before;
        let promised: u64 = snapshots.iter().map(Snapshot::promised).sum();
        let oversold = orders.oversold.max(promised.saturating_sub(stock));
        Self {
            item: rows.item.id.to_string(),
            stock,
            available: sum(|segment| segment.available.unwrap_or(0)),
            held: sum(|segment| segment.held),
            confirmed: sum(|segment| segment.confirmed),
            returning: sum(|segment| segment.returning),
            in_transit: rows.in_transit,
            in_flight: sum(|segment| segment.in_flight),
            drift,
            miscounted: orders.miscounted_before + miscounts.map(i64::unsigned_abs).sum::<u64>(),
            oversold,
            rejected_orders: rows.rejected_orders,
            refund_due_orders: rows.refund_due_orders,
            ok: drift == 0 && oversold == 0,
            orders_checked: orders.checked,
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
        let mut report: Self = serde_json::from_value(audit.report)?;
        // Earlier releases have walked all orders as well, and did not write down when.
        if report.orders_checked == OrdersChecked::default() {
            report.orders_checked = OrdersChecked {
                at: Some(audit.at),
                current: true,
                fault: None,
            };
        }
        Ok(Self {
            archived_at: Some(audit.at),
            dropped_at: audit.dropped_at,
            ..report
        })
    }
}

impl From<FailedAudit> for OrdersFault {
    fn from(audit: FailedAudit) -> Self {
        let FailedAudit {
            at,
            miscounted,
            oversold,
        } = audit;
        Self {
            at,
            miscounted,
            oversold,
        }
    }
}

/// Units of the orders beyond the stock.
fn oversold_by_orders(totals: &ItemTotals) -> u64 {
    let orders = totals.by_orders.iter();
    let promised: u64 = orders.map(|units| units.held + units.confirmed).sum();
    promised.saturating_sub(totals.item.stock)
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
