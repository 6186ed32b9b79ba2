//! `transfer_out` and `transfer_in`: units leave a segment, and arrive at one.

use domain::TransferId;

use super::{Script, TRANSFER_IN, TRANSFER_OUT, refusals};
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
