//! One transaction: claim, read, check, apply, commit. What it says of it (publish, trim) may be said beside the next one.

use std::{collections::HashMap, time::Duration};

use devices::Device;
use domain::{Change, Entry, EntryId, SegmentKey};
use ledger::{Ledger, LedgerError, Recorded, SegmentReplay, SegmentRow};
use stock::{Announcement, OutboxRead, RecordedEntries, Stock, StockError, Trimmed};

use crate::{
    RecorderSettings,
    lost::{Lost, Why},
};

/// The most orders in a transaction, all segments together; but every segment has an entry in it. More would not make a commit cheaper by the
/// order, and would make all of them wait.
const ORDERS_MAX: usize = 16_384;

/// So many segments may be read as far as the settings allow; if there are more, each a little less. They share one reply, which must come in time.
const FULL: usize = 4;

/// Why a pass failed. Nothing was recorded, or it was and re-reading the checkpoint tells.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecorderError {
    /// Redis did not give the outbox.
    #[error("the outbox could not be read")]
    Stock(#[from] StockError),
    /// The ledger did not take it.
    #[error("the ledger did not record")]
    Ledger(#[from] LedgerError),
    /// Somebody did not answer at all.
    #[error("it was given up after {0:?} without an answer")]
    Hung(Duration),
}

/// Records what the segments have, once. For tests and tools; [`crate::run`] does it for good.
pub async fn record_once(
    stock: &Stock,
    ledger: &dyn Ledger,
    segments: &[SegmentKey],
) -> Result<(), RecorderError> {
    let (settings, lost) = (RecorderSettings::default(), Lost::default());
    for segments in segments.chunks(settings.segments_max) {
        let mut again = segments.to_vec();
        while !again.is_empty() {
            let passed = record_pass(stock, ledger, &again, &settings, &lost).await?;
            announce(stock, passed.recorded).await;
            again = passed.again;
        }
    }
    Ok(())
}

/// What came of a pass.
#[derive(Default)]
pub(crate) struct Passed {
    /// Segments that may have more.
    pub again: Vec<SegmentKey>,
    /// What is to be announced: who waits in this process has been told.
    pub recorded: Vec<Announcement>,
}

impl Passed {
    fn to_do_again(again: Vec<SegmentKey>) -> Self {
        Self {
            again,
            recorded: Vec::new(),
        }
    }
}

/// Tells the other processes, and trims. Whoever waits and is not told asks the ledger, and the next pass trims again.
pub(crate) async fn announce(stock: &Stock, recorded: Vec<Announcement>) {
    if let Err(error) = stock.announce_recorded(recorded).await {
        tracing::warn!(%error, "recorded, but could not say so");
    }
}

/// Records some of what the segments have; the first `segments_max` of them.
///
/// A segment is left out of those that may have more only after a read that found nothing behind an outbox that had been trimmed down to its anchor
/// (from then on the script that appends sends a wake-up), or if somebody else holds it, who will find what there is, or if it cannot be
/// recorded, which `lost` then knows.
pub(crate) async fn record_pass(
    stock: &Stock,
    ledger: &dyn Ledger,
    segments: &[SegmentKey],
    settings: &RecorderSettings,
    lost: &Lost,
) -> Result<Passed, RecorderError> {
    match record_together(stock, ledger, segments, settings, lost).await {
        Err(RecorderError::Ledger(error)) if error.is_refused() => {
            refused(stock, ledger, segments, settings, lost, error).await
        }
        recorded => recorded,
    }
}

/// The ledger will never take an entry of one of these segments. Each by itself, so that it holds up none but its own.
async fn refused(
    stock: &Stock,
    ledger: &dyn Ledger,
    segments: &[SegmentKey],
    settings: &RecorderSettings,
    lost: &Lost,
    error: LedgerError,
) -> Result<Passed, RecorderError> {
    if let [segment] = segments {
        let rows = ledger.segments(&segment.item).await?;
        if let Some(row) = rows.iter().find(|row| row.key == *segment) {
            lost.report(row, Why::Refused(whole_story(&error)));
        }
        return Ok(Passed::default());
    }
    let mut all = Vec::new();
    for segment in segments {
        let Passed { again, recorded } = Box::pin(record_pass(
            stock,
            ledger,
            std::slice::from_ref(segment),
            settings,
            lost,
        ))
        .await?;
        all.extend(again);
        announce(stock, recorded).await;
    }
    Ok(Passed::to_do_again(all))
}

/// An error and its causes.
fn whole_story(error: &dyn std::error::Error) -> String {
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
    lost: &Lost,
) -> Result<Passed, RecorderError> {
    // Somebody else holds all of them, and will find what there is.
    let Some(claim) = ledger.claim(segments, settings.segments_max).await? else {
        return Ok(Passed::default());
    };
    let rows = claim.rows().to_vec();
    let outboxes = read_all(
        stock,
        &rows,
        (settings.entries_max * FULL / rows.len()).clamp(1, settings.entries_max),
    )
    .await;
    let found = sort(&rows, outboxes, lost)?;
    let mut again = untrimmed(stock, found.drained, lost).await?;
    if found.replays.is_empty() {
        // Not merely dropped: a wake-up that comes now would find the rows still claimed, and be lost.
        claim.release().await;
        return Ok(Passed::to_do_again(again));
    }
    let replays = capped(found.replays);
    let mut entries: HashMap<SegmentKey, Vec<(EntryId, i64)>> = replays
        .iter()
        .map(|replay| (replay.row.key.clone(), taken(&replay.entries)))
        .collect();
    let recorded = match claim.record(replays).await {
        // Somebody else was faster, or holds one of them; what they leave is still to be recorded.
        Err(LedgerError::Superseded(_)) => return Ok(Passed::to_do_again(segments.to_vec())),
        Err(LedgerError::Diverged(key)) => {
            if let Some(row) = rows.iter().find(|row| row.key == key) {
                lost.report(row, Why::OtherHistory);
            }
            return Ok(Passed::to_do_again(
                segments
                    .iter()
                    .filter(|segment| **segment != key)
                    .cloned()
                    .collect(),
            ));
        }
        recorded => recorded?,
    };
    for segment in &recorded {
        lost.is_well(&segment.key);
        count(segment);
    }
    again.extend(recorded.iter().map(|segment| segment.key.clone()));
    let announcements = recorded.into_iter().map(|segment| {
        let Recorded {
            key: segment,
            rejected,
            checkpoint,
            ..
        } = segment;
        let entries = entries.remove(&segment).unwrap_or_default();
        Announcement {
            recorded: RecordedEntries {
                segment,
                entries,
                rejected,
            },
            checkpoint,
        }
    });
    let recorded: Vec<_> = announcements.collect();
    stock.tell_who_waits_here(&recorded);
    Ok(Passed { again, recorded })
}

/// What the outboxes hold, each from its anchor on. If an entry of one cannot be read, what stands before it.
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

/// One more than `at_most`, for the anchor.
fn wanted(row: &SegmentRow, at_most: usize) -> OutboxRead {
    OutboxRead {
        segment: row.key.clone(),
        from: row.checkpoint,
        at_most: at_most + usize::from(row.checkpoint.is_some()),
    }
}

/// What the outboxes of a claim hold behind their anchors.
#[derive(Default)]
struct Found {
    replays: Vec<SegmentReplay>,
    /// Nothing, up to this checkpoint.
    drained: Vec<(SegmentKey, Option<EntryId>)>,
}

/// A segment whose outbox could not be had, of a shard that is down perhaps, is left to the sweep. Only if there is nothing else it is an error.
fn sort(
    rows: &[SegmentRow],
    outboxes: Vec<Result<Vec<Entry>, StockError>>,
    lost: &Lost,
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
            Ok(Err(why)) => lost.report(row, why),
            Err(StockError::Unreadable(what)) => lost.report(row, Why::Unreadable(what)),
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

fn behind_the_anchor(row: &SegmentRow, mut outbox: Vec<Entry>) -> Result<Vec<Entry>, Why> {
    let Some(checkpoint) = row.checkpoint else {
        return Ok(outbox);
    };
    let found = outbox.first().map(|first| (first.id, first.fingerprint));
    let is_anchored = found.is_some() && found == row.anchor.map(|anchor| (checkpoint, anchor));
    if !is_anchored && devices::is_on(Device::AnchorCheck) {
        return Err(Why::OtherAnchor { found });
    }
    outbox.retain(|entry| entry.id > checkpoint);
    Ok(outbox)
}

/// Cuts off what would be too much for one transaction. It is found again in the next.
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

/// Trims outboxes that held nothing behind their anchor, and returns those that are not down to it afterwards: until they are, scripts that append
/// send no wake-up, so they must be read once more. An earlier pass may have failed to trim, or its trim may come between our read and now.
async fn untrimmed(
    stock: &Stock,
    drained: Vec<(SegmentKey, Option<EntryId>)>,
    lost: &Lost,
) -> Result<Vec<SegmentKey>, StockError> {
    drained
        .iter()
        .for_each(|(segment, _)| lost.is_well(segment));
    let anchored: Vec<_> = drained
        .into_iter()
        .filter_map(|(segment, checkpoint)| Some((segment, checkpoint?)))
        .collect();
    let mut again = Vec::new();
    for ((segment, _), trimmed) in anchored.iter().zip(stock.trim_outboxes(&anchored).await) {
        let Trimmed { dropped, left } = trimmed?;
        if dropped > 0 || left != 1 {
            again.push(segment.clone());
        }
    }
    Ok(again)
}

/// The entries in which orders took units: those that buyers wait for.
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
        tracing::error!(segment = %recorded.key, orders = recorded.rejected.len(), "the ledger rejected orders that it could not cover");
    }
}

#[cfg(test)]
mod tests {
    use domain::{BuyerId, Change, Entry, EntryId, OrderId, Quantity, TakenOrder};
    use ledger::{SegmentReplay, SegmentRow};

    use super::{ORDERS_MAX, Why, behind_the_anchor, capped};

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
    fn an_outbox_must_begin_with_the_anchor() {
        let entries = vec![taken(1, 1), taken(2, 1)];
        assert_eq!(
            behind_the_anchor(&row(None), entries.clone()),
            Ok(entries.clone())
        );
        assert_eq!(
            behind_the_anchor(&row(Some(1)), entries.clone()),
            Ok(vec![taken(2, 1)])
        );
        let other = Why::OtherAnchor {
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
            Err(Why::OtherAnchor { found: None })
        );
    }

    #[test]
    fn a_transaction_takes_some_of_every_segment_and_not_too_much() {
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
