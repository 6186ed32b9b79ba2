//! A snapshot of one segment: its row, its state in Redis, and whether the state follows from the
//! row.

use domain::Change;
use ledger::{Ledger, SegmentRow};
use stock::{Inspection, InspectionEntries, Stock, StockError};

use crate::{AuditError, follow::Unrecorded};

/// Attempts at a consistent snapshot. After these the outbox counts as diverged; until then, the
/// recorder may have trimmed it between the reads of the row and of Redis.
const ATTEMPTS_MAX: usize = 100;

/// A segment's row and its state in Redis.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// The row.
    pub row: SegmentRow,
    /// The state in Redis. `None`: the segment does not exist there.
    pub inspection: Option<Inspection>,
    /// The entries that the row lacks.
    pub unrecorded: Unrecorded,
    is_anchored: bool,
}

pub(crate) async fn take(
    stock: &Stock,
    ledger: &dyn Ledger,
    mut row: SegmentRow,
) -> Result<Snapshot, AuditError> {
    for _ in 1..ATTEMPTS_MAX {
        let snapshot = take_once(stock, row).await?;
        if snapshot.is_anchored() {
            return Ok(snapshot);
        }
        // The ledger is read first: Redis then has the entries that were added after the row.
        row = row_again(ledger, snapshot.row).await?;
    }
    take_once(stock, row).await
}

pub(crate) async fn row_again(
    ledger: &dyn Ledger,
    row: SegmentRow,
) -> Result<SegmentRow, AuditError> {
    let rows = ledger.segments(&row.key.item).await?;
    Ok(rows
        .into_iter()
        .find(|fresh| fresh.key == row.key)
        .unwrap_or(row))
}

async fn take_once(stock: &Stock, row: SegmentRow) -> Result<Snapshot, AuditError> {
    let from = row
        .checkpoint
        .map_or(InspectionEntries::All, InspectionEntries::From);
    let inspection = match stock.snapshot(&row.key, from).await {
        Ok(inspection) => Some(inspection),
        Err(StockError::Missing(_)) => None,
        Err(error) => return Err(error.into()),
    };
    Ok(Snapshot::new(row, inspection))
}

impl Snapshot {
    /// From a state with all entries from the checkpoint on.
    fn new(row: SegmentRow, inspection: Option<Inspection>) -> Self {
        let entries = inspection.iter().flat_map(|state| &state.entries);
        let is_anchored = is_anchored(&row, inspection.as_ref());
        let anchor = usize::from(row.checkpoint.is_some() && is_anchored);
        Self {
            unrecorded: Unrecorded::of(entries.skip(anchor)),
            is_anchored,
            row,
            inspection,
        }
    }

    /// From a state without its entries, and what was read of them: the outbox is anchored.
    pub(crate) fn followed(
        row: SegmentRow,
        inspection: Inspection,
        unrecorded: Unrecorded,
    ) -> Self {
        Self {
            row,
            inspection: Some(inspection),
            unrecorded,
            is_anchored: true,
        }
    }

    /// Whether the outbox continues what the row has recorded.
    pub fn is_anchored(&self) -> bool {
        self.is_anchored
    }

    /// Whether decisions, counts and spillovers are the keys that were originally written. A server
    /// can lose one key and keep another.
    pub fn is_whole(&self) -> bool {
        self.inspection
            .as_ref()
            .is_some_and(|inspection| inspection.whole)
    }

    /// Whether Redis still has the row's segment with all its keys.
    pub fn is_intact(&self) -> bool {
        self.is_anchored() && self.is_whole()
    }

    /// Units that should be available, by the row and the entries behind its checkpoint.
    pub fn expected(&self) -> i64 {
        signed(self.row.available) + self.unrecorded.effect
    }

    /// Units that were taken after the checkpoint.
    pub fn in_flight(&self) -> u64 {
        self.unrecorded.taken
    }

    /// Units that orders have. Redis was read after the row: units that orders have given back since were
    /// held or confirmed by it, and may have been sold again.
    pub(crate) fn promised(&self) -> u64 {
        let row = &self.row;
        let ended_since = self.unrecorded.released.saturating_sub(row.returning);
        (row.held + row.confirmed).saturating_sub(ended_since) + self.in_flight()
    }

    /// Units in Redis beyond those of the invariant; negative if Redis has fewer. A segment that is
    /// missing, has lost a key, or has a diverged outbox drifts even if the counters agree.
    pub fn drift(&self) -> i64 {
        let Some(inspection) = &self.inspection else {
            return -signed(self.row.available).max(1);
        };
        let drift = signed(inspection.available) - self.expected();
        if drift == 0 && !self.is_intact() {
            signed(self.in_flight()).max(1)
        } else {
            drift
        }
    }

    /// The anomaly in words, if there is one.
    pub fn finding(&self) -> Option<String> {
        let Some(inspection) = &self.inspection else {
            return Some("the segment is not in Redis".into());
        };
        if !self.is_anchored() {
            return Some(
                "the outbox does not begin with the entry recorded last: its history has diverged"
                    .into(),
            );
        }
        if !self.is_whole() {
            return Some("decisions, counts or spillovers are missing in Redis".into());
        }
        (self.drift() != 0).then(|| {
            let (available, expected) = (inspection.available, self.expected());
            format!("Redis has {available} units, the ledger with the entries behind its checkpoint {expected}")
        })
    }
}

fn is_anchored(row: &SegmentRow, inspection: Option<&Inspection>) -> bool {
    let Some(inspection) = inspection else {
        return false;
    };
    match (row.checkpoint, inspection.entries.first()) {
        (None, first) => first.is_some_and(|first| matches!(first.change, Change::Opened { .. })),
        (Some(checkpoint), Some(first)) => {
            first.id == checkpoint && Some(first.fingerprint) == row.anchor
        }
        (Some(_), None) => false,
    }
}

pub(crate) fn signed(units: u64) -> i64 {
    i64::try_from(units).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use domain::{ItemId, SegmentKey};
    use ledger::SegmentRow;

    use super::Snapshot;
    use crate::follow::Unrecorded;

    /// A segment of twenty units, of which the orders of its row have all.
    fn promised(returning: u64, released: u64, taken: u64) -> u64 {
        let snapshot = Snapshot {
            row: SegmentRow {
                key: SegmentKey {
                    item: ItemId::new("vase").unwrap(),
                    segment: 0,
                },
                allocated: 20,
                available: 0,
                held: 15 - returning,
                confirmed: 5,
                returning,
                checkpoint: None,
                anchor: None,
                version: 1,
                fence: 0,
            },
            inspection: None,
            unrecorded: Unrecorded {
                released,
                taken,
                ..Unrecorded::default()
            },
            is_anchored: true,
        };
        snapshot.promised()
    }

    #[test]
    fn a_unit_that_was_given_back_after_the_row_was_read_is_promised_once() {
        assert_eq!(promised(0, 0, 0), 20);
        assert_eq!(promised(4, 4, 3), 19, "the row knows that they have ended");
        assert_eq!(promised(0, 4, 3), 19);
        assert_eq!(promised(2, 4, 4), 20);
        assert_eq!(promised(4, 0, 3), 19, "on their way");
        assert_eq!(promised(0, 0, 1), 21, "oversold");
    }
}
