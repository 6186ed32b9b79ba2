//! What can go wrong with the stock, and whether a retry is safe.

use std::time::Duration;

use domain::SegmentKey;
use redis::RedisError;

use crate::refusal;

/// Why a request to the stock has no result.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum StockError {
    /// The time limit passed before every reply was in. Units may or may not have been taken; a
    /// retry with the same order id resolves it.
    #[error("no outcome within {0:?}: a retry with the same order id resolves it")]
    OutcomeUnknown(Duration),
    /// Redis did not respond, or refused the command. A retry is safe.
    /// [`StockError::proves_unchanged`] tells the refusals apart.
    #[error("Redis request failed: {0}")]
    Redis(#[from] RedisError),
    /// The segment is not on this Redis: it was never opened, or its history is gone.
    #[error("segment {0}, or a part of it, does not exist in Redis")]
    Missing(SegmentKey),
    /// A repairer has halted the segment. Nothing was read; a retry succeeds when the repair ends.
    #[error("segment {0} is halted for repair")]
    Repairing(SegmentKey),
    /// Another caller with a higher fencing token has changed the segment. Nothing was changed, and
    /// the caller does not hold the item lock any more.
    #[error("segment {segment} has seen the higher fencing token {fence}")]
    Fenced {
        /// The segment.
        segment: SegmentKey,
        /// The token that it has seen.
        fence: u64,
    },
    /// The segment changed between the snapshot and the change that was decided on it. Nothing was
    /// changed; take a new snapshot.
    #[error("segment {0} changed since its snapshot was taken")]
    Moved(SegmentKey),
    /// The batch reached Redis after its deadline and was refused. Nothing was read.
    #[error("batch arrived after its deadline: the Redis clock is at {now_ms} ms")]
    Late {
        /// The server's clock, in milliseconds since 1970.
        now_ms: i64,
    },
    /// The script has run, but too few replicas confirmed it: a failover may lose it. Units may or
    /// may not have been taken, and nothing is undone. A retry is safe, and waits for the replicas
    /// again.
    #[error("{confirmed} of {wanted} replicas confirmed within {within:?}")]
    NotReplicated {
        /// Replicas that must confirm.
        wanted: u16,
        /// Replicas that did.
        confirmed: i64,
        /// Time for which they were waited for.
        within: Duration,
    },
    /// The server cannot be trusted with stock.
    #[error("{0}")]
    Unsuitable(String),
    /// The URL has none of the supported forms.
    #[error(
        "REDIS_URL: expected redis://HOST:PORT, redis+cluster://HOST:PORT,HOST:PORT,... or redis+sentinel://HOST:PORT,HOST:PORT,.../NAME (or rediss), found {0:?}"
    )]
    Url(String),
    /// A connection pool had no free connection in time. A retry is safe.
    #[error("no connection to Redis was free: {0}")]
    Pool(String),
    /// Redis holds or replies something that this release does not understand.
    #[error("unexpected data in Redis: {0}")]
    Unreadable(String),
}

impl StockError {
    /// Whether the same call may be repeated unchanged.
    pub fn is_retryable(&self) -> bool {
        self.is_transient() || matches!(self, Self::Missing(_) | Self::Moved(_))
    }

    /// Whether the request has certainly changed nothing: it was refused before it ran, or never
    /// sent.
    ///
    /// It speaks of this one request. An earlier one for the same order may have taken units.
    pub fn proves_unchanged(&self) -> bool {
        match self {
            Self::Redis(error) => refusal::proves_unchanged(error),
            Self::Repairing(_)
            | Self::Fenced { .. }
            | Self::Moved(_)
            | Self::Late { .. }
            | Self::Unsuitable(_)
            | Self::Url(_)
            | Self::Pool(_) => true,
            // A segment that is gone may have held the order's units.
            Self::Missing(_)
            | Self::OutcomeUnknown(_)
            | Self::NotReplicated { .. }
            | Self::Unreadable(_) => false,
        }
    }

    /// Whether a server has answered, and refused to run the request.
    pub fn is_refusal(&self) -> bool {
        matches!(self, Self::Redis(error) if refusal::is_by_server(error))
    }

    /// Whether there was no connection to send the request on, and no server that refused one: the
    /// server is gone, or the pool has no free connection to it.
    pub(crate) fn found_no_connection(&self) -> bool {
        match self {
            Self::Redis(error) => refusal::proves_unchanged(error) && !refusal::is_by_server(error),
            Self::Pool(_) => true,
            _ => false,
        }
    }

    /// Whether a retry in a few milliseconds may help.
    pub(crate) fn is_transient(&self) -> bool {
        matches!(
            self,
            Self::OutcomeUnknown(_)
                | Self::Redis(_)
                | Self::Late { .. }
                | Self::Repairing(_)
                | Self::NotReplicated { .. }
                | Self::Pool(_)
        )
    }
}
