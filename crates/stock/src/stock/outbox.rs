//! Outboxes: reading and trimming them, and announcing how far they have been recorded.

use domain::{Entry, EntryId, SegmentKey};
use redis::{Cmd, Value};

use super::Stock;
use crate::{
    StockError,
    keys::{Keys, OUTBOX_CHANNEL, RECORDED_CHANNEL},
    outbox::{Announcement, OutboxRead, RecordedEntries, Trimmed, decode_entries},
    reply::ReplyReader,
};

impl Stock {
    /// The entries of each of these ranges, in order.
    pub async fn read_outboxes(
        &self,
        ranges: &[OutboxRead],
    ) -> Vec<Result<Vec<Entry>, StockError>> {
        let cmds = ranges.iter().map(read).collect();
        let replies = self.shared.bulk.query_each(cmds).await;
        let entries = |reply: Result<Value, _>| decode_entries(ReplyReader::new(reply?)?);
        replies.into_iter().map(entries).collect()
    }

    /// Up to `at_most` entries of the segment's outbox, from `from` on, inclusive (from the
    /// beginning: `None`), on the connections for operators and auditors.
    pub async fn read_outbox(
        &self,
        segment: &SegmentKey,
        from: Option<EntryId>,
        at_most: usize,
    ) -> Result<Vec<Entry>, StockError> {
        let range = OutboxRead {
            segment: segment.clone(),
            from,
            at_most,
        };
        let reply = self.shared.operators.query(&read(&range)).await?;
        decode_entries(ReplyReader::new(reply)?)
    }

    /// Drops the entries before each checkpoint. The checkpoint itself stays: it is the anchor.
    pub async fn trim_outboxes(
        &self,
        checkpoints: &[(SegmentKey, EntryId)],
    ) -> Vec<Result<Trimmed, StockError>> {
        let cmds = checkpoints
            .iter()
            .flat_map(|(segment, checkpoint)| [trim(segment, *checkpoint), length(segment)]);
        let replies = self.shared.bulk.query_each(cmds.collect()).await;
        let mut numbers = replies.into_iter().map(|reply| number(reply?));
        let mut next = || numbers.next().unwrap_or(Ok(0));
        checkpoints
            .iter()
            .map(|_| (next(), next()))
            .map(|(dropped, left)| {
                Ok(Trimmed {
                    dropped: dropped?,
                    left: left?,
                })
            })
            .collect()
    }

    /// Wakes the recorders for the segment, after a transaction that held its row may have kept
    /// them from it.
    pub async fn wake_recorders(&self, segment: &SegmentKey) -> Result<(), StockError> {
        let mut cmd = redis::cmd("PUBLISH");
        cmd.arg(OUTBOX_CHANNEL).arg(segment.to_string());
        self.shared.bulk.query(&cmd).await
    }

    /// Notifies the orders that wait in this process of what the ledger has recorded, without a
    /// round trip through Redis.
    pub fn notify_local_waiters(&self, announcements: &[Announcement]) {
        for announcement in announcements {
            let recorded = announcement.recorded.clone();
            self.shared.checkpoints.recorded(recorded);
        }
    }

    /// Publishes to every order service what the ledger has recorded, and trims the outboxes. The
    /// entries before each checkpoint are dropped; the checkpoint itself stays as the anchor. Returns
    /// how many entries are left in each outbox, the anchor included.
    pub async fn announce_recorded(
        &self,
        announcements: Vec<Announcement>,
    ) -> Vec<Result<u64, StockError>> {
        let mut cmds = Vec::with_capacity(announcements.len() * 3);
        for Announcement {
            recorded,
            checkpoint,
        } in &announcements
        {
            if is_awaited(recorded) {
                cmds.push(publish(recorded));
            }
            cmds.push(trim(&recorded.segment, *checkpoint));
            cmds.push(length(&recorded.segment));
        }
        let mut replies = self.shared.bulk.query_each(cmds).await.into_iter();
        let mut next = || replies.next().unwrap_or(Ok(Value::Nil));
        let left = announcements.iter().map(|Announcement { recorded, .. }| {
            let published = is_awaited(recorded).then(&mut next);
            let (trimmed, left) = (next(), next());
            published.transpose()?;
            trimmed?;
            number(left?)
        });
        left.collect()
    }
}

/// Whether buyers may wait for one of the entries.
fn is_awaited(recorded: &RecordedEntries) -> bool {
    !recorded.entries.is_empty()
}

fn number(reply: Value) -> Result<u64, StockError> {
    Ok(redis::from_redis_value(reply).map_err(redis::RedisError::from)?)
}

fn read(range: &OutboxRead) -> Cmd {
    let from = range
        .from
        .map_or_else(|| "-".to_owned(), |id| id.to_string());
    let mut cmd = redis::cmd("XRANGE");
    cmd.arg(Keys::of(&range.segment).outbox)
        .arg(from)
        .arg("+")
        .arg("COUNT")
        .arg(range.at_most);
    cmd
}

fn publish(recorded: &RecordedEntries) -> Cmd {
    let mut cmd = redis::cmd("PUBLISH");
    cmd.arg(RECORDED_CHANNEL).arg(recorded.encode());
    cmd
}

fn length(segment: &SegmentKey) -> Cmd {
    let mut cmd = redis::cmd("XLEN");
    cmd.arg(Keys::of(segment).outbox);
    cmd
}

fn trim(segment: &SegmentKey, checkpoint: EntryId) -> Cmd {
    let mut cmd = redis::cmd("XTRIM");
    cmd.arg(Keys::of(segment).outbox)
        .arg("MINID")
        .arg(checkpoint.to_string());
    cmd
}
