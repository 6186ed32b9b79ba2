//! Writes that replicas have confirmed.
//!
//! `WAIT` speaks of what its *own* connection wrote, so script and `WAIT` travel in one pipeline. Between them stands one tiny write:
//! a repeated ask finds its answer and writes nothing, and then `WAIT` would speak of an older write, or of none. What the tiny write is
//! confirmed with is everything that the server did before it, the answer that was found included.
//!
//! `WAIT` holds its connection up for as long as it takes, so none of this is on the connection that the orders share.
//!
//! Too few replicas is no refusal: the units are taken, the replicas may have them a moment later, and nothing is undone. The outcome is
//! unknown, and the order is asked for again until its time is over. Which replicas confirmed is not said either: a failover to another
//! one loses the order. Only all of them are a sure number.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use redis::{
    Cmd, Pipeline, Value,
    aio::ConnectionLike,
    cluster::ClusterClient,
    cluster_routing::{Route, SingleNodeRoutingInfo, Slot, SlotAddr},
};
use tokio::sync::OnceCell;

use super::{Cluster, Following};
use crate::{StockError, stock::StockSettings};

/// Batches on their way to one server at once: as many lanes as are busy there.
pub(super) const CONNECTIONS: usize = 16;

/// The same for a cluster, where each connects to every master.
const CLUSTER_CONNECTIONS: usize = 4;

/// The script, the tiny write, `WAIT`.
const REPLIES: usize = 3;

/// How many replicas must confirm, and for how long they are waited for.
#[derive(Debug, Clone, Copy)]
struct Wanted {
    replicas: u16,
    within: Duration,
}

/// Runs scripts and says what they answered when replicas have it.
#[derive(Clone)]
pub(crate) struct Replicated {
    wanted: Wanted,
    connections: Connections,
}

#[derive(Clone)]
pub(super) enum Connections {
    Single(deadpool_redis::Pool),
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

    /// What the script answered, if enough replicas have it. `answers` is the hash, in the slot of the script's keys, whose placeholder is
    /// written once more.
    pub(crate) async fn run(&self, script: Cmd, answers: &str) -> Result<Value, StockError> {
        let replies = self
            .connections
            .send(&self.pipeline(script, answers), answers)
            .await?;
        let [answer, written, confirmed] =
            <[Value; REPLIES]>::try_from(replies).map_err(|replies| {
                StockError::Unreadable(format!("{} replies to {REPLIES} commands", replies.len()))
            })?;
        // Whatever else went wrong, what the script met explains it.
        let answer = answer.extract_error()?;
        written.extract_error()?;
        self.check(
            redis::from_redis_value::<i64>(confirmed.extract_error()?)
                .map_err(redis::RedisError::from)?,
        )?;
        Ok(answer)
    }

    fn pipeline(&self, script: Cmd, answers: &str) -> Pipeline {
        let mut pipeline = redis::pipe();
        pipeline.add_command(script);
        pipeline.cmd("HSET").arg(answers).arg("").arg("");
        // Nought would be for ever.
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

impl Connections {
    /// One reply for each command; a refusal is a reply.
    async fn send(&self, pipeline: &Pipeline, key: &str) -> Result<Vec<Value>, StockError> {
        match self {
            Self::Single(pool) => send(pool, pipeline).await,
            Self::Cluster(connections) => connections.send(pipeline, key).await,
            Self::Sentinel(following) => following.send_replicated(pipeline).await,
        }
    }
}

pub(super) async fn send(
    pool: &deadpool_redis::Pool,
    pipeline: &Pipeline,
) -> Result<Vec<Value>, StockError> {
    let mut connection = pool
        .get()
        .await
        .map_err(|error| StockError::Pool(error.to_string()))?;
    Ok(connection.req_packed_commands(pipeline, 0, REPLIES).await?)
}

/// How long a reply to a pipeline with `WAIT` may take.
pub(super) fn response_timeout(settings: &StockSettings) -> Duration {
    settings.redis.response_timeout + settings.replicas_timeout
}

/// Connections to every master, opened when the first order needs them: most clusters sell nothing that is replicated.
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

    async fn send(&self, pipeline: &Pipeline, key: &str) -> Result<Vec<Value>, StockError> {
        let all = self.open.get_or_try_init(|| self.open()).await?;
        let cluster = &all[self.turn.fetch_add(1, Ordering::Relaxed) % all.len()];
        // By itself the client could not say where a pipeline with WAIT belongs: WAIT has no key.
        let slot = Route::with_slot(Slot::for_key(key), SlotAddr::Master);
        Ok(cluster
            .commands_at(
                pipeline.clone(),
                REPLIES,
                SingleNodeRoutingInfo::SpecificNode(slot),
            )
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
