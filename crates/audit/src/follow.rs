//! Snapshots for a process that takes one several times a second: of an outbox it reads what is
//! new, and not the whole backlog that the ledger lacks.
//!
//! It remembers the last entry that it has read, by id and fingerprint. An outbox grows at its end,
//! is trimmed at its front, and a failover cuts off its end. So as long as that entry is there, all
//! before it are as they were read. If it is gone, the outbox is read from the checkpoint on. The
//! anchor is looked for in each snapshot: it alone shows that the outbox continues what the ledger
//! has.
//!
//! Of each entry that is not recorded it keeps less than a hundred bytes, and of each page nothing.

use std::collections::{HashMap, VecDeque};

use domain::{Change, Entry, EntryId, ItemId, SegmentKey};
use futures::future::try_join_all;
use ledger::{Ledger, SegmentRow};
use stock::{Inspection, InspectionEntries, Stock, StockError};

use crate::{
    AuditError,
    snapshot::{self, Snapshot},
};

/// Entries of one read behind the first.
const PAGE_ENTRIES: usize = 256;
/// Entries for which memory is kept between two snapshots, however few there are.
const KEPT_ENTRIES: usize = 256;
/// Attempts at a consistent snapshot. Then the outbox is read as a whole.
const ATTEMPTS_MAX: usize = 10;

/// What was read of the outboxes of one item, between two snapshots of it.
#[derive(Debug, Default)]
pub struct Outboxes(HashMap<SegmentKey, Seen>);

impl Outboxes {
    /// A snapshot of every segment of the item, like [`crate::snapshots`], but without the entries.
    pub async fn snapshots(
        &mut self,
        stock: &Stock,
        ledger: &dyn Ledger,
        item: &ItemId,
    ) -> Result<Vec<Snapshot>, AuditError> {
        let rows = ledger.segments(item).await?;
        let mut known = std::mem::take(&mut self.0);
        let followed = rows.into_iter().map(|row| {
            let seen = known.remove(&row.key).unwrap_or_default();
            follow(stock, ledger, row, seen)
        });
        let mut snapshots = Vec::new();
        for (snapshot, seen) in try_join_all(followed).await? {
            self.0.insert(snapshot.row.key.clone(), seen);
            snapshots.push(snapshot);
        }
        Ok(snapshots)
    }
}

/// The entries of a segment that were read, from its anchor on.
#[derive(Debug, Default)]
struct Seen(VecDeque<Mark>);

/// What matters of an entry.
#[derive(Debug, Clone, Copy)]
struct Mark {
    id: EntryId,
    fingerprint: i64,
    is_opened: bool,
    unrecorded: Unrecorded,
}

/// Entries that the ledger lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Unrecorded {
    /// Their number.
    pub entries: usize,
    /// When the oldest was written, by Redis's clock.
    pub oldest_ms: Option<u64>,
    /// What they change in the available units.
    pub effect: i64,
    /// Units that orders took by them.
    pub taken: u64,
    /// Units that orders gave back by them.
    pub released: u64,
}

impl Unrecorded {
    pub(crate) fn of<'e>(entries: impl IntoIterator<Item = &'e Entry>) -> Self {
        let entries = entries.into_iter().map(Self::of_one);
        entries.fold(Self::default(), Self::and)
    }

    fn of_one(entry: &Entry) -> Self {
        // `opened` has the units that the row began with. A repair writes `adjusted` only over a
        // row with the same units.
        let effect = entry.change.effect().unwrap_or(0);
        let units = |is_so| if is_so { effect.unsigned_abs() } else { 0 };
        Self {
            entries: 1,
            oldest_ms: Some(entry.id.ms),
            effect,
            taken: units(matches!(entry.change, Change::Taken { .. })),
            released: units(matches!(entry.change, Change::Released { .. })),
        }
    }

    fn and(self, other: Self) -> Self {
        let oldest = self.oldest_ms.into_iter().chain(other.oldest_ms);
        Self {
            entries: self.entries + other.entries,
            oldest_ms: oldest.min(),
            effect: self.effect + other.effect,
            taken: self.taken + other.taken,
            released: self.released + other.released,
        }
    }
}

impl Seen {
    fn add(&mut self, entry: &Entry) {
        self.0.push_back(Mark {
            id: entry.id,
            fingerprint: entry.fingerprint,
            is_opened: matches!(entry.change, Change::Opened { .. }),
            unrecorded: Unrecorded::of_one(entry),
        });
    }

