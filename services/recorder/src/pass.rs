//! One pass, which is one transaction: claim, read, check, apply, commit. The announcement of a
//! pass (publish, trim) may run concurrently with the next pass.

use std::{collections::HashMap, time::Duration};

use domain::SafetyCheck;
use domain::{Change, Entry, EntryId, SegmentKey};
use ledger::{Ledger, LedgerError, Recorded, SegmentReplay, SegmentRow};
use stock::{Announcement, OutboxRead, RecordedEntries, Stock, StockError, Trimmed};

use crate::{
    RecorderSettings,
    quarantine::{Quarantine, StopReason},
};

/// Maximum number of orders in a transaction, over all segments; but each segment gets at least one
/// entry. More orders would not lower the commit cost per order, and would delay all of them.
const ORDERS_MAX: usize = 16_384;

/// Up to this many segments are each read up to `entries_max`. With more segments, each gets a
/// smaller share: they all share one reply, which must arrive in time.
const FULL_READ_SEGMENTS: usize = 4;

/// The length of an outbox without an entry after its anchor. The script that appends to it sends a
/// wake-up.
pub(crate) const ANCHOR_ALONE: u64 = 1;

/// Why a pass failed. If it is unclear whether the transaction committed, the next read of the
/// checkpoint shows it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecorderError {
    /// Redis did not return the outbox.
    #[error("could not read the outbox")]
    Stock(#[from] StockError),
    /// The ledger did not commit the entries.
    #[error("could not record the entries in the ledger")]
    Ledger(#[from] LedgerError),
    /// Redis or the ledger did not answer in time.
    #[error("no answer from Redis or the ledger within {0:?}")]
    Hung(Duration),
}

/// Records all present entries of the segments once, for tests and tools. [`crate::run`] records
/// continuously.
pub async fn record_once(
    stock: &Stock,
    ledger: &dyn Ledger,
    segments: &[SegmentKey],
) -> Result<(), RecorderError> {
    let (settings, quarantine) = (RecorderSettings::default(), Quarantine::default());
    for segments in segments.chunks(settings.segments_max) {
        let mut again = segments.to_vec();
        while !again.is_empty() {
            let pass = record_pass(stock, ledger, &again, &settings, &quarantine).await?;
            again = [pass.again, announce(stock, pass.recorded).await].concat();
            again.sort_unstable();
            again.dedup();
        }
    }
    Ok(())
}

/// Result of a pass.
#[derive(Default)]
pub(crate) struct PassResult {
    /// Segments that probably have more entries.
    pub again: Vec<SegmentKey>,
    /// Announcements for other processes. The waiters of this process have been notified. Announcing
    /// shows which of these segments have more entries.
    pub recorded: Vec<Announcement>,
}

impl PassResult {
    fn to_do_again(again: Vec<SegmentKey>) -> Self {
        Self {
            again,
            recorded: Vec::new(),
        }
    }
}

/// Notifies other processes and trims the outboxes. Returns the segments whose outbox may have
/// entries after its anchor: the scripts that appended them sent no wake-up.
///
/// If this fails for a segment, orders that wait for it are answered from the ledger, and the next
/// pass trims again.
pub(crate) async fn announce(stock: &Stock, recorded: Vec<Announcement>) -> Vec<SegmentKey> {
    let segments: Vec<_> = recorded
        .iter()
        .map(|announcement| announcement.recorded.segment.clone())
        .collect();
    let left = stock.announce_recorded(recorded).await;
    if let Some(Err(error)) = left.iter().find(|left| left.is_err()) {
        tracing::warn!(%error, "recorded, but could not announce it");
    }
    let left = segments.into_iter().zip(left);
    let more = left.filter(|(_, left)| !matches!(left, Ok(ANCHOR_ALONE)));
    more.map(|(segment, _)| segment).collect()
}

/// Records entries of the segments, of `segments_max` of them at most.
///
/// A segment is to be recorded again at once if it had several entries: then it probably has more.
/// One that had a single entry waits for its announcement, which trims its outbox and shows whether
/// there is more. So an order of an item that sells little costs one claim, and not a second one
/// that finds nothing.
///
/// Besides these, a segment is left out in four cases only. A read found no entry after the anchor
/// and the outbox was trimmed down to it; from then on the script that appends sends a wake-up. Or
/// the trim failed, and the sweep will find it. Or another recorder holds the row, and will find the
/// entries. Or the segment cannot be recorded, and is in `quarantine`.
pub(crate) async fn record_pass(
    stock: &Stock,
    ledger: &dyn Ledger,
    segments: &[SegmentKey],
    settings: &RecorderSettings,
    quarantine: &Quarantine,
) -> Result<PassResult, RecorderError> {
    match record_together(stock, ledger, segments, settings, quarantine).await {
        Err(RecorderError::Ledger(error)) if error.is_refused() => {
            refused(stock, ledger, segments, settings, quarantine, error).await
        }
        recorded => recorded,
    }
}

/// The ledger refuses an entry of one of these segments on every retry. Records each segment
/// separately, so that the entry delays no other segment.
async fn refused(
    stock: &Stock,
    ledger: &dyn Ledger,
    segments: &[SegmentKey],
    settings: &RecorderSettings,
    quarantine: &Quarantine,
    error: LedgerError,
) -> Result<PassResult, RecorderError> {
    if let [segment] = segments {
        let rows = ledger.segments(&segment.item).await?;
        if let Some(row) = rows.iter().find(|row| row.key == *segment) {
            quarantine.report(row, StopReason::Refused(with_causes(&error)));
        }
        return Ok(PassResult::default());
    }
    let mut all = Vec::new();
    for segment in segments {
        let PassResult { again, recorded } = Box::pin(record_pass(
            stock,
            ledger,
            std::slice::from_ref(segment),
            settings,
            quarantine,
        ))
        .await?;
        all.extend(again);
        all.extend(announce(stock, recorded).await);
    }
    Ok(PassResult::to_do_again(all))
}

/// The error and its causes in one line.
fn with_causes(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(": ")
}

async fn record_together(
    stock: &Stock,
    ledger: &dyn Ledger,
    segments: &[SegmentKey],
    settings: &RecorderSettings,
    quarantine: &Quarantine,
) -> Result<PassResult, RecorderError> {
    // Other recorders hold all of the rows, and will find the entries.
    let Some(claim) = ledger.claim(segments, settings.segments_max).await? else {
        return Ok(PassResult::default());
    };
    let rows = claim.rows().to_vec();
    let outboxes = read_all(
        stock,
        &rows,
        (settings.entries_max * FULL_READ_SEGMENTS / rows.len()).clamp(1, settings.entries_max),
    )
    .await;
    let found = sort(&rows, outboxes, quarantine)?;
    let (mut again, failed) = untrimmed(stock, found.drained, quarantine).await;
    if found.replays.is_empty() {
        // Release explicitly: a drop takes effect later, and a wake-up that meets the claimed rows
        // until then would be lost.
        claim.release().await;
        return match failed {
            Some(error) => Err(error.into()),
            None => Ok(PassResult::to_do_again(again)),
        };
    }
    if let Some(error) = failed {
        tracing::debug!(%error, "some outboxes could not be trimmed");
    }
    let replays = capped(found.replays);
    let busy = replays.iter().filter(|replay| replay.entries.len() > 1);
    let busy: Vec<_> = busy.map(|replay| replay.row.key.clone()).collect();
    let mut entries: HashMap<SegmentKey, Vec<(EntryId, i64)>> = replays
        .iter()
        .map(|replay| (replay.row.key.clone(), taken(&replay.entries)))
        .collect();
    let recorded = match claim.record(replays).await {
        // Another recorder was faster, or holds one of the rows. The rest still has to be recorded.
        Err(LedgerError::Superseded(_)) => return Ok(PassResult::to_do_again(segments.to_vec())),
        Err(LedgerError::Diverged(key)) => {
            if let Some(row) = rows.iter().find(|row| row.key == key) {
                quarantine.report(row, StopReason::OtherHistory);
            }
            let others = segments.iter().filter(|segment| **segment != key);
            return Ok(PassResult::to_do_again(others.cloned().collect()));
        }
        recorded => recorded?,
    };
    for segment in &recorded {
        quarantine.recovered(&segment.key);
        count(segment);
    }
    again.extend(busy);
    let recorded = announcements(recorded, &mut entries);
    stock.notify_local_waiters(&recorded);
    Ok(PassResult { again, recorded })
}

/// What other processes are notified of: each recorded entry by id and fingerprint.
fn announcements(
    recorded: Vec<Recorded>,
    entries: &mut HashMap<SegmentKey, Vec<(EntryId, i64)>>,
) -> Vec<Announcement> {
    let announcement = |recorded: Recorded| Announcement {
        checkpoint: recorded.checkpoint,
        recorded: RecordedEntries {
            entries: entries.remove(&recorded.key).unwrap_or_default(),
            segment: recorded.key,
            rejected: recorded.rejected,
        },
    };
    recorded.into_iter().map(announcement).collect()
}

/// Reads each outbox from its anchor on. If an entry cannot be decoded, returns the entries before
/// it.
async fn read_all(
    stock: &Stock,
    rows: &[SegmentRow],
    at_most: usize,
) -> Vec<Result<Vec<Entry>, StockError>> {
    let wanted: Vec<_> = rows.iter().map(|row| wanted(row, at_most)).collect();
    let mut outboxes = stock.read_outboxes(&wanted).await;
    for (row, outbox) in rows.iter().zip(&mut outboxes) {
        let mut at_most = at_most;
        while at_most > 1 && matches!(outbox, Err(StockError::Unreadable(_))) {
            at_most /= 2;
            let OutboxRead {
                segment,
                from,
                at_most,
            } = self::wanted(row, at_most);
            *outbox = stock.read_outbox(&segment, from, at_most).await;
        }
    }
    outboxes
}

/// The read for a row: `at_most` entries, and one more for the anchor.
fn wanted(row: &SegmentRow, at_most: usize) -> OutboxRead {
    OutboxRead {
        segment: row.key.clone(),
        from: row.checkpoint,
        at_most: at_most + usize::from(row.checkpoint.is_some()),
    }
}

/// Contents of the outboxes of a claim after their anchors.
#[derive(Default)]
struct Found {
    replays: Vec<SegmentReplay>,
    /// Segments without an entry after this checkpoint.
    drained: Vec<(SegmentKey, Option<EntryId>)>,
}

/// Leaves a segment whose outbox could not be read (its shard may be down) to the sweep. It is an
/// error only if no other outbox could be read.
fn sort(
    rows: &[SegmentRow],
    outboxes: Vec<Result<Vec<Entry>, StockError>>,
    quarantine: &Quarantine,
) -> Result<Found, StockError> {
    let mut found = Found::default();
    let mut failed = None;
    for (row, outbox) in rows.iter().zip(outboxes) {
        match outbox.map(|outbox| behind_the_anchor(row, outbox)) {
            Ok(Ok(entries)) if entries.is_empty() => {
                found.drained.push((row.key.clone(), row.checkpoint))
            }
            Ok(Ok(entries)) => found.replays.push(SegmentReplay {
                row: row.clone(),
                entries,
            }),
            Ok(Err(reason)) => quarantine.report(row, reason),
            Err(StockError::Unreadable(what)) => {
                quarantine.report(row, StopReason::Unreadable(what))
            }
            Err(error) => failed = Some(error),
        }
    }
    match failed {
        Some(error) if found.replays.is_empty() && found.drained.is_empty() => Err(error),
        Some(error) => {
            tracing::debug!(%error, "some outboxes could not be read");
            Ok(found)
        }
        None => Ok(found),
    }
}

fn behind_the_anchor(row: &SegmentRow, mut outbox: Vec<Entry>) -> Result<Vec<Entry>, StopReason> {
    let Some(checkpoint) = row.checkpoint else {
        return Ok(outbox);
    };
    let found = outbox.first().map(|first| (first.id, first.fingerprint));
    let is_anchored = found.is_some() && found == row.anchor.map(|anchor| (checkpoint, anchor));
    if !is_anchored && SafetyCheck::AnchorCheck.is_enabled() {
        return Err(StopReason::OtherAnchor { found });
    }
    outbox.retain(|entry| entry.id > checkpoint);
    Ok(outbox)
}

/// Truncates the entries to what fits into one transaction. The next pass reads the rest.
fn capped(mut replays: Vec<SegmentReplay>) -> Vec<SegmentReplay> {
    let share = ORDERS_MAX / replays.len().max(1);
    for replay in &mut replays {
        let mut orders = 0;
        let fitting = replay.entries.iter().take_while(|entry| {
            orders += number_of_orders(entry);
            orders <= share
        });
        let fitting = fitting.count().max(1);
        replay.entries.truncate(fitting);
    }
    replays
}

fn number_of_orders(entry: &Entry) -> usize {
    match &entry.change {
        Change::Taken { orders, .. } | Change::Released { orders } => orders.len(),
        _ => 0,
    }
}

/// Trims outboxes that held no entry after their anchor, and returns those that are still longer
/// than the anchor. Scripts that append to those send no wake-up, so they must be read again. An
/// earlier pass may have failed to trim, or its trim may run between our read and now.
///
/// Where a master takes no writes, what others have is recorded all the same, and the sweep finds these
/// again. The error is one of them.
async fn untrimmed(
    stock: &Stock,
    drained: Vec<(SegmentKey, Option<EntryId>)>,
    quarantine: &Quarantine,
) -> (Vec<SegmentKey>, Option<StockError>) {
    drained
        .iter()
        .for_each(|(segment, _)| quarantine.recovered(segment));
    let anchored: Vec<_> = drained
        .into_iter()
        .filter_map(|(segment, checkpoint)| Some((segment, checkpoint?)))
        .collect();
    let (mut again, mut failed) = (Vec::new(), None);
    for ((segment, _), trimmed) in anchored.iter().zip(stock.trim_outboxes(&anchored).await) {
        match trimmed {
            Ok(Trimmed {
                dropped: 0,
                left: ANCHOR_ALONE,
            }) => {}
            Ok(_) => again.push(segment.clone()),
            Err(error) => failed = Some(error),
        }
    }
    (again, failed)
}

/// The entries in which orders took units: buyers wait for these.
fn taken(entries: &[Entry]) -> Vec<(EntryId, i64)> {
    let taken = entries
        .iter()
        .filter(|entry| matches!(entry.change, Change::Taken { .. }));
    taken.map(|entry| (entry.id, entry.fingerprint)).collect()
}

fn count(recorded: &Recorded) {
    metrics::counter!("stockade_recorded_orders_total", "state" => "held")
        .increment(recorded.held as u64);
    metrics::counter!("stockade_recorded_orders_total", "state" => "rejected")
        .increment(recorded.rejected.len() as u64);
    metrics::counter!("stockade_recorder_repeats_total").increment(recorded.repeated as u64);
    metrics::counter!("stockade_returned_orders_total").increment(recorded.returned as u64);
    if !recorded.rejected.is_empty() {
        tracing::error!(segment = %recorded.key, orders = recorded.rejected.len(), "ledger rejected orders that exceed the segment's stock");
    }
}

#[cfg(test)]
mod tests {
    use domain::{BuyerId, Change, Entry, EntryId, OrderId, Quantity, TakenOrder};
    use ledger::{SegmentReplay, SegmentRow};

    use super::{ORDERS_MAX, StopReason, behind_the_anchor, capped};

    fn row(checkpoint: Option<u64>) -> SegmentRow {
        SegmentRow {
            key: "vase:0".parse().unwrap(),
            allocated: 1,
            available: 1,
            held: 0,
            confirmed: 0,
            returning: 0,
            checkpoint: checkpoint.map(|ms| EntryId { ms, seq: 0 }),
            anchor: checkpoint.map(|ms| ms as i64),
            version: 1,
            fence: 0,
        }
    }

    fn taken(ms: u64, orders: usize) -> Entry {
        let order = TakenOrder {
            id: OrderId::from_bytes([0; 16]),
            buyer: BuyerId::new("ann").unwrap(),
            quantity: Quantity::ONE,
        };
        let change = Change::Taken {
            price: None,
            expires_at: "2030-01-01T00:00:00Z".parse().unwrap(),
            orders: vec![order; orders],
        };
        Entry {
            id: EntryId { ms, seq: 0 },
            fingerprint: ms as i64,
            change,
        }
    }

    #[test]
    fn recording_needs_an_outbox_that_begins_with_the_anchor() {
        let entries = vec![taken(1, 1), taken(2, 1)];
        assert_eq!(
            behind_the_anchor(&row(None), entries.clone()),
            Ok(entries.clone())
        );
        assert_eq!(
            behind_the_anchor(&row(Some(1)), entries.clone()),
            Ok(vec![taken(2, 1)])
        );
        let other = StopReason::OtherAnchor {
            found: Some((EntryId { ms: 1, seq: 0 }, 1)),
        };
        assert_eq!(
            behind_the_anchor(&row(Some(2)), entries.clone()),
            Err(other.clone())
        );
        let replaced = SegmentRow {
            anchor: Some(7),
            ..row(Some(1))
        };
        assert_eq!(behind_the_anchor(&replaced, entries), Err(other));
        assert_eq!(
            behind_the_anchor(&row(Some(1)), vec![]),
            Err(StopReason::OtherAnchor { found: None })
        );
    }

    #[test]
    fn a_transaction_has_entries_of_every_segment_and_is_limited_in_orders() {
        let replay = |entries| SegmentReplay {
            row: row(Some(1)),
            entries,
        };
        let big = ORDERS_MAX / 4;
        let lengths = |replays: Vec<SegmentReplay>| {
            replays
                .into_iter()
                .map(|replay| replay.entries.len())
                .collect::<Vec<_>>()
        };
        let few = || replay(vec![taken(2, 1), taken(3, 1)]);
        let much = || replay((2..20).map(|ms| taken(ms, big)).collect());
        assert_eq!(lengths(capped(vec![much()])), [4]);
        assert_eq!(lengths(capped(vec![few(), much()])), [2, 2]);
        assert_eq!(
            lengths(capped(vec![replay(vec![
                taken(2, ORDERS_MAX * 2),
                taken(3, 1)
            ])])),
            [1],
            "an entry is never cut"
        );
    }
}
