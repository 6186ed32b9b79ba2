//! `transfer_out`, `transfer_in` and `settle_transfers`: units leave a segment, and arrive at one.

use domain::{EntryId, TransferId};

use super::{SETTLE_TRANSFERS, Script, TRANSFER_IN, TRANSFER_OUT, refusals, unknown_status};
use crate::{StockError, connection::Connection, keys::Keys, reply::ReplyReader};

/// Takes up to `requested` free units. Returns how many left, now or at the first call.
pub(crate) async fn transfer_out(
    connection: &Connection,
    keys: &Keys,
    id: TransferId,
    requested: u64,
    token: u64,
) -> Result<u64, StockError> {
    let names = [&*keys.stock, &keys.decisions, &keys.outbox];
    transfer(
        &TRANSFER_OUT,
        connection,
        keys,
        &names,
        id,
        requested,
        token,
    )
    .await
}

/// Puts the units in. A repeat changes nothing.
pub(crate) async fn transfer_in(
    connection: &Connection,
    keys: &Keys,
    id: TransferId,
    units: u64,
    token: u64,
) -> Result<u64, StockError> {
    let names = [&*keys.stock, &keys.decisions, &keys.outbox];
    transfer(&TRANSFER_IN, connection, keys, &names, id, units, token).await
}

/// Notes that all units have arrived that had left up to the entry `left`. Returns whether it was
/// noted: units may have left since.
pub(crate) async fn settle_transfers(
    connection: &Connection,
    keys: &Keys,
    left: EntryId,
) -> Result<bool, StockError> {
    let names = [&*keys.stock];
    let reply = SETTLE_TRANSFERS
        .run(connection, keys, &names, |cmd| {
            cmd.arg(left.to_string());
        })
        .await?;
    match &*ReplyReader::new(reply)?.text()? {
        "settled" => Ok(true),
        "moved" => Ok(false),
        "missing" => Err(StockError::Missing(keys.segment.clone())),
        "repairing" => Err(StockError::Repairing(keys.segment.clone())),
        status => Err(unknown_status("settle_transfers", status)),
    }
}

async fn transfer(
    script: &Script,
    connection: &Connection,
    keys: &Keys,
    names: &[&str],
    id: TransferId,
    units: u64,
    token: u64,
) -> Result<u64, StockError> {
    let reply = script
        .run(connection, keys, names, |cmd| {
            cmd.arg(&id.as_bytes()[..])
                .arg(id.to_string())
                .arg(units)
                .arg(token)
                .arg(&keys.name);
        })
        .await?;
    let mut reply = ReplyReader::new(reply)?;
    refusals(&mut reply, keys, script.name)?;
    reply.unsigned()
}
