//! Every master of a cluster.
//!
//! What a reader could get wrong: the client follows failovers by itself, but sometimes never
//! responds again. It refreshes the slot map under a lock that requests in flight may be queued
//! for, and does not poll these meanwhile: a deadlock. Every later request times out (redis 1.8.1;
//! its issue #2419 was another way into the same state). And if the task that drives the client has
//! ended, every request fails as on a broken pipe. So a client that has brought only timeouts and
//! other errors of I/O for [`UNRESPONSIVE_MAX`] is replaced. A shard that is down does not make the
//! client unresponsive: the others reply. If only that shard is used, a new client does no harm.
//!
//! The client can repeat what failed, and reports the last error alone: a refusal that it reports
//! may hide an attempt whose reply was lost. For reservations that would turn "nothing ran" into a
//! lie, so their client repeats nothing ([`Repeats::Never`]). What a redirection refused has not
//! run, and is repeated here.
//!
//! The client also hands out errors that belong to no request. If it fails to refresh the slot map
//! or to reconnect, each request in flight gets that error, whatever became of it at its own node.
//! And of a pipeline it reports a redirection of *one* command as the error of all. So only a
//! redirection of a single command is taken as proof that it has not run ([`as_far_as_proven`]).

use std::{
    sync::{Arc, atomic::AtomicBool},
    time::{Duration, Instant},
};

use arc_swap::ArcSwap;
use redis::{
    Client, Cmd, ConnectionInfo, ErrorKind, Pipeline, RedisError, RedisFuture, RedisResult,
    ServerErrorKind, Value, aio::ConnectionLike, cluster::ClusterClient,
    cluster_async::ClusterConnection, cluster_routing::SingleNodeRoutingInfo,
};
use tokio::runtime::Handle;

