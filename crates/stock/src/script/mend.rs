//! `halt_segment`, `restore_orders`, `adjust`: a segment is made to agree with the ledger again.

use domain::{EntryId, Item, OrderId, SegmentConfig, TransferId};
use redis::Cmd;

use super::{ADJUST, HALT_SEGMENT, RESTORE_ORDERS, column, fenced, unknown_status};
use crate::{StockError, connection::Connection, keys::Keys, outbox, reply::Reply};

/// Halts the segment for the holder of `token`; makes it anew, empty, if it is gone.
pub(crate) async fn halt_segment(
    connection: &Connection,
    keys: &Keys,
    token: u64,
) -> Result<EntryId, StockError> {
    let names = [
        &*keys.stock,
        &keys.answers,
        &keys.buyers,
        &keys.outbox,
        &keys.walks,
    ];
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

/// Which batch of what is written back it is. One that was lost by a failover must not go unnoticed, and neither must one that comes late, from
/// before the segment was halted anew.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Batch {
    /// The fencing token under which the segment was halted.
    pub token: u64,
    /// The entry of the halt.
    pub last: EntryId,
    /// 1 for the first.
    pub step: u64,
}

/// What is written back.
pub(crate) enum Restored<'a> {
    /// What is to be answered to whom.
    Answers(&'a [RestoredAnswer]),
    /// Fields of `buyers` and their counts; 0 is none.
    Buyers(&'a [(&'a str, u64)]),
    /// Transfers, and what they moved: empty is nothing.
    Transfers(&'a [(TransferId, String)]),
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
    batch: Batch,
    margin_ms: i64,
    restored: Restored<'_>,
) -> Result<(), StockError> {
    let head = |cmd: &mut Cmd, n: usize, what: &str| {
        cmd.arg(n)
            .arg(batch.token)
            .arg(what)
            .arg(margin_ms)
            .arg(batch.last.to_string())
            .arg(batch.step);
    };
    let reply = RESTORE_ORDERS
        .run(
            connection,
            &[&keys.stock, &keys.answers, &keys.buyers, &keys.walks],
            |cmd| match restored {
                Restored::Answers(answers) => {
                    head(cmd, answers.len(), "answers");
                    column(
                        cmd,
                        answers.iter().map(|restored| &restored.id.as_bytes()[..]),
                    );
                    column(cmd, answers.iter().map(|restored| restored.answer.as_str()));
                    column(
                        cmd,
                        answers
                            .iter()
                            .map(|restored| restored.packed.as_deref().unwrap_or_default()),
                    );
                }
                Restored::Buyers(pairs) => {
                    head(cmd, pairs.len(), "buyers");
                    column(cmd, pairs.iter().map(|(buyer, _)| *buyer));
                    column(cmd, pairs.iter().map(|(_, count)| *count));
                }
                Restored::Transfers(pairs) => {
                    head(cmd, pairs.len(), "transfers");
                    column(cmd, pairs.iter().map(|(id, _)| &id.as_bytes()[..]));
                    column(cmd, pairs.iter().map(|(_, moved)| moved.as_str()));
                }
            },
        )
        .await?;
    let mut reply = Reply::new(reply)?;
    match &*reply.text()? {
        "ok" => Ok(()),
        "moved" => Err(StockError::Moved(keys.segment.clone())),
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
    /// Batches that were written back since the halt.
    pub restored: u64,
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
pub(crate) async fn adjust(
    connection: &Connection,
    keys: &Keys,
    adjustment: &Adjustment<'_>,
) -> Result<Adjusted, StockError> {
    let Adjustment {
        token,
        last,
        available,
        epoch,
        restored,
        item,
    } = adjustment;
    let config = SegmentConfig::from(*item);
    let reply = ADJUST
        .run(connection, &[&keys.stock, &keys.outbox], |cmd| {
            cmd.arg(token)
                .arg(last.to_string())
                .arg(available)
                .arg(epoch)
                .arg(config.state.as_str());
            super::open::limit_and_window(cmd, &config);
            cmd.arg(u64::from(item.hold_seconds) * 1000)
                .arg(item.segments)
                .arg(&keys.name)
                .arg(restored);
        })
        .await?;
    let mut reply = Reply::new(reply)?;
    match &*reply.text()? {
        "adjusted" => Ok(Adjusted {
            entry: reply.parse()?,
            fingerprint: outbox::fingerprint_of_adjusted(*available, *epoch, *token),
        }),
        "moved" => Err(StockError::Moved(keys.segment.clone())),
        "fenced" => Err(fenced(keys, &mut reply)?),
        status => Err(unknown_status("adjust", status)),
    }
}
