//! Adds up the rows that [`crate::Reading::walk`] has read, or [`crate::Reading::walk_changes`].

use std::collections::BTreeMap;

use domain::{Item, OrderState};

use crate::{
    ByOrders, ItemRows, ItemTotals, LedgerError, SegmentRow,
    columns::{ItemColumns, SegmentColumns},
    convert::{parsed, signed, unsigned},
    since::{Place, Sums},
};

/// The rows of an item, read from one snapshot.
pub(crate) struct ReadRows {
    pub item: ItemColumns,
    pub segments: Vec<SegmentColumns>,
    pub in_transit: i64,
    pub rejected_orders: i64,
    pub refund_due_orders: i64,
}

impl TryFrom<ReadRows> for ItemRows {
    type Error = LedgerError;

    fn try_from(read: ReadRows) -> Result<Self, LedgerError> {
        Ok(Self {
            item: Item::try_from(read.item)?,
            segments: rows(read.segments)?,
            in_transit: unsigned("in_transit", read.in_transit)?,
            rejected_orders: unsigned("rejected_orders", read.rejected_orders)?,
            refund_due_orders: unsigned("refund_due_orders", read.refund_due_orders)?,
        })
    }
}

fn rows(read: Vec<SegmentColumns>) -> Result<Vec<SegmentRow>, LedgerError> {
    read.into_iter().map(SegmentRow::try_from).collect()
}

/// Sums of one piece: by segment and state, the number of orders and their units.
pub(crate) type PieceSums = Vec<(i64, String, i64, i64)>;

/// Orders of a piece.
pub(crate) fn orders_of(sums: &PieceSums) -> u64 {
    let orders = sums.iter().map(|(_, _, orders, _)| orders);
    orders.map(|orders| orders.unsigned_abs()).sum()
}

/// Sums that were not read in pieces, in the same form: only of orders that were rejected or whose
/// refund is due it has the numbers.
pub(crate) fn as_pieces(units: &[[u64; 2]], [rejected, refund_due]: [i64; 2]) -> PieceSums {
    let of = |segment: i64, state: OrderState, orders, units: u64| {
        (segment, state.to_string(), orders, signed(units))
    };
    let mut sums = vec![
        of(0, OrderState::Rejected, rejected, 0),
        of(0, OrderState::RefundDue, refund_due, 0),
    ];
    for (segment, [held, confirmed]) in (0..).zip(units) {
        sums.push(of(segment, OrderState::Held, 0, *held));
        sums.push(of(segment, OrderState::Confirmed, 0, *confirmed));
    }
    sums
}

/// What was read from one snapshot.
pub(crate) struct Read {
    pub item: ItemColumns,
    pub segments: Vec<SegmentColumns>,
    /// The sums of all pieces.
    pub orders: PieceSums,
    /// Orders that the walk has read, or the last one before.
    pub walked: u64,
    /// The place of the snapshot among the events, if it can be told.
    pub place: Option<Place>,
    /// By segment: units of pending returns.
    pub returning: Vec<(i64, i64)>,
    pub in_transit: i64,
}

impl TryFrom<Read> for ItemTotals {
    type Error = LedgerError;

    fn try_from(read: Read) -> Result<Self, LedgerError> {
        let segments = rows(read.segments)?;
        let mut by_orders = vec![ByOrders::default(); segments.len()];
        let mut by_state: BTreeMap<String, u64> = BTreeMap::new();
        for (segment, state, orders, units) in read.orders {
            add(
                &mut by_orders,
                segment,
                parsed("orders.state", &state)?,
                unsigned("units", units)?,
            )?;
            *by_state.entry(state).or_default() += unsigned::<u64>("orders", orders)?;
        }
        for (segment, units) in read.returning {
            if let Some(sums) = by_orders.get_mut(unsigned::<usize>("returns.segment", segment)?) {
                sums.returning = unsigned("units", units)?;
            }
        }
        let refunds_due = by_state.get(OrderState::RefundDue.as_str()).copied();
        let sums = read.place.map(|place| {
            let units = by_orders.iter().map(|sums| [sums.held, sums.confirmed]);
            Sums::new(
                read.walked,
                refunds_due.unwrap_or(0),
                units.collect(),
                place,
            )
        });
        Ok(Self {
            item: Item::try_from(read.item)?,
            segments,
            by_orders,
            in_transit: unsigned("in_transit", read.in_transit)?,
            orders_by_state: by_state.into_iter().collect(),
            sums,
        })
    }
}

fn add(
    by_orders: &mut [ByOrders],
    segment: i64,
    state: OrderState,
    units: u64,
) -> Result<(), LedgerError> {
    let Some(sums) = by_orders.get_mut(unsigned::<usize>("orders.segment", segment)?) else {
        return Ok(());
    };
    match state.units() {
        domain::Units::Held => sums.held += units,
        domain::Units::Confirmed => sums.confirmed += units,
        domain::Units::None => {}
    }
    Ok(())
}