use super::{
    Bulk, Connection, Connections, Nodes, Operators, Replicated,
    claim::Claim,
    info, is_encrypted, replicated, server, tcp,
    timeouts::{TimeoutRun, UNRESPONSIVE_MAX},
};
use crate::{RedisSettings, StockError, StockSettings, refusal::proves_unchanged};

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
    let client = |repeats, response_timeout| {
        client(&settings.redis, infos.clone(), repeats, response_timeout)
    };
    let confirming = client(Repeats::Never, replicated::response_timeout(settings))?;
    let confirming = Arc::new(replicated::ClusterConnections::new(confirming));
    let orders = client(Repeats::Never, settings.redis.response_timeout)?;
    let reads = client(Repeats::Once, settings.redis.response_timeout)?;
    Ok(Connections {
        orders: Connection::Cluster(Cluster::open(orders).await?),
        bulk: Bulk::Cluster(Cluster::open(reads.clone()).await?),
        operators: Operators::Cluster(Cluster::open(reads).await?),
        replicated: Replicated::new(settings, replicated::Connections::Cluster(confirming)),
        masters: 1,
        nodes: Nodes::Cluster(nodes),
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
    let cluster = Cluster::open(client(
        settings,
        infos,
        Repeats::Once,
        settings.response_timeout,
    )?)
    .await?;
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

/// How often the client itself repeats a request that failed.
#[derive(Debug, Clone, Copy)]
enum Repeats {
    Never = 0,
    Once = 1,
}

fn client(
    settings: &RedisSettings,
    infos: Vec<ConnectionInfo>,
    repeats: Repeats,
    response_timeout: Duration,
) -> Result<ClusterClient, StockError> {
    let encrypted = infos.iter().any(is_encrypted);
    let client = ClusterClient::builder(infos)
        .connection_timeout(settings.connect_timeout)
        .response_timeout(response_timeout)
        .overall_response_timeout(Some(response_timeout * 2))
        .tcp_settings(tcp())
        .retries(repeats as u32);
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
    tokio::time::timeout(REPLY_TIMEOUT, reply)
        .await
        .unwrap_or_else(|_| Err(server::no_reply()))
}

/// The most times that a request is sent which redirections refuse.
const SENDS_MAX: u32 = 3;

/// Pause before such a request is sent again: a failover takes longer than a round trip.
const RESEND_PAUSE: Duration = Duration::from_millis(5);

/// Whether another node is to be asked, and this one has run nothing.
fn is_redirected(error: &RedisError) -> bool {
    matches!(
        error.kind(),
        ErrorKind::Server(ServerErrorKind::Moved | ServerErrorKind::ReadOnly)
    )
}

/// Whether only the node that a single command was sent to can have answered so. What the client
/// does on its own, a login, `PING` and `CLUSTER SLOTS`, has no key and writes nothing: none of
/// these errors can come from there.
fn is_of_command(error: &RedisError) -> bool {
    use ServerErrorKind::{Ask, ClusterDown, Moved, ReadOnly, TryAgain};
    matches!(
        error.kind(),
        ErrorKind::Server(Ask | ClusterDown | Moved | ReadOnly | TryAgain)
    )
}

/// The error, without the proof that nothing ran if it may belong to another request. The text
/// stays.
fn as_far_as_proven(error: RedisError, request: &Request<'_>) -> RedisError {
    let is_own = matches!(request, Request::Command(_)) && is_of_command(&error);
    if is_own || !proves_unchanged(&error) {
        return error;
    }
    let text = error.to_string();
    RedisError::from((ErrorKind::Client, "request to the cluster failed", text))
}

/// A request, as the client takes it.
enum Request<'a> {
    Command(&'a Cmd),
    /// With the number of its first reply that counts, and the number of those.
    Pipeline(&'a Pipeline, usize, usize),
    /// With the number of replies, at this node.
    At(&'a Pipeline, usize, SingleNodeRoutingInfo),
}

impl Request<'_> {
    async fn send(&self, mut connection: ClusterConnection) -> RedisResult<Vec<Value>> {
        match self {
            Self::Command(cmd) => Ok(vec![connection.req_packed_command(cmd).await?]),
            Self::Pipeline(pipeline, offset, count) => {
                connection
                    .req_packed_commands(pipeline, *offset, *count)
                    .await
            }
            Self::At(pipeline, count, node) => {
                connection
                    .route_pipeline((*pipeline).clone(), 0, *count, node.clone())
                    .await
            }
        }
    }
}

/// The last reply, which is that of the command.
fn last(mut replies: Vec<Value>) -> RedisResult<Value> {
    replies
        .pop()
        .ok_or_else(|| RedisError::from((ErrorKind::UnexpectedReturnType, "no reply")))
}

fn host_and_port(node: &str) -> Option<(String, u16)> {
    let (host, port) = node.rsplit_once(':')?;
    Some((host.to_owned(), port.parse().ok()?))
}

/// A connection to every master, which many callers share.
#[derive(Clone)]
pub struct Cluster(Arc<Inner>);

struct Inner {
    client: ClusterClient,
    connection: ArcSwap<ClusterConnection>,
    /// A client is driven by the runtime that opened it, which may be another than the caller's.
    runtime: Handle,
    failures: TimeoutRun,
    replacing: Arc<AtomicBool>,
}

impl Cluster {
    /// Connects to some of the nodes, and discovers the others.
    pub async fn open(client: ClusterClient) -> RedisResult<Self> {
        let connection = ArcSwap::from_pointee(client.get_async_connection().await?);
        Ok(Self(Arc::new(Inner {
            client,
            connection,
            runtime: Handle::current(),
            failures: TimeoutRun::default(),
            replacing: Arc::default(),
        })))
    }

    pub(super) async fn command(&self, cmd: &Cmd) -> RedisResult<Value> {
        match self.send(&Request::Command(cmd)).await {
            Ok(replies) => last(replies),
            Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::Ask) => {
                self.send_asking(cmd, error).await
            }
            Err(error) => Err(error),
        }
    }

    pub(super) async fn commands(
        &self,
        pipeline: &Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisResult<Vec<Value>> {
        self.send(&Request::Pipeline(pipeline, offset, count)).await
    }

    pub(super) async fn commands_at(
        &self,
        pipeline: &Pipeline,
        count: usize,
        node: SingleNodeRoutingInfo,
    ) -> RedisResult<Vec<Value>> {
        self.send(&Request::At(pipeline, count, node)).await
    }

    /// Sends a request, and again as long as a redirection proves that it has not run. The client
    /// learns of the change from the redirection, and sends nothing before it knows the new nodes.
    ///
    /// Behind a pointer: every caller's future would hold all of it.
    fn send<'a>(&'a self, request: &'a Request<'_>) -> RedisFuture<'a, Vec<Value>> {
        Box::pin(self.send_until_taken(request))
    }

    async fn send_until_taken(&self, request: &Request<'_>) -> RedisResult<Vec<Value>> {
        let mut sends = 1;
        loop {
            let result = bounded(request.send(self.connection())).await;
            self.note(&result);
            let result = result.map_err(|error| as_far_as_proven(error, request));
            if sends == SENDS_MAX || !result.as_ref().is_err_and(is_redirected) {
                return result;
            }
            sends += 1;
            tokio::time::sleep(RESEND_PAUSE).await;
        }
    }

    /// Sends a command to the node that is taking over the slot of its keys, which `asked` names.
    async fn send_asking(&self, cmd: &Cmd, asked: RedisError) -> RedisResult<Value> {
        let Some((host, port)) = asked
            .redirect_node()
            .and_then(|(node, _)| host_and_port(node))
        else {
            return Err(asked);
        };
        let mut both = redis::pipe();
        both.cmd("ASKING").add_command(cmd.clone());
        let node = SingleNodeRoutingInfo::ByAddress { host, port };
        last(self.commands_at(&both, 2, node).await?)
    }

    fn connection(&self) -> ClusterConnection {
        ClusterConnection::clone(&self.0.connection.load())
    }

    fn note<T>(&self, result: &RedisResult<T>) {
        let failed = result.as_ref().is_err_and(RedisError::is_io_error);
        if self.0.failures.note(failed, Instant::now())
            && let Some(claim) = Claim::of(&self.0.replacing)
        {
            let inner = Arc::clone(&self.0);
            self.0.runtime.spawn(async move {
                let _claim = claim;
                inner.replace().await;
            });
        }
    }
}

impl Inner {
    /// Requests on the old client time out like all before them, and are repeated on the new one.
    async fn replace(&self) {
        match bounded(self.client.get_async_connection()).await {
            Ok(connection) => {
                self.connection.store(Arc::new(connection));
                metrics::counter!("stockade_redis_clients_replaced_total").increment(1);
                tracing::warn!(failed_for = ?UNRESPONSIVE_MAX, "cluster client unresponsive, replaced");
            }
            Err(error) => tracing::debug!(%error, "failed to replace the cluster client"),
        }
        self.failures.end();
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use redis::{Cmd, ErrorKind, Pipeline, RedisError};

    use super::{Request, as_far_as_proven, proves_unchanged};

    fn error(line: &str) -> RedisError {
        let value = redis::parse_redis_value(format!("-{line}\r\n").as_bytes()).unwrap();
        value.extract_error().unwrap_err()
    }

    fn is_proven(error: RedisError, request: &Request<'_>) -> bool {
        proves_unchanged(&as_far_as_proven(error, request))
    }

    #[test]
    fn a_redirection_of_one_command_is_proof_and_one_within_a_pipeline_is_none() {
        let (cmd, pipeline) = (Cmd::new(), Pipeline::new());
        for line in [
            "MOVED 1 h:1",
            "ASK 1 h:1",
            "TRYAGAIN",
            "CLUSTERDOWN",
            "READONLY",
        ] {
            let error = error(line);
            assert!(is_proven(error.clone(), &Request::Command(&cmd)), "{line}");
            let within = Request::Pipeline(&pipeline, 0, 1);
            assert!(!is_proven(error, &within), "{line}");
        }
    }

    #[test]
    fn what_the_client_met_while_it_reconnected_is_no_proof() {
        let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
        let errors = [
            RedisError::from(refused),
            RedisError::from((ErrorKind::AuthenticationFailed, "wrong password")),
            RedisError::from((ErrorKind::ClusterConnectionNotFound, "none")),
            error("NOPERM of CLUSTER SLOTS"),
            error("NOAUTH of PING"),
            error("LOADING a file"),
            error("MASTERDOWN of PING"),
            error("BUSY with a script"),
        ];
        let cmd = Cmd::new();
        for error in errors {
            assert!(proves_unchanged(&error), "elsewhere: {error}");
            assert!(
                !is_proven(error.clone(), &Request::Command(&cmd)),
                "{error}"
            );
        }
    }
}
