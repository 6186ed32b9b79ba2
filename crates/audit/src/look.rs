//! One segment: its row, what Redis holds of it, and whether the one follows from the other.

use domain::{Change, Entry};
use ledger::{Ledger, SegmentRow};
use stock::{Inspection, InspectionEntries, Stock, StockError};

use crate::AuditError;

/// Looks at a segment to make before its history counts as another one: the recorder may trim between the two halves of a look.
const LOOKS: usize = 100;

/// A segment's row and what Redis holds of it.
#[derive(Debug, Clone)]
pub struct Look {
    /// The row.
    pub row: SegmentRow,
    /// `None`: it is not there.
    pub inspection: Option<Inspection>,
}

pub(crate) async fn look(
    stock: &Stock,
    ledger: &dyn Ledger,
    mut row: SegmentRow,
) -> Result<Look, AuditError> {
    for _ in 1..LOOKS {
        let look = look_once(stock, row).await?;
        if look.is_anchored() {
            return Ok(look);
        }
        // The ledger first: Redis then holds what came after it.
        row = row_again(ledger, look.row).await?;
    }
    look_once(stock, row).await
}

async fn row_again(ledger: &dyn Ledger, row: SegmentRow) -> Result<SegmentRow, AuditError> {
    let rows = ledger.segments(&row.key.item).await?;
    Ok(rows
        .into_iter()
        .find(|fresh| fresh.key == row.key)
        .unwrap_or(row))
}

async fn look_once(stock: &Stock, row: SegmentRow) -> Result<Look, AuditError> {
    let from = row
        .checkpoint
        .map_or(InspectionEntries::All, InspectionEntries::From);
    let inspection = match stock.inspect(&row.key, from).await {
        Ok(inspection) => Some(inspection),
        Err(StockError::Missing(_)) => None,
        Err(error) => return Err(error.into()),
    };
    Ok(Look { row, inspection })
}

impl Look {
    /// Whether the outbox continues what the row has recorded.
    pub fn is_anchored(&self) -> bool {
        let Some(inspection) = &self.inspection else {
            return false;
        };
        match (self.row.checkpoint, inspection.entries.first()) {
            (None, first) => {
                first.is_some_and(|first| matches!(first.change, Change::Opened { .. }))
            }
            (Some(checkpoint), Some(first)) => {
                first.id == checkpoint && Some(first.fingerprint) == self.row.anchor
            }
            (Some(_), None) => false,
        }
    }

    /// Whether everything that the segment remembers is there, as far as can be seen: a server can lose one key and keep another.
    pub fn is_whole(&self) -> bool {
        self.inspection
            .as_ref()
            .is_some_and(|inspection| inspection.whole)
    }

    /// Whether it is still the segment that the row tells of, with all that it remembers.
    pub fn goes_on(&self) -> bool {
        self.is_anchored() && self.is_whole()
    }

    /// The entries behind the checkpoint.
    pub fn behind(&self) -> &[Entry] {
        let anchor = usize::from(self.row.checkpoint.is_some() && self.is_anchored());
        self.inspection
            .as_ref()
            .map_or(&[], |inspection| &inspection.entries[anchor..])
    }

    /// What should be available, by the row and the entries behind its checkpoint.
    pub fn expected(&self) -> i64 {
        self.behind()
            .iter()
            .fold(signed(self.row.available), |available, entry| {
                match entry.change.effect() {
                    Some(effect) => available + effect,
                    // `opened` says what the row began with; `adjusted` is written only over a row that says the same.
                    None => available,
                }
            })
    }

    /// Units that were taken after the checkpoint.
    pub fn in_flight(&self) -> u64 {
        let effects = self
            .behind()
            .iter()
            .filter(|entry| matches!(entry.change, Change::Taken { .. }))
            .filter_map(|entry| entry.change.effect());
        effects.map(i64::unsigned_abs).sum()
    }

    /// What Redis has beyond what the identity says it should; negative if it has less. A segment that is not there or not whole, or whose history is another
    /// one, drifts even where the counters happen to agree.
    pub fn drift(&self) -> i64 {
        let Some(inspection) = &self.inspection else {
            return -signed(self.row.available).max(1);
        };
        let drift = signed(inspection.available) - self.expected();
        if drift == 0 && !self.goes_on() {
            signed(self.in_flight()).max(1)
        } else {
            drift
        }
    }

    /// What is wrong, if something is.
    pub fn finding(&self) -> Option<String> {
        let Some(inspection) = &self.inspection else {
            return Some("the segment is not in Redis".into());
        };
        if !self.is_anchored() {
            return Some(
                "the outbox does not begin with what was recorded last: history has diverged"
                    .into(),
            );
        }
        if !self.is_whole() {
            return Some("answers, counts or walks are gone from Redis".into());
        }
        (self.drift() != 0).then(|| {
            let (available, expected) = (inspection.available, self.expected());
            format!("Redis has {available} units, the ledger and the entries behind its checkpoint say {expected}")
        })
    }
}

pub(crate) fn signed(units: u64) -> i64 {
    i64::try_from(units).unwrap_or(i64::MAX)
}
