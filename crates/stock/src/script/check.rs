//! `check_home` and `mark_checked`: home's decisions are compared with the ledger.

use domain::OrderId;

use super::{CHECK_HOME, MARK_CHECKED, column, fenced, unknown_status};
use crate::{
    StockError,
    connection::{Carrier, Connection},
    keys::Keys,
    reply::ReplyReader,
};

/// An order of the ledger that another segment has, or had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OffHomeOrder {
    /// The id under which the segment took it.
    pub id: OrderId,
    /// Whether it has its units: it has not ended, or they are on their way back.
    pub has_units: bool,
}

/// Returns those of the orders that home does not know, or still counts although they have ended.
/// `None`: the server has another history.
pub(crate) async fn check_home(
    carrier: &impl Carrier,
    keys: &Keys,
    history: &str,
    orders: &[OffHomeOrder],
) -> Result<Option<Vec<OrderId>>, StockError> {
    let names = [&*keys.stock, &keys.decisions];
    let reply = CHECK_HOME
        .run(carrier, keys, &names, |cmd| {
            cmd.arg(orders.len()).arg(history);
            column(cmd, orders.iter().map(|order| order.id.as_bytes().to_vec()));
            column(cmd, orders.iter().map(|order| u8::from(order.has_units)));
        })
        .await?;
    let mut reply = ReplyReader::new(reply)?;
    match &*reply.text()? {
        "ok" => {}
        "moved" => return Ok(None),
        "missing" => return Err(StockError::Missing(keys.segment.clone())),
        "repairing" => return Err(StockError::Repairing(keys.segment.clone())),
        status => return Err(unknown_status("check_home", status)),
    }
    let mut forgotten = Vec::new();
    while !reply.is_empty() {
        let index = usize::try_from(reply.unsigned()?).ok();
        let order = index.and_then(|index| orders.get(index));
        forgotten.extend(order.map(|order| order.id));
    }
    Ok(Some(forgotten))
}

/// Marks home as checked in this history, for the holder of `token`. Returns `false` if the server
/// has another one.
pub(crate) async fn mark_checked(
    connection: &Connection,
    keys: &Keys,
    token: u64,
    history: &str,
) -> Result<bool, StockError> {
    let reply = MARK_CHECKED
        .run(connection, keys, &[&*keys.stock], |cmd| {
            cmd.arg(token).arg(history);
        })
        .await?;
    let mut reply = ReplyReader::new(reply)?;
    match &*reply.text()? {
        "marked" => Ok(true),
        "moved" => Ok(false),
        "missing" => Err(StockError::Missing(keys.segment.clone())),
        "repairing" => Err(StockError::Repairing(keys.segment.clone())),
        "fenced" => Err(fenced(keys, &mut reply)?),
        status => Err(unknown_status("mark_checked", status)),
    }
}
