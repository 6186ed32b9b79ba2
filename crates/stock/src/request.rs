//! An order on its way to the segments: what the caller asks for, what each segment gets, and how
//! a segment replies.

use std::{sync::Arc, time::Duration};

use domain::{BuyerId, OrderId, Quantity};
use jiff::Timestamp;
use tokio::sync::oneshot;

use crate::{admission::Permit, decision::Decision, outbox, replies::ReplySender};

/// An order that wants units.
#[derive(Debug, Clone)]
pub struct Reservation {
    /// Id of the order.
    pub order: OrderId,
    /// Buyer who places it.
    pub buyer: BuyerId,
    /// Number of units that the order asks for.
    pub quantity: Quantity,
    /// When the caller gets the outcome.
    pub acknowledge: Acknowledge,
    /// Time limit of all attempts. After it the outcome is unknown.
    pub within: Duration,
}

/// When an order that took its units is acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Acknowledge {
    /// When the ledger has recorded it.
    Recorded,
    /// When the script has run.
    Accepted,
}

/// The outcome of an order, in order of precedence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// This order id was decided before for another quantity. Nothing was changed.
    KeyReused {
        /// The quantity of the first request.
        quantity: Quantity,
    },
    /// The item does not sell now.
    NotOpen {
        /// `open` outside its window, `paused` or `closed`.
        state: String,
        /// Start of the window.
        opens_at: Option<Timestamp>,
        /// End of the window.
        closes_at: Option<Timestamp>,
    },
    /// The order would raise the buyer's units above the limit.
    BuyerLimitReached,
    /// The order has its units.
    Held {
        /// End of the hold.
        expires_at: Timestamp,
        /// The price of a unit that the segment gave it for. `None`: the item's first one, or it
        /// was decided before: then the outbox or the ledger has the price.
        price: Option<u64>,
        /// It was decided before, possibly by an attempt of this request whose reply was lost. The
        /// ledger may know more of it.
        replayed: bool,
        /// The ledger has recorded it.
        recorded: bool,
    },
    /// The order had its units and released them; the ledger knows why. They are not taken again
    /// under this id.
    Released,
    /// Every segment declined.
    SoldOut,
    /// The sold-out cache refused the order without a request to Redis: the item is empty, and this
    /// buyer holds nothing.
    Shed,
    /// A segment gave units, but the ledger could not cover them. Nothing was taken.
    Rejected,
    /// It would be refused like this, without a record. But a failover may have lost what its home
    /// had declined: another segment, or the ledger, may have the order.
    MaybeLost {
        /// The refusal, if neither has it.
        refused: Box<Outcome>,
    },
}

impl Outcome {
    /// Whether no unit is left for this order, by a segment or by the cache.
    pub fn is_sold_out(&self) -> bool {
        match self {
            Self::MaybeLost { refused } => refused.is_sold_out(),
            outcome => matches!(outcome, Self::SoldOut | Self::Shed),
        }
    }

    pub(crate) fn maybe_lost(self) -> Self {
        let refused = Box::new(self);
        Self::MaybeLost { refused }
    }

    fn held(expires_ms: i64, price: Option<u64>, replayed: bool, recorded: bool) -> Self {
        Self::Held {
            expires_at: time(expires_ms).unwrap_or(Timestamp::MAX),
            price,
            replayed,
            recorded,
        }
    }

    fn decided(decision: Decision, requested: Quantity) -> Self {
        match decision {
            decision if decision.quantity() != requested => Self::KeyReused {
                quantity: decision.quantity(),
            },
            Decision::Taken { expires_ms, .. } | Decision::Elsewhere { expires_ms, .. } => {
                Self::held(expires_ms, None, true, false)
            }
            // Home had this decision before the segment did, so home needs no notification.
            Decision::Released { .. } => Self::Released,
            // An order that is declined or given up has no outcome: `reserve.rs` goes on.
            Decision::SoldOut { .. } | Decision::Declined { .. } | Decision::GivenUp { .. } => {
                Self::SoldOut
            }
        }
    }
}

