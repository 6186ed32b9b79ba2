//! `halt_segment`, `restore_orders`, `adjust`: a segment is made to agree with the ledger again.

use domain::{EntryId, Item, OrderId, SegmentConfig};

use super::{ADJUST, HALT_SEGMENT, RESTORE_ORDERS, column, fenced, unknown_status};
use crate::{StockError, connection::Connection, keys::Keys, outbox, reply::Reply};

/// Halts the segment for the holder of `token`; makes it anew, empty, if it is gone.
pub(crate) async fn halt_segment(connection: &Connection, keys: &Keys, token: u64) -> Result<EntryId, StockError> {
    let names = [&*keys.stock, &keys.answers, &keys.buyers, &keys.outbox, &keys.walks];
    let reply = HALT_SEGMENT
        .run(connection, &names, |cmd| {
            cmd.arg(token);
        })
        .await?;
    let mut reply = Reply::new(reply)?;
    match &*reply.text()? {
        "halted" => {
            let _available = reply.unsigned()?;
            reply.parse()
        }
        "fenced" => Err(fenced(keys, &mut reply)?),
        status => Err(unknown_status("halt_segment", status)),
    }
}

/// What is written back.
pub(crate) enum Restored<'a> {
    /// What is to be answered to whom.
    Answers(&'a [RestoredAnswer]),
    /// Fields of `buyers` and their counts; 0 is none.
    Buyers(&'a [(&'a str, u64)]),
}

/// An answer, as it is to stand in Redis.
pub(crate) struct RestoredAnswer {
    pub id: OrderId,
    pub answer: String,
    /// At home: the order as the list of walks may have it.
    pub packed: Option<Box<[u8]>>,
}

/// Writes answers or counts into a segment that the holder of `token` has halted.
pub(crate) async fn restore_orders(
    connection: &Connection,
    keys: &Keys,
    token: u64,
    margin_ms: i64,
    restored: Restored<'_>,
) -> Result<(), StockError> {
    let reply = RESTORE_ORDERS
        .run(connection, &[&keys.stock, &keys.answers, &keys.buyers, &keys.walks], |cmd| match restored {
            Restored::Answers(answers) => {
                cmd.arg(answers.len()).arg(token).arg("answers").arg(margin_ms);
                column(cmd, answers.iter().map(|restored| &restored.id.as_bytes()[..]));
                column(cmd, answers.iter().map(|restored| restored.answer.as_str()));
                column(cmd, answers.iter().map(|restored| restored.packed.as_deref().unwrap_or_default()));
            }
            Restored::Buyers(pairs) => {
                cmd.arg(pairs.len()).arg(token).arg("buyers").arg(margin_ms);
                column(cmd, pairs.iter().map(|(buyer, _)| *buyer));
                column(cmd, pairs.iter().map(|(_, count)| *count));
            }
        })
        .await?;
    let mut reply = Reply::new(reply)?;
    match &*reply.text()? {
        "ok" => Ok(()),
        "fenced" => Err(fenced(keys, &mut reply)?),
        status => Err(unknown_status("restore_orders", status)),
    }
}

/// What a segment is set to.
#[derive(Debug, Clone)]
pub(crate) struct Adjustment<'a> {
    /// The fencing token under which it was halted.
    pub token: u64,
    /// The last entry that was looked at.
    pub last: EntryId,
    /// Units that nobody has, as the ledger has it.
    pub available: u64,
    /// The item's new epoch.
    pub epoch: u64,
    /// The item.
    pub item: &'a Item,
}

/// The entry by which a segment was set: its new anchor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Adjusted {
    /// Its place.
    pub entry: EntryId,
    /// What it says, as a hash.
    pub fingerprint: i64,
}

/// Sets the segment and opens it again, if nothing has come in since it was looked at.
pub(crate) async fn adjust(connection: &Connection, keys: &Keys, adjustment: &Adjustment<'_>) -> Result<Adjusted, StockError> {
    let Adjustment { token, last, available, epoch, item } = adjustment;
    let config = SegmentConfig::from(*item);
    let reply = ADJUST
        .run(connection, &[&keys.stock, &keys.outbox], |cmd| {
            cmd.arg(token).arg(last.to_string()).arg(available).arg(epoch).arg(config.state.as_str());
            super::open::limit_and_window(cmd, &config);
            cmd.arg(u64::from(item.hold_seconds) * 1000).arg(item.segments).arg(&keys.name);
        })
        .await?;
    let mut reply = Reply::new(reply)?;
    match &*reply.text()? {
        "adjusted" => Ok(Adjusted { entry: reply.parse()?, fingerprint: outbox::fingerprint_of_adjusted(*available, *epoch, *token) }),
        "moved" => Err(StockError::Moved(keys.segment.clone())),
        "fenced" => Err(fenced(keys, &mut reply)?),
        status => Err(unknown_status("adjust", status)),
    }
}
