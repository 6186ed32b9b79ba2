//! The log of a segment: every change of its stock, in order.

use std::{fmt, str::FromStr};

use jiff::Timestamp;

use crate::{BuyerId, OrderId, Quantity, TransferId};

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
            .and_then(|(ms, seq)| {
                Some(Self {
                    ms: ms.parse().ok()?,
                    seq: seq.parse().ok()?,
                })
            })
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
    /// The item was opened, paused or closed, or its limit or window changed. No units moved.
    StateSet {
        /// The item's epoch.
        epoch: u64,
    },
    /// A batch of orders gave their units back.
    Released {
        /// The orders, in the order in which they gave back.
        orders: Vec<TakenOrder>,
    },
    /// Units left for another segment, or for good.
    TransferredOut(Transferred),
    /// Units came from another segment, or are new.
    TransferredIn(Transferred),
    /// Somebody mends the segment. It sells nothing until its counter has been set.
    Halted {
        /// The fencing token of whoever does.
        token: u64,
    },
    /// The segment was given the counter that the ledger has.
    Adjusted {
        /// That counter.
        units: u64,
        /// The item's epoch.
        epoch: u64,
        /// The fencing token of whoever did it.
        token: u64,
    },
}

/// Units that left a segment or came to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transferred {
    /// Which transfer.
    pub id: TransferId,
    /// How many: perhaps fewer than were asked for, perhaps none.
    pub units: u64,
    /// The fencing token of whoever moved them.
    pub token: u64,
}

impl Change {
    /// By how much it changed what is available, and `None` where it set it. What was taken counts as less.
    pub fn effect(&self) -> Option<i64> {
        let units = |orders: &[TakenOrder]| {
            orders
                .iter()
                .map(|order| i64::from(order.quantity.get()))
                .sum::<i64>()
        };
        let signed = |units: u64| i64::try_from(units).unwrap_or(i64::MAX);
        match self {
            Self::Taken { orders, .. } => Some(-units(orders)),
            Self::Released { orders } => Some(units(orders)),
            Self::TransferredOut(transferred) => Some(-signed(transferred.units)),
            Self::TransferredIn(transferred) => Some(signed(transferred.units)),
            Self::StateSet { .. } | Self::Halted { .. } => Some(0),
            Self::Opened { .. } | Self::Adjusted { .. } => None,
        }
    }
}

/// An order that took units from a segment, or gave them back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TakenOrder {
    /// The id under which the segment knows it: the order's own, or that of a retake.
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
        assert!(
            "1763712345678-9".parse::<EntryId>().unwrap() < id,
            "as numbers, not as text"
        );
        for bad in ["", "1", "a-1", "1-", "-1"] {
            assert!(bad.parse::<EntryId>().is_err(), "{bad:?}");
        }
    }
}
