//! The outbox of a segment: the log of every change of its stock, in order.

use std::{fmt, str::FromStr};

use jiff::Timestamp;

use crate::{BuyerId, OrderId, Quantity, TransferId};

/// The position of an entry in an outbox: its Redis stream id. Ids of one outbox only rise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct EntryId {
    /// Milliseconds since 1970, by the clock of the Redis server.
    pub ms: u64,
    /// Distinguishes entries of the same millisecond.
    pub seq: u64,
}

impl fmt::Display for EntryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.ms, self.seq)
    }
}

/// The text is not of the form `MILLISECONDS-SEQUENCE`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("outbox id: expected MILLISECONDS-SEQUENCE, got {0:?}")]
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
    /// Position of the entry.
    pub id: EntryId,
    /// A hash of the entry's content. Together with the id it is the anchor by which the recorder
    /// recognises recorded history: after a failover, another entry could have the same id.
    pub fingerprint: i64,
    /// The change that the entry logs.
    pub change: Change,
}

/// A change of a segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// The segment was created. The first entry of every outbox.
    Opened {
        /// Units that the segment started with.
        units: u64,
        /// The item's epoch.
        epoch: u64,
    },
    /// A batch of orders took units.
    Taken {
        /// Deadline of their holds.
        expires_at: Timestamp,
        /// The price of a unit that their buyers were told. `None`: the item's first one.
        price: Option<u64>,
        /// The orders, in the order in which they took units.
        orders: Vec<TakenOrder>,
    },
    /// The item was opened, paused or closed, or its limit or window changed. No units moved.
    StateSet {
        /// The item's epoch.
        epoch: u64,
    },
    /// A batch of orders released units.
    Released {
        /// The orders, in the order in which they released units.
        orders: Vec<TakenOrder>,
    },
    /// Units left for another segment, or left the item's stock.
    TransferredOut(Transferred),
    /// Units came from another segment, or are new.
    TransferredIn(Transferred),
    /// A repair has started. The segment sells nothing until its counter has been set.
    Halted {
        /// The fencing token of the repair.
        token: u64,
    },
    /// The counter was set to the ledger's.
    Adjusted {
        /// The value that the counter was set to.
        units: u64,
        /// The item's epoch.
        epoch: u64,
        /// The fencing token of the repair.
        token: u64,
    },
}

/// Units that left a segment or arrived at it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transferred {
    /// Id of the transfer.
    pub id: TransferId,
    /// Number of units; possibly fewer than requested, or none.
    pub units: u64,
    /// The fencing token under which they moved.
    pub token: u64,
}

impl Change {
    /// Change of the available units; negative if units were taken. `None` if the entry sets them.
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

/// An order that took units from a segment, or released them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TakenOrder {
    /// The id under which the segment knows it: the order's own, or that of a reacquisition.
    pub id: OrderId,
    /// The buyer.
    pub buyer: BuyerId,
    /// Number of units.
    pub quantity: Quantity,
}

#[cfg(test)]
mod tests {
    use super::EntryId;

    #[test]
    fn an_entry_id_parses_from_its_text_and_sorts_like_the_stream() {
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
