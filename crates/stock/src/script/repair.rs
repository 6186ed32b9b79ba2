//! `halt_segment`, `restore_orders`, `adjust`: a repairer makes a segment agree with the ledger
//! again.

use domain::{EntryId, Item, OrderId, SegmentConfig, TransferId};
use redis::Cmd;

use super::{ADJUST, HALT_SEGMENT, RESTORE_ORDERS, column, fenced, unknown_status};
use crate::{StockError, connection::Connection, keys::Keys, outbox, reply::ReplyReader};

/// Halts the segment for the holder of `token`. A segment that is gone is created empty.
pub(crate) async fn halt_segment(
    connection: &Connection,
    keys: &Keys,
    token: u64,
    memory: OldMemory,
) -> Result<EntryId, StockError> {
    let names = [
        &*keys.stock,
        &keys.decisions,
        &keys.buyers,
        &keys.outbox,
        &keys.spillovers,
    ];
    let reply = HALT_SEGMENT
        .run(connection, keys, &names, |cmd| {
            cmd.arg(token).arg(match memory {
                OldMemory::Keep => "keep",
                OldMemory::Drop => "drop",
            });
        })
        .await?;
    let mut reply = ReplyReader::new(reply)?;
    match &*reply.text()? {
        "halted" => {
            let _available = reply.unsigned()?;
            reply.parse()
        }
        "fenced" => Err(fenced(keys, &mut reply)?),
        status => Err(unknown_status("halt_segment", status)),
    }
}

/// What happens to the decisions, counts and spillovers of a segment that is halted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OldMemory {
    /// They stay, and the ledger's are written over them.
    Keep,
    /// They go, and the segment gets those of the ledger alone. The ledger was restored from a
    /// backup, so the segment has decisions on orders that the ledger has lost.
    Drop,
}

/// Identifies one batch of a restoration. A batch that a failover lost must not go unnoticed, and
/// neither must a late one from before the segment was halted again.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Batch {
    /// The fencing token under which the segment was halted.
    pub token: u64,
    /// The entry of the halt.
    pub last: EntryId,
    /// 1 for the first batch.
    pub step: u64,
}

/// The contents of one batch of a restoration.
pub(crate) enum Restored<'a> {
    /// Decisions by order.
    Decisions(&'a [RestoredDecision]),
    /// Fields of `buyers` and their counts; 0 removes the field.
    Buyers(&'a [(&'a str, u64)]),
    /// Transfers and the units that they moved; empty removes the record.
    Transfers(&'a [(TransferId, String)]),
}

/// A decision, as it is to stand in Redis.
pub(crate) struct RestoredDecision {
    pub id: OrderId,
    pub decision: String,
    /// At home: the order as the list of spillovers may have it.
    pub packed: Option<Box<[u8]>>,
}

impl Restored<'_> {
    fn kind(&self) -> &'static str {
        match self {
            Self::Decisions(_) => "decisions",
            Self::Buyers(_) => "buyers",
            Self::Transfers(_) => "transfers",
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Decisions(decisions) => decisions.len(),
            Self::Buyers(pairs) => pairs.len(),
            Self::Transfers(pairs) => pairs.len(),
        }
    }

    fn columns(&self, cmd: &mut Cmd) {
        match self {
            Self::Decisions(decisions) => {
                column(cmd, decisions.iter().map(|each| &each.id.as_bytes()[..]));
                column(cmd, decisions.iter().map(|each| each.decision.as_str()));
                let packed = decisions.iter().map(|each| each.packed.as_deref());
                column(cmd, packed.map(Option::unwrap_or_default));
            }
            Self::Buyers(pairs) => {
                column(cmd, pairs.iter().map(|(buyer, _)| *buyer));
                column(cmd, pairs.iter().map(|(_, count)| *count));
            }
            Self::Transfers(pairs) => {
                column(cmd, pairs.iter().map(|(id, _)| &id.as_bytes()[..]));
                column(cmd, pairs.iter().map(|(_, moved)| moved.as_str()));
            }
        }
    }
}

/// Writes one batch into a segment that the holder of `token` has halted.
pub(crate) async fn restore_orders(
    connection: &Connection,
    keys: &Keys,
    batch: Batch,
    margin_ms: i64,
    restored: Restored<'_>,
) -> Result<(), StockError> {
    let names = [
        &*keys.stock,
        &keys.decisions,
        &keys.buyers,
        &keys.spillovers,
    ];
    let reply = RESTORE_ORDERS
        .run(connection, keys, &names, |cmd| {
            cmd.arg(restored.len())
                .arg(batch.token)
                .arg(restored.kind())
                .arg(margin_ms)
                .arg(batch.last.to_string())
                .arg(batch.step);
            restored.columns(cmd);
        })
        .await?;
    let mut reply = ReplyReader::new(reply)?;
    match &*reply.text()? {
        "ok" => Ok(()),
        "moved" => Err(StockError::Moved(keys.segment.clone())),
        "fenced" => Err(fenced(keys, &mut reply)?),
        status => Err(unknown_status("restore_orders", status)),
    }
}

/// The state that a repaired segment is set to.
#[derive(Debug, Clone)]
pub(crate) struct Adjustment<'a> {
    /// The fencing token under which the segment was halted.
    pub token: u64,
    /// The last entry that was read.
    pub last: EntryId,
    /// Free units, by the ledger.
    pub available: u64,
    /// Units that the ledger has in transit from here.
    pub leaving: u64,
    /// The item's new epoch.
    pub epoch: u64,
    /// Batches restored since the halt.
    pub restored: u64,
    /// The item.
    pub item: &'a Item,
}

/// The entry by which a segment was set: its new anchor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Adjusted {
    /// Id of the entry.
    pub entry: EntryId,
    /// Hash of its fields.
    pub fingerprint: i64,
}

/// Sets the segment and reopens it, if it has not changed since it was read.
pub(crate) async fn adjust(
    connection: &Connection,
    keys: &Keys,
    adjustment: &Adjustment<'_>,
) -> Result<Adjusted, StockError> {
    let Adjustment {
        token,
        last,
        available,
        leaving,
        epoch,
        restored,
        item,
    } = adjustment;
    let config = SegmentConfig::from(*item);
    let names = [&*keys.stock, &keys.outbox];
    let reply = ADJUST
        .run(connection, keys, &names, |cmd| {
            cmd.arg(token)
                .arg(last.to_string())
                .arg(available)
                .arg(epoch)
                .arg(config.state.as_str());
            super::open::limit_and_window(cmd, &config);
            cmd.arg(u64::from(item.hold_seconds) * 1000)
                .arg(item.segments)
                .arg(&keys.name)
                .arg(restored)
                .arg(leaving)
                .arg(super::open::price(&config));
        })
        .await?;
    let mut reply = ReplyReader::new(reply)?;
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