    /// The last entry that was read.
    fn cursor(&self) -> Option<(EntryId, i64)> {
        self.0.back().map(|mark| (mark.id, mark.fingerprint))
    }

    /// Forgets what was recorded before the checkpoint, and everything if the checkpoint is not
    /// among what was read.
    fn trim(&mut self, checkpoint: Option<EntryId>) {
        let Some(checkpoint) = checkpoint else {
            return;
        };
        while self.0.front().is_some_and(|mark| mark.id < checkpoint) {
            self.0.pop_front();
        }
        if self.0.front().is_none_or(|mark| mark.id != checkpoint) {
            self.0.clear();
        }
        // A backlog that is over leaves no memory behind.
        if self.0.capacity() > KEPT_ENTRIES.max(4 * self.0.len()) {
            self.0.shrink_to(KEPT_ENTRIES.max(2 * self.0.len()));
        }
    }

    /// Whether the first entry is what the row has recorded last.
    fn is_anchored(&self, row: &SegmentRow) -> bool {
        match (row.checkpoint, self.0.front()) {
            (None, first) => first.is_some_and(|first| first.is_opened),
            (Some(checkpoint), Some(first)) => {
                first.id == checkpoint && Some(first.fingerprint) == row.anchor
            }
            (Some(_), None) => false,
        }
    }

    fn unrecorded(&self, row: &SegmentRow) -> Unrecorded {
        let anchor = usize::from(row.checkpoint.is_some() && self.is_anchored(row));
        let marks = self.0.iter().skip(anchor).map(|mark| mark.unrecorded);
        marks.fold(Unrecorded::default(), Unrecorded::and)
    }
}

async fn follow(
    stock: &Stock,
    ledger: &dyn Ledger,
    mut row: SegmentRow,
    mut seen: Seen,
) -> Result<(Snapshot, Seen), AuditError> {
    for _ in 0..ATTEMPTS_MAX {
        seen.trim(row.checkpoint);
        match follow_once(stock, &row, &mut seen).await {
            Ok(Some(inspection)) if seen.is_anchored(&row) => {
                let unrecorded = seen.unrecorded(&row);
                return Ok((Snapshot::followed(row, inspection, unrecorded), seen));
            }
            Ok(_) | Err(StockError::Missing(_)) => {}
            Err(error) => return Err(error.into()),
        }
        // The recorder may have come in between. Otherwise the outbox is not the one that was read.
        let before = row.checkpoint;
        row = snapshot::row_again(ledger, row).await?;
        if row.checkpoint == before {
            seen = Seen::default();
        }
    }
    // It has diverged: what is reported of it comes from the entries themselves.
    let whole = snapshot::take(stock, ledger, row).await?;
    Ok((whole, Seen::default()))
}

/// Reads the segment and its new entries, page by page. `None`: the outbox does not have the last
/// entry that was read, or its anchor.
async fn follow_once(
    stock: &Stock,
    row: &SegmentRow,
    seen: &mut Seen,
) -> Result<Option<Inspection>, StockError> {
    let from = seen.cursor().map(|(id, _)| id).or(row.checkpoint);
    if let Some(checkpoint) = row.checkpoint
        && from != Some(checkpoint)
    {
        let anchor = stock.read_outbox(&row.key, Some(checkpoint), 1).await?;
        if anchor
            .first()
            .map(|first| (first.id, Some(first.fingerprint)))
            != Some((checkpoint, row.anchor))
        {
            return Ok(None);
        }
    }
    let entries = from.map_or(InspectionEntries::All, InspectionEntries::From);
    let mut inspection = stock.snapshot_page(&row.key, entries).await?;
    let mut page = std::mem::take(&mut inspection.entries);
    loop {
        let cursor = seen.cursor();
        let mut entries = page.iter();
        // A page begins with the last entry of the one before.
        if cursor.is_some() {
            let first = entries.next();
            if first.map(|first| (first.id, first.fingerprint)) != cursor {
                return Ok(None);
            }
        }
        let new = entries.take_while(|entry| entry.id <= inspection.last);
        new.for_each(|entry| seen.add(entry));
        match seen.cursor() {
            Some((id, _)) if seen.cursor() != cursor && id < inspection.last => {
                let more = stock.read_outbox(&row.key, Some(id), PAGE_ENTRIES + 1);
                page = more.await?;
            }
            _ => return Ok(Some(inspection)),
        }
    }
}
