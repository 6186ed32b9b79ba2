//! `transfer_out` and `transfer_in`: units leave a segment, and arrive at one.

use domain::TransferId;

use super::{Script, TRANSFER_IN, TRANSFER_OUT, refusals};
use crate::{StockError, connection::Connection, keys::Keys, reply::Reply};

/// Takes as many of `asked` units as nobody has. Returns how many left, now or when it was first asked.
pub(crate) async fn transfer_out(
    connection: &Connection,
    keys: &Keys,
    id: TransferId,
    asked: u64,
    token: u64,
) -> Result<u64, StockError> {
    let names = [&*keys.stock, &keys.answers, &keys.outbox];
    transfer(&TRANSFER_OUT, connection, keys, &names, id, asked, token).await
}

/// Puts the units in. A repeat changes nothing.
pub(crate) async fn transfer_in(
    connection: &Connection,
    keys: &Keys,
    id: TransferId,
    units: u64,
    token: u64,
) -> Result<u64, StockError> {
    let names = [&*keys.stock, &keys.answers, &keys.outbox];
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
        .run(connection, names, |cmd| {
            cmd.arg(&id.as_bytes()[..])
                .arg(id.to_string())
                .arg(units)
                .arg(token)
                .arg(&keys.name);
        })
        .await?;
    let mut reply = Reply::new(reply)?;
    refusals(&mut reply, keys, script.name)?;
    reply.unsigned()
}
