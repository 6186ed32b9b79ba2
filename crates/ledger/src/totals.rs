//! Adds up the rows that [`crate::Reading::totals`] has read.

use std::collections::BTreeMap;

use domain::{Item, OrderState};

use crate::{
    ByOrders, ItemTotals, LedgerError, SegmentRow,
    columns::{ItemColumns, SegmentColumns},
    convert::{parsed, unsigned},
};

/// Rows read from one snapshot.
pub(crate) struct Read {
    pub item: ItemColumns,
    pub segments: Vec<SegmentColumns>,
    /// By segment and state: number of orders, and their units.
    pub orders: Vec<(i64, String, i64, i64)>,
    /// By segment: units of pending returns.
    pub returning: Vec<(i64, i64)>,
    pub in_transit: i64,
}

impl TryFrom<Read> for ItemTotals {
    type Error = LedgerError;

    fn try_from(read: Read) -> Result<Self, LedgerError> {
        let segments: Vec<_> = read
            .segments
            .into_iter()
            .map(SegmentRow::try_from)
            .collect::<Result<_, _>>()?;
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
        Ok(Self {
            item: Item::try_from(read.item)?,
            segments,
            by_orders,
            in_transit: unsigned("in_transit", read.in_transit)?,
            orders_by_state: by_state.into_iter().collect(),
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
