//! Writes that replicas have confirmed.
//!
//! `WAIT` covers the writes of its *own* connection, so script and `WAIT` travel in one pipeline.
//! Between them stands one tiny write: a repeated reservation finds its decision and writes
//! nothing, and `WAIT` alone would cover an older write, or none. The replicas confirm the tiny
//! write with everything that the server did before it, the decision that the script found
//! included. It has a key of its own. Written to a key of the segment, it would bring back the
//! placeholder of a key that was lost, and the loss would go unnoticed.
//!
//! `WAIT` blocks its connection, so none of this uses the connection that the orders share.
//!
//! Too few replicas is not a refusal. The units are taken, the replicas may have them a moment
//! later, and nothing is undone. The outcome is unknown, and the order is retried until its time
//! limit. `WAIT` does not report which replicas confirmed: a failover to another one loses the
//! order. Only a `replicas` equal to the number of replicas is safe.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use redis::{
    Cmd, Pipeline, RedisError, Value,
    aio::ConnectionLike,
    cluster::ClusterClient,
    cluster_routing::{Route, SingleNodeRoutingInfo, Slot, SlotAddr},
};
use tokio::sync::OnceCell;

use super::{
    Carrier, Cluster, Following,
    pool::{Pool, give_back},
};
use crate::{
    StockError, StockSettings,
    keys::Keys,
    refusal::{Worth, worth_of_reply},
};

/// Batches in flight to one server: one for each busy batcher.
pub(super) const CONNECTIONS_MAX: usize = 16;

/// The same for a cluster, where each connects to every master.
const CLUSTER_CONNECTIONS: usize = 4;

/// Replies to one pipeline: the script, the tiny write, `WAIT`.
const REPLIES: usize = 3;

/// Number of replicas that must confirm, and the time limit for it.
#[derive(Debug, Clone, Copy)]
struct Wanted {
    replicas: u16,
    within: Duration,
}

/// Runs scripts, and replies when replicas have confirmed them.
#[derive(Clone)]
pub(crate) struct Replicated {
    wanted: Wanted,
    connections: Connections,
}

#[derive(Clone)]
pub(super) enum Connections {
    Single(Pool),
    Cluster(Arc<ClusterConnections>),
    Sentinel(Following),
}

impl Replicated {
    pub(super) fn new(settings: &StockSettings, connections: Connections) -> Self {
        Self {
            wanted: Wanted {
                replicas: settings.replicas,
                within: settings.replicas_timeout,
            },
            connections,
        }
    }

    fn pipeline(&self, script: Cmd, key: &str) -> Pipeline {
        let mut pipeline = redis::pipe();
        pipeline.add_command(script);
        pipeline.cmd("SET").arg(key).arg(1);
        // 0 would wait without a limit.
        pipeline.cmd("WAIT").arg(self.wanted.replicas).arg(
            u64::try_from(self.wanted.within.as_millis())
                .unwrap_or(u64::MAX)
                .max(1),
        );
        pipeline
    }

    fn check(&self, confirmed: i64) -> Result<(), StockError> {
        if confirmed >= i64::from(self.wanted.replicas) {
            return Ok(());
        }
        metrics::counter!("stockade_unreplicated_batches_total").increment(1);
        Err(StockError::NotReplicated {
            wanted: self.wanted.replicas,
            confirmed,
            within: self.wanted.within,
        })
    }
}

impl Carrier for Replicated {
    /// The script's reply, if enough replicas confirmed it. The tiny write is in the slot of the
    /// script's keys.
    async fn carry(&self, script: Cmd, keys: &Keys) -> Result<Value, StockError> {
        let pipeline = self.pipeline(script, &keys.replicated);
        let replies = self.connections.send(&pipeline, &keys.replicated).await?;
        let [reply, written, confirmed] =
            <[Value; REPLIES]>::try_from(replies).map_err(|replies| {
                StockError::Unreadable(format!(
                    "expected {REPLIES} replies to a pipeline, found {}",
                    replies.len()
                ))
            })?;
        // If anything else failed too, the script's error explains it.
        let reply = reply.extract_error()?;
        self.check(confirmations(written, confirmed))?;
        Ok(reply)
    }
}

/// How many replicas confirmed a script that ran. A refusal of what follows it is no refusal of the
/// script, although it looks like one: no replica has confirmed, and the units are taken.
fn confirmations(written: Value, confirmed: Value) -> i64 {
    let counted = written.extract_error().and_then(|_| {
        let confirmed = confirmed.extract_error()?;
        Ok(redis::from_redis_value::<i64>(confirmed)?)
    });
    counted.unwrap_or_else(|error: RedisError| {
        tracing::debug!(%error, "a script ran, and its confirmation was refused");
        0
    })
}

impl Connections {
    /// One reply for each command. A refusal is a reply.
    async fn send(&self, pipeline: &Pipeline, key: &str) -> Result<Vec<Value>, StockError> {
        match self {
            Self::Single(pool) => send(pool, pipeline).await,
            Self::Cluster(connections) => connections.send(pipeline, key).await,
            Self::Sentinel(following) => following.send_replicated(pipeline).await,
        }
    }
}

pub(super) async fn send(pool: &Pool, pipeline: &Pipeline) -> Result<Vec<Value>, StockError> {
    let mut connection = pool.get().await?;
    let replies = connection.req_packed_commands(pipeline, 0, REPLIES).await;
    let is_good = |reply| worth_of_reply(reply) == Worth::Good;
    let works = replies.as_ref().is_ok_and(|all| all.iter().all(is_good));
    give_back(connection, works);
    Ok(replies?)
}

/// Time limit for the reply to a pipeline with `WAIT`.
pub(super) fn response_timeout(settings: &StockSettings) -> Duration {
    settings.redis.response_timeout + settings.replicas_timeout
}

/// Connections to every master. They are opened for the first order that needs them, because most
/// clusters sell nothing that is replicated.
pub(super) struct ClusterConnections {
    client: ClusterClient,
    open: OnceCell<Vec<Cluster>>,
    turn: AtomicUsize,
}

impl ClusterConnections {
    pub(super) fn new(client: ClusterClient) -> Self {
        Self {
            client,
            open: OnceCell::new(),
            turn: AtomicUsize::new(0),
        }
    }

    /// A refusal that the cluster's client reports for the whole pipeline may be that of one
    /// command, and proves nothing of the script. [`Cluster`] sees to that.
    async fn send(&self, pipeline: &Pipeline, key: &str) -> Result<Vec<Value>, StockError> {
        let all = self.open.get_or_try_init(|| self.open()).await?;
        let cluster = &all[self.turn.fetch_add(1, Ordering::Relaxed) % all.len()];
        // The client cannot route a pipeline with WAIT by itself: WAIT has no key.
        let slot = Route::with_slot(Slot::for_key(key), SlotAddr::Master);
        Ok(cluster
            .commands_at(pipeline, REPLIES, SingleNodeRoutingInfo::SpecificNode(slot))
            .await?)
    }

    async fn open(&self) -> Result<Vec<Cluster>, StockError> {
        let mut connections = Vec::new();
        for _ in 0..CLUSTER_CONNECTIONS {
            connections.push(Cluster::open(self.client.clone()).await?);
        }
        Ok(connections)
    }
}
