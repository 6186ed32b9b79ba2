//! The log of a segment: every change of its stock, in order.

use std::{fmt, str::FromStr};

use jiff::Timestamp;

use crate::{BuyerId, OrderId, Quantity};

/// The place of an entry in an outbox: the Redis stream id. Ids of one outbox only rise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct EntryId {
    /// Milliseconds since 1970 by the clock of the Redis server.
    pub ms: u64,
    /// Tells entries of one millisecond apart.
    pub seq: u64,
}

impl fmt::Display for EntryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.ms, self.seq)
    }
}

/// The text was not `MILLISECONDS-SEQUENCE`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not an outbox id: {0:?}")]
pub struct ParseEntryIdError(String);

impl FromStr for EntryId {
    type Err = ParseEntryIdError;

    fn from_str(text: &str) -> Result<Self, ParseEntryIdError> {
        text.split_once('-')
            .and_then(|(ms, seq)| Some(Self { ms: ms.parse().ok()?, seq: seq.parse().ok()? }))
            .ok_or_else(|| ParseEntryIdError(text.into()))
    }
}

/// One entry of an outbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its place.
    pub id: EntryId,
    /// A hash of what it says. Together with the id it is the anchor by which the recorder recognises the history it
    /// has recorded: after a failover another entry could stand at the same id.
    pub fingerprint: i64,
    /// What happened.
    pub change: Change,
}

/// What happened to a segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// The segment was created. The first entry of every outbox.
    Opened {
        /// Units that it started with.
        units: u64,
        /// The item's epoch.
        epoch: u64,
    },
    /// A batch of orders took units.
    Taken {
        /// When their holds are over.
        expires_at: Timestamp,
        /// The orders, in the order in which they took.
        orders: Vec<TakenOrder>,
    },
    /// The item was opened, paused or closed. No units moved.
    StateSet {
        /// The item's epoch.
        epoch: u64,
    },
}

/// An order that took units from a segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TakenOrder {
    /// Its name.
    pub id: OrderId,
    /// Who ordered.
    pub buyer: BuyerId,
    /// How many units.
    pub quantity: Quantity,
}

#[cfg(test)]
mod tests {
    use super::EntryId;

    #[test]
    fn an_entry_id_reads_back_and_orders_like_the_stream() {
        let id: EntryId = "1763712345678-12".parse().unwrap();
        assert_eq!(id.to_string(), "1763712345678-12");
        assert!("1763712345678-9".parse::<EntryId>().unwrap() < id, "as numbers, not as text");
        for bad in ["", "1", "a-1", "1-", "-1"] {
            assert!(bad.parse::<EntryId>().is_err(), "{bad:?}");
        }
    }
}
