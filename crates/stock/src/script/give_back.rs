//! `give_back_count` and `release`: how the units of an order come back, and its buyer's count with them.

use domain::TakenOrder;

use super::{GIVE_BACK_COUNT, RELEASE, column, refusals};
use crate::{StockError, connection::Connection, keys::Keys, outbox, reply::Reply};

/// Gives counts back at home, for orders whose units other segments have. Returns how many were given back now.
pub(crate) async fn give_back_count(
    connection: &Connection,
    keys: &Keys,
    margin_ms: i64,
    orders: &[&TakenOrder],
) -> Result<u64, StockError> {
    let reply = GIVE_BACK_COUNT
        .run(
            connection,
            &[&keys.stock, &keys.answers, &keys.buyers, &keys.walks],
            |cmd| {
                cmd.arg(orders.len()).arg(margin_ms);
                column(cmd, orders.iter().map(|order| &order.id.as_bytes()[..]));
                column(cmd, orders.iter().map(|order| order.buyer.as_str()));
                column(cmd, orders.iter().map(|order| packed(order)));
            },
        )
        .await?;
    let mut reply = Reply::new(reply)?;
    refusals(&mut reply, keys, "give_back_count")?;
    reply.unsigned()
}

/// What `release` did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Released {
    /// Units that nobody has, after it.
    pub available: u64,
    /// Orders that gave their units back now, and not before.
    pub orders: u64,
}

/// Gives units back at the segment that gave them. `true`: the segment is the buyer's home too, and gives the count back with them.
pub(crate) async fn release(
    connection: &Connection,
    keys: &Keys,
    orders: &[(&TakenOrder, bool)],
) -> Result<Released, StockError> {
    let reply = RELEASE
        .run(
            connection,
            &[&keys.stock, &keys.answers, &keys.buyers, &keys.outbox],
            |cmd| {
                cmd.arg(orders.len()).arg(&keys.name);
                column(
                    cmd,
                    orders.iter().map(|(order, _)| &order.id.as_bytes()[..]),
                );
                column(cmd, orders.iter().map(|(order, _)| order.buyer.as_str()));
                column(cmd, orders.iter().map(|(order, _)| packed(order)));
                column(cmd, orders.iter().map(|(_, home)| u8::from(*home)));
            },
        )
        .await?;
    let mut reply = Reply::new(reply)?;
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
