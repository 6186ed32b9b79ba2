//! `archive_segment`: a segment of an archived item ends.

use super::{ARCHIVE_SEGMENT, fenced, unknown_status};
use crate::{StockError, connection::Connection, keys::Keys, reply::ReplyReader};

/// Removes the segment for the holder of `token` and leaves a tombstone.
pub(crate) async fn archive_segment(
    connection: &Connection,
    keys: &Keys,
    token: u64,
    epoch: u64,
) -> Result<(), StockError> {
    let names = [
        &*keys.stock,
        &keys.decisions,
        &keys.buyers,
        &keys.outbox,
        &keys.spillovers,
        &keys.replicated,
    ];
    let reply = ARCHIVE_SEGMENT
        .run(connection, keys, &names, |cmd| {
            cmd.arg(token).arg(epoch);
        })
        .await?;
    let mut reply = ReplyReader::new(reply)?;
    match &*reply.text()? {
        "archived" => Ok(()),
        "newer" => Err(StockError::Moved(keys.segment.clone())),
        "fenced" => Err(fenced(keys, &mut reply)?),
        status => Err(unknown_status("archive_segment", status)),
    }
}
