//! Every master of a cluster.
//!
//! What a reader could get wrong: the client follows failovers by itself, but sometimes never
//! responds again. It refreshes the slot map under a lock that requests in flight may be queued for,
//! and does not poll these meanwhile: a deadlock. Every later request times out (redis 1.8.1; its
//! issue #2419 was another way into the same state). A client that has only timed out for
//! [`UNRESPONSIVE_MAX`] is therefore replaced.

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
    Bulk, Connection, Connections, Nodes, Operators, Replicated, info, is_encrypted, replicated,
    server, tcp,
};
use crate::{RedisSettings, StockError, StockSettings};

/// Time with nothing but timeouts after which a client is replaced. It is longer than the time limit
/// of a request, so several have timed out. A shard that is down does not make the client
/// unresponsive: the others reply, and its own requests fail immediately.
const UNRESPONSIVE_MAX: Duration = Duration::from_secs(2);

pub(super) async fn open(
    settings: &StockSettings,
    urls: &[String],
) -> Result<Connections, StockError> {
    let infos = urls
        .iter()
        .map(|url| info(&settings.redis, url))
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
        bulk: Bulk::Cluster(Cluster::open(client.clone()).await?),
        operators: Operators::Cluster(Cluster::open(client).await?),
        replicated: Replicated::new(settings, replicated::Connections::Cluster(confirming)),
        masters: 1,
        nodes: Nodes::Fixed(nodes),
    })
}

/// A client of each master that the cluster has now.
pub(super) async fn masters(
    settings: &RedisSettings,
    urls: &[String],
) -> Result<Vec<Client>, StockError> {
    let infos = urls
        .iter()
        .map(|url| info(settings, url))
        .collect::<Result<Vec<_>, _>>()?;
    let cluster = Cluster::open(client(settings, infos, settings.response_timeout)?).await?;
    let reply = cluster.command(&redis::cmd("INFO")).await?;
    let names = server::by_node(reply.extract_error()?, "").into_iter();
    let first = urls.first().map_or("", |url| url);
    let clients = names.map(|(name, _)| Ok(Client::open(info(settings, &at_host(first, &name))?)?));
    clients.collect()
}

/// The URL with another host, and the same credentials.
fn at_host(url: &str, host: &str) -> String {
    let before = url
        .rfind('@')
        .map(|at| at + 1)
        .or(url.find("://").map(|at| at + 3));
    format!("{}{host}", &url[..before.unwrap_or(0)])
}

fn client(
    settings: &RedisSettings,
    infos: Vec<ConnectionInfo>,
    response_timeout: Duration,
) -> Result<ClusterClient, StockError> {
    let encrypted = infos.iter().any(is_encrypted);
    let client = ClusterClient::builder(infos)
        .connection_timeout(settings.connect_timeout)
        .response_timeout(response_timeout)
        .overall_response_timeout(Some(response_timeout * 2))
        .tcp_settings(tcp())
        .retries(1);
    // Nodes that the cluster names later need them as well.
    let client = match &settings.tls {
        Some(certificates) if encrypted => client.certs(certificates.clone()),
        _ => client,
    };
    Ok(client.build()?)
}

/// Time limit for any reply. The client's own limits do not hold while it follows a cluster that
/// changes, and a batcher or a sweep must never wait without a limit.
const REPLY_TIMEOUT: Duration = Duration::from_secs(5);

async fn bounded<T>(reply: impl Future<Output = RedisResult<T>>) -> RedisResult<T> {
    let timed_out = || {
        RedisError::from(std::io::Error::new(
            std::io::ErrorKind::TimedOut,
            "no reply from the cluster in time",
        ))
    };
    tokio::time::timeout(REPLY_TIMEOUT, reply)
        .await
        .unwrap_or_else(|_| Err(timed_out()))
}

/// A connection to every master, which many callers share.
#[derive(Clone)]
pub struct Cluster(Arc<Inner>);

struct Inner {
    client: ClusterClient,
    connection: ArcSwap<ClusterConnection>,
    timeouts: Mutex<TimeoutRun>,
    replacing: AtomicBool,
}

impl Cluster {
    /// Connects to some of the nodes, and discovers the others.
    pub async fn open(client: ClusterClient) -> RedisResult<Self> {
        let connection = ArcSwap::from_pointee(client.get_async_connection().await?);
        Ok(Self(Arc::new(Inner {
            client,
            connection,
            timeouts: Mutex::default(),
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
            .timeouts
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .note(timed_out, Instant::now());
        if is_stuck && !self.0.replacing.swap(true, Ordering::AcqRel) {
            tokio::spawn(Self::replace(Arc::clone(&self.0)));
        }
    }

    /// Requests on the old client time out like all before them, and are repeated on the new one.
    async fn replace(inner: Arc<Inner>) {
        match inner.client.get_async_connection().await {
            Ok(connection) => {
                inner.connection.store(Arc::new(connection));
                metrics::counter!("stockade_redis_clients_replaced_total").increment(1);
                tracing::warn!(timeouts_for = ?UNRESPONSIVE_MAX, "cluster client unresponsive, replaced");
            }
            Err(error) => tracing::debug!(%error, "failed to replace the cluster client"),
        }
        // The new client has as much time as the first.
        *inner
            .timeouts
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = TimeoutRun::default();
        inner.replacing.store(false, Ordering::Release);
    }
}

/// Start of the present run of timeouts.
#[derive(Default)]
struct TimeoutRun(Option<Instant>);

impl TimeoutRun {
    /// Notes how a request ended. Returns whether there have been only timeouts for too long. Any
    /// other result, also a refusal, ends the run.
    fn note(&mut self, timed_out: bool, now: Instant) -> bool {
        self.0 = timed_out.then(|| self.0.unwrap_or(now));
        self.0
            .is_some_and(|since| now.duration_since(since) >= UNRESPONSIVE_MAX)
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{TimeoutRun, UNRESPONSIVE_MAX};

    #[test]
    fn only_a_run_of_timeouts_makes_a_client_unresponsive() {
        let (mut run, start) = (TimeoutRun::default(), Instant::now());
        let at = |part: u32| start + UNRESPONSIVE_MAX * part / 4;
        assert!(!run.note(true, at(0)) && !run.note(true, at(3)));
        assert!(!run.note(false, at(4)), "a reply ends the run");
        assert!(!run.note(true, at(5)) && !run.note(true, at(8)));
        assert!(run.note(true, at(9)) && run.note(true, at(9) + Duration::from_millis(1)));
    }
}
