//! Every master of a cluster.
//!
//! What a reader could get wrong: the client follows failovers by itself, and then sometimes never answers again. It learns the new
//! slots under a lock for which requests under way may stand in line, does not let these go on meanwhile, and so waits for ever; every
//! request that comes later times out (redis 1.8.1; its #2419 was another way into the same). A client that is asked and has not said a word
//! for [`SILENCE`] is therefore replaced by a new one.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use arc_swap::ArcSwap;
use redis::{
    Client, Cmd, ConnectionInfo, Pipeline, RedisError, RedisResult, Value, aio::ConnectionLike,
    cluster::ClusterClient, cluster_async::ClusterConnection,
    cluster_routing::SingleNodeRoutingInfo,
};

use super::{
    Bulk, Connection, Connections, Nodes, RedisSettings, Replicated, info, replicated, tcp,
};
use crate::{StockError, stock::StockSettings};

/// Longer than a request may take, so several have timed out by then. A shard that is down does not make the client silent: the others
/// answer, and of that one it says at once that it cannot be reached.
const SILENCE: Duration = Duration::from_secs(2);

pub(super) async fn open(
    settings: &StockSettings,
    urls: &[String],
) -> Result<Connections, StockError> {
    let infos = urls
        .iter()
        .map(|url| info(url))
        .collect::<Result<Vec<_>, _>>()?;
    let nodes = infos
        .iter()
        .cloned()
        .map(Client::open)
        .collect::<Result<Vec<_>, _>>()?;
    let confirming = client(
        &settings.redis,
        infos.clone(),
        replicated::response_timeout(settings),
    )?;
    let confirming = Arc::new(replicated::ClusterConnections::new(confirming));
    let client = client(&settings.redis, infos, settings.redis.response_timeout)?;
    Ok(Connections {
        orders: Connection::Cluster(Cluster::open(client.clone()).await?),
        bulk: Bulk::Cluster(Cluster::open(client).await?),
        replicated: Replicated::new(settings, replicated::Connections::Cluster(confirming)),
        nodes: Nodes::Fixed(nodes),
    })
}

fn client(
    settings: &RedisSettings,
    infos: Vec<ConnectionInfo>,
    response_timeout: Duration,
) -> Result<ClusterClient, StockError> {
    let client = ClusterClient::builder(infos)
        .connection_timeout(settings.connect_timeout)
        .response_timeout(response_timeout)
        .overall_response_timeout(Some(response_timeout * 2))
        .tcp_settings(tcp())
        .retries(1);
    Ok(client.build()?)
}

/// No reply is waited for longer, whatever becomes of the client's own limits while it finds its way about a cluster that changes: a lane or
/// a sweep that waits for ever would be the end of it.
const HUNG: Duration = Duration::from_secs(5);

async fn bounded<T>(reply: impl Future<Output = RedisResult<T>>) -> RedisResult<T> {
    let timed_out = || {
        RedisError::from(std::io::Error::new(
            std::io::ErrorKind::TimedOut,
            "the cluster did not answer at all",
        ))
    };
    tokio::time::timeout(HUNG, reply)
        .await
        .unwrap_or_else(|_| Err(timed_out()))
}

/// A connection to every master, which many callers share.
#[derive(Clone)]
pub struct Cluster(Arc<Inner>);

struct Inner {
    client: ClusterClient,
    connection: ArcSwap<ClusterConnection>,
    silence: Mutex<Silence>,
    replacing: AtomicBool,
}

impl Cluster {
    /// Connects to some of the nodes, and learns of the others.
    pub async fn open(client: ClusterClient) -> RedisResult<Self> {
        let connection = ArcSwap::from_pointee(client.get_async_connection().await?);
        Ok(Self(Arc::new(Inner {
            client,
            connection,
            silence: Mutex::default(),
            replacing: AtomicBool::default(),
        })))
    }

    pub(super) async fn command(&self, cmd: &Cmd) -> RedisResult<Value> {
        let result = bounded(self.connection().req_packed_command(cmd)).await;
        self.note(&result);
        result
    }

    pub(super) async fn commands(
        &self,
        pipeline: &Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisResult<Vec<Value>> {
        let result = bounded(
            self.connection()
                .req_packed_commands(pipeline, offset, count),
        )
        .await;
        self.note(&result);
        result
    }

    pub(super) async fn commands_at(
        &self,
        pipeline: Pipeline,
        count: usize,
        node: SingleNodeRoutingInfo,
    ) -> RedisResult<Vec<Value>> {
        let result = bounded(self.connection().route_pipeline(pipeline, 0, count, node)).await;
        self.note(&result);
        result
    }

    fn connection(&self) -> ClusterConnection {
        ClusterConnection::clone(&self.0.connection.load())
    }

    fn note<T>(&self, result: &RedisResult<T>) {
        let timed_out = result.as_ref().is_err_and(RedisError::is_timeout);
        let is_stuck = self
            .0
            .silence
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .takes_in(timed_out, Instant::now());
        if is_stuck && !self.0.replacing.swap(true, Ordering::AcqRel) {
            tokio::spawn(Self::replace(Arc::clone(&self.0)));
        }
    }

    /// What was asked on the old one times out, as everything on it did, and is asked again on the new one.
    async fn replace(inner: Arc<Inner>) {
        match inner.client.get_async_connection().await {
            Ok(connection) => {
                inner.connection.store(Arc::new(connection));
                metrics::counter!("stockade_redis_clients_replaced_total").increment(1);
                tracing::warn!(silent_for = ?SILENCE, "the client of the cluster said nothing any more: here is a new one");
            }
            Err(error) => tracing::debug!(%error, "no new client of the cluster yet"),
        }
        // A new one has as much time as the first.
        *inner.silence.lock().unwrap_or_else(PoisonError::into_inner) = Silence::default();
        inner.replacing.store(false, Ordering::Release);
    }
}

/// Since when there were only timeouts.
#[derive(Default)]
struct Silence(Option<Instant>);

impl Silence {
    /// Takes in how a request ended; whether there has been nothing but timeouts for too long. Anything else, also a refusal, is a word.
    fn takes_in(&mut self, timed_out: bool, now: Instant) -> bool {
        self.0 = timed_out.then(|| self.0.unwrap_or(now));
        self.0
            .is_some_and(|since| now.duration_since(since) >= SILENCE)
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{SILENCE, Silence};

    #[test]
    fn only_timeouts_without_end_are_silence() {
        let (mut silence, start) = (Silence::default(), Instant::now());
        let at = |part: u32| start + SILENCE * part / 4;
        assert!(!silence.takes_in(true, at(0)) && !silence.takes_in(true, at(3)));
        assert!(!silence.takes_in(false, at(4)), "a word");
        assert!(!silence.takes_in(true, at(5)) && !silence.takes_in(true, at(8)));
        assert!(
            silence.takes_in(true, at(9))
                && silence.takes_in(true, at(9) + Duration::from_millis(1))
        );
    }
}
