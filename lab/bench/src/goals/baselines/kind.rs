//! The variants that P9 compares, and their settings.

use std::{sync::Arc, time::Duration};

use anyhow::Result;

use super::{
    batches::Batches, patience::Pause, redlock, row, script, set_nx, stockade::Stockade,
    test_env::TestEnv, variant::Variant,
};
use crate::goals::servers;

/// Where a variant stores its orders.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    InRedis,
    InPostgres,
}

/// All variants. Each has one tuning number, whose meaning depends on the variant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Accepted,
    Recorded,
    SetNx,
    SegmentLocks,
    Redlock,
    Rslock,
    ScriptPool,
    ScriptShared,
    ForUpdate,
    Advisory,
    CompareAndSet,
    Conditional,
    Statement,
    Batches,
}

const PAUSES_MS: &[u64] = &[1, 0, 2, 5, 10, 20, 50];
const CONNECTIONS: &[u64] = &[16, 1, 4, 64];

impl Kind {
    /// All variants except Stockade, the goal's own baseline first.
    pub const BASELINES: [Self; 12] = [
        Self::SetNx,
        Self::SegmentLocks,
        Self::Redlock,
        Self::Rslock,
        Self::ScriptPool,
        Self::ScriptShared,
        Self::ForUpdate,
        Self::Advisory,
        Self::CompareAndSet,
        Self::Conditional,
        Self::Statement,
        Self::Batches,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Accepted => "Stockade, accepted",
            Self::Recorded => "Stockade, recorded",
            Self::SetNx => "SET NX PX lock per order",
            Self::SegmentLocks => "16 segment locks",
            Self::Redlock => "Redlock per order (Stockade's, 5 nodes)",
            Self::Rslock => "Redlock per order (rslock, 5 nodes)",
            Self::ScriptPool => "one EVALSHA per order, pool",
            Self::ScriptShared => "one EVALSHA per order, one multiplexed connection",
            Self::ForUpdate => "SELECT FOR UPDATE per order",
            Self::Advisory => "advisory lock per order",
            Self::CompareAndSet => "version compare-and-set with retry",
            Self::Conditional => "conditional UPDATE + INSERT in a transaction",
            Self::Statement => "conditional UPDATE + INSERT in one statement",
            Self::Batches => "natural batches straight into PostgreSQL",
        }
    }

    pub const fn kept(self) -> Kept {
        match self {
            Self::Accepted
            | Self::SetNx
            | Self::SegmentLocks
            | Self::Redlock
            | Self::Rslock
            | Self::ScriptPool
            | Self::ScriptShared => Kept::InRedis,
            Self::Recorded
            | Self::ForUpdate
            | Self::Advisory
            | Self::CompareAndSet
            | Self::Conditional
            | Self::Statement
            | Self::Batches => Kept::InPostgres,
        }
    }

    /// Tuning numbers to try; the first is the default.
    pub const fn tunings(self) -> &'static [u64] {
        match self {
            Self::Accepted => &[1, 2],
            Self::Recorded => &[1, 2, 4, 8],
            Self::SetNx | Self::SegmentLocks => PAUSES_MS,
            Self::Redlock => &[100, 10, 30],
            Self::Rslock => &[10, 2, 5, 20, 50],
            Self::ScriptPool => &[64, 16, 256],
            Self::ScriptShared => &[1],
            Self::ForUpdate
            | Self::Advisory
            | Self::CompareAndSet
            | Self::Conditional
            | Self::Statement => CONNECTIONS,
            Self::Batches => &[1, 2],
        }
    }

    /// Factor of the run's duration: slow variants sell only a few dozen units per second.
    pub const fn times(self) -> u32 {
        match self {
            Self::Redlock => 4,
            _ => 1,
        }
    }

    /// Description of the setting.
    pub fn setting(self, tuning: u64) -> String {
        let (redis, postgres) = (servers::REDIS, servers::POSTGRES);
        match self {
            Self::Accepted => format!("{tuning} segments, limit 1, {redis}"),
            Self::Recorded => {
                format!("{tuning} segments, limit 1, recorder with 2 workers, {redis}, {postgres}")
            }
            Self::SetNx | Self::SegmentLocks if tuning == 0 => {
                format!("retries immediately, {redis}")
            }
            Self::SetNx | Self::SegmentLocks => format!("retries after {tuning} ms, {redis}"),
            Self::Redlock => {
                format!("woken by a release, or retries after {tuning} ms, {redis}")
            }
            Self::Rslock => format!("retries after at most {tuning} ms, {redis}"),
            Self::ScriptPool => format!("{tuning} connections, {redis}"),
            Self::ScriptShared => redis.into(),
            Self::Batches => format!("{tuning} batches at a time, {postgres}"),
            _ => format!("{tuning} connections, {postgres}"),
        }
    }
}

/// Opens a variant with this stock, on emptied servers.
pub async fn open(env: &TestEnv, kind: Kind, tuning: u64, stock: u64) -> Result<Arc<dyn Variant>> {
    let pause = Pause {
        most: Duration::from_millis(tuning),
    };
    Ok(match kind {
        Kind::Accepted => Arc::new(Stockade::accepted(u16::try_from(tuning)?, stock).await?),
        Kind::Recorded => Arc::new(Stockade::recorded(env, u16::try_from(tuning)?, stock).await?),
        Kind::SetNx => {
            Arc::new(set_nx::Locked::open(&env.emptied().await?, 1, pause, stock).await?)
        }
        Kind::SegmentLocks => {
            Arc::new(set_nx::Locked::open(&env.emptied().await?, 16, pause, stock).await?)
        }
        Kind::Redlock => Arc::new(redlock::Ours::open(env, pause.most, stock).await?),
        Kind::Rslock => Arc::new(redlock::Theirs::open(env, pause, stock).await?),
        Kind::ScriptPool => Arc::new(
            script::Pooled::open(&env.emptied().await?, usize::try_from(tuning)?, stock).await?,
        ),
        Kind::ScriptShared => Arc::new(script::Shared::open(&env.emptied().await?, stock).await?),
        Kind::ForUpdate => {
            Arc::new(row::Rows::open(env, row::Step::ForUpdate, tuning, stock).await?)
        }
        Kind::Advisory => Arc::new(row::Rows::open(env, row::Step::Advisory, tuning, stock).await?),
        Kind::CompareAndSet => {
            Arc::new(row::Rows::open(env, row::Step::CompareAndSet, tuning, stock).await?)
        }
        Kind::Conditional => {
            Arc::new(row::Rows::open(env, row::Step::Conditional, tuning, stock).await?)
        }
        Kind::Statement => {
            Arc::new(row::Rows::open(env, row::Step::Statement, tuning, stock).await?)
        }
        Kind::Batches => Arc::new(Batches::open(env, tuning, stock).await?),
    })
}
