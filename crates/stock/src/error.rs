//! What can go wrong with the stock, and whether asking again is safe.

use std::time::Duration;

use domain::SegmentKey;
use redis::RedisError;

/// Why the stock did not answer.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum StockError {
    /// The time was over before every answer was in. Units may or may not have been taken; the same order id resolves it.
    #[error("the outcome is unknown after {0:?}")]
    OutcomeUnknown(Duration),
    /// Redis did not answer or refused. Asking again is safe.
    #[error("Redis failed: {0}")]
    Redis(#[from] RedisError),
    /// The segment is not on this Redis: it was never opened, or its history is gone.
    #[error("segment {0}, or a part of it, does not exist in Redis")]
    Missing(SegmentKey),
    /// Somebody makes the segment agree with the ledger again. Nothing was looked at; in a moment it answers.
    #[error("segment {0} is being mended")]
    Mending(SegmentKey),
    /// Somebody with a higher fencing token has changed the segment. Nothing was changed; whoever asked is not the authority any more.
    #[error("segment {segment} has seen the higher fencing token {fence}")]
    Fenced {
        /// Which segment.
        segment: SegmentKey,
        /// The token that it has seen.
        fence: u64,
    },
    /// Something came in between a look at the segment and the change that was decided on it. Nothing was changed; look again.
    #[error("segment {0} has changed since it was looked at")]
    Moved(SegmentKey),
    /// The batch reached Redis after its deadline and was refused. Nothing was looked at.
    #[error("the ask arrived after its deadline; the clock of Redis says {now_ms} ms")]
    Late {
        /// The server's clock, in milliseconds since 1970.
        now_ms: i64,
    },
    /// The script has run, but too few replicas say that they have it: a failover may lose it. Units may or may not have been taken, and
    /// nothing is undone; asking again is safe, and waits for the replicas again.
    #[error("{confirmed} of {wanted} replicas confirmed within {within:?}")]
    NotReplicated {
        /// How many must.
        wanted: u16,
        /// How many did.
        confirmed: i64,
        /// How long they were waited for.
        within: Duration,
    },
    /// The server cannot be trusted with stock.
    #[error("{0}")]
    Unsuitable(String),
    /// The URL is not one of ours.
    #[error(
        "REDIS_URL: expected redis://HOST:PORT, redis+cluster://HOST:PORT,HOST:PORT,... or redis+sentinel://HOST:PORT,HOST:PORT,.../NAME (or rediss), found {0:?}"
    )]
    Url(String),
    /// A pool of connections had none to give in time. Asking again is safe.
    #[error("no connection to Redis was free: {0}")]
    Pool(String),
    /// Redis holds or answers what this release does not understand.
    #[error("unexpected data in Redis: {0}")]
    Unreadable(String),
}

impl StockError {
    /// Whether the same call may be made again as it is.
    pub fn is_retryable(&self) -> bool {
        self.is_passing() || matches!(self, Self::Missing(_) | Self::Moved(_))
    }

    /// Whether asking again in a few milliseconds may help.
    pub(crate) fn is_passing(&self) -> bool {
        matches!(
            self,
            Self::OutcomeUnknown(_)
                | Self::Redis(_)
                | Self::Late { .. }
                | Self::Mending(_)
                | Self::NotReplicated { .. }
                | Self::Pool(_)
        )
    }
}