/// An order in the forms in which the scripts take it.
#[derive(Debug)]
pub(crate) struct PackedOrder {
    pub id: OrderId,
    pub buyer: BuyerId,
    pub quantity: Quantity,
    pub packed: Box<[u8]>,
}

impl PackedOrder {
    pub(crate) fn new(id: OrderId, buyer: BuyerId, quantity: Quantity) -> Self {
        let packed = outbox::pack(&id, &buyer, quantity);
        Self {
            id,
            buyer,
            quantity,
            packed,
        }
    }
}

/// A request to one segment.
pub(crate) struct ReserveRequest {
    pub order: Arc<PackedOrder>,
    pub acknowledge: Acknowledge,
    /// Redis milliseconds after which no segment may take for it. Home applies the latest of a
    /// batch to all of it, later segments the earliest.
    pub deadline_ms: i64,
    /// 0 is the first round.
    pub round: u32,
    /// Whether the segment is the buyer's home.
    pub is_home: bool,
    /// Returned with [`Reply::Declined`], dropped with any other reply.
    pub permit: Option<Permit>,
    pub sender: ReplySender,
}

/// The reply of a segment to one request.
#[derive(Debug)]
pub(crate) enum Reply {
    Taken {
        expires_ms: i64,
        price: Option<u64>,
        recorded: bool,
    },
    /// The ledger could not cover the units.
    Rejected,
    /// The order had been decided before.
    Decided(Decision),
    Declined {
        permit: Option<Permit>,
        /// The deadline that the segment applied.
        deadline_ms: i64,
        /// The latest round that it declined.
        round: u32,
    },
    /// Home does not know the order, which is in a later round.
    Unknown,
    /// Declined, and the item has no other segment.
    SoldOut,
    LimitReached,
    NotOpen(Gate),
}

impl Reply {
    /// End of the hold, if the segment has given its units to this order.
    pub(crate) fn held_until_ms(&self, requested: Quantity) -> Option<i64> {
        match *self {
            Self::Taken { expires_ms, .. } => Some(expires_ms),
            Self::Decided(
                decision @ (Decision::Taken { expires_ms, .. }
                | Decision::Elsewhere { expires_ms, .. }),
            ) if decision.quantity() == requested => Some(expires_ms),
            _ => None,
        }
    }

    pub(crate) fn into_outcome(self, requested: Quantity) -> Outcome {
        match self {
            Self::Taken {
                expires_ms,
                price,
                recorded,
            } => Outcome::held(expires_ms, price, false, recorded),
            Self::Rejected => Outcome::Rejected,
            Self::Decided(decision) => Outcome::decided(decision, requested),
            Self::Declined { .. } | Self::Unknown | Self::SoldOut => Outcome::SoldOut,
            Self::LimitReached => Outcome::BuyerLimitReached,
            Self::NotOpen(gate) => Outcome::NotOpen {
                state: gate.state,
                opens_at: time(gate.opens_ms),
                closes_at: time(gate.closes_ms),
            },
        }
    }
}

/// Whether and when an item sells, by the state of a segment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Gate {
    pub state: String,
    pub opens_ms: i64,
    pub closes_ms: i64,
}

/// 0 means that there is no such time.
fn time(ms: i64) -> Option<Timestamp> {
    (ms != 0)
        .then(|| Timestamp::from_millisecond(ms).ok())
        .flatten()
}

/// A request to make a spillover final at home.
pub(crate) struct FinishRequest {
    pub order: Arc<PackedOrder>,
    pub deadline_ms: i64,
    pub end: SpilloverEnd,
    /// Gets what home says afterwards. Dropped if home could not be asked.
    pub done: oneshot::Sender<Option<Decision>>,
}

/// How a spillover ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SpilloverEnd {
    /// Every segment declined this round, and the item had too few free units.
    SoldOut {
        round: u32,
    },
    /// Every segment declined this round, and nothing waits for the order any more.
    GivenUp {
        round: u32,
    },
    Elsewhere {
        expires_ms: i64,
        segment: u16,
    },
}
