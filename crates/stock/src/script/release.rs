//! `release_count` and `release`: how the units of an order return, and its buyer's count with
//! them.

use domain::TakenOrder;

use super::{RELEASE, RELEASE_COUNT, column, refusals};
use crate::{StockError, connection::Connection, keys::Keys, outbox, reply::ReplyReader};

/// Releases counts at home, for orders whose units other segments have. Returns how many counts
/// were released now.
pub(crate) async fn release_count(
    connection: &Connection,
    keys: &Keys,
    margin_ms: i64,
    orders: &[&TakenOrder],
) -> Result<u64, StockError> {
    let names = [
        &*keys.stock,
        &keys.decisions,
        &keys.buyers,
        &keys.spillovers,
    ];
    let reply = RELEASE_COUNT
        .run(connection, keys, &names, |cmd| {
            cmd.arg(orders.len()).arg(margin_ms);
            column(cmd, orders.iter().map(|order| &order.id.as_bytes()[..]));
            column(cmd, orders.iter().map(|order| order.buyer.as_str()));
            column(cmd, orders.iter().map(|order| packed(order)));
        })
        .await?;
    let mut reply = ReplyReader::new(reply)?;
    refusals(&mut reply, keys, "release_count")?;
    reply.unsigned()
}

/// The result of `release`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Released {
    /// Free units after it.
    pub available: u64,
    /// Orders that released their units now, and not before.
    pub orders: u64,
}

/// Releases units at the segment that gave them. `true`: the segment is the buyer's home too, and
/// releases the count with the units.
pub(crate) async fn release(
    connection: &Connection,
    keys: &Keys,
    orders: &[(&TakenOrder, bool)],
) -> Result<Released, StockError> {
    let names = [&*keys.stock, &keys.decisions, &keys.buyers, &keys.outbox];
    let reply = RELEASE
        .run(connection, keys, &names, |cmd| {
            cmd.arg(orders.len()).arg(&keys.name);
            let each = || orders.iter().map(|(order, _)| *order);
            column(cmd, each().map(|order| &order.id.as_bytes()[..]));
            column(cmd, each().map(|order| order.buyer.as_str()));
            column(cmd, each().map(packed));
            column(cmd, orders.iter().map(|(_, home)| u8::from(*home)));
        })
        .await?;
    let mut reply = ReplyReader::new(reply)?;
    refusals(&mut reply, keys, "release")?;
    let available = reply.unsigned()?;
    let _entry = reply.text()?;
    Ok(Released {
        available,
        orders: reply.unsigned()?,
    })
}

fn packed(order: &TakenOrder) -> Box<[u8]> {
    outbox::pack(&order.id, &order.buyer, order.quantity)
}
