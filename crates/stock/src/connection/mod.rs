//! One Redis server, a cluster of them, or whichever server the sentinels name, behind one type.

mod address;
mod cluster;
mod replicated;
mod sentinel;
mod single;

use std::time::Duration;

use futures::future::join_all;
use redis::{
    Client, Cmd, ConnectionInfo, IntoConnectionInfo, Pipeline, RedisError, RedisFuture, Value,
    aio::{ConnectionLike, ConnectionManager},
    io::tcp::TcpSettings,
};
use tokio_util::sync::CancellationToken;

use crate::{StockError, stock::StockSettings};
use address::Address;
pub use cluster::Cluster;
pub(crate) use replicated::Replicated;
pub use sentinel::Following;

/// Where the stock is, and how long to wait for it.
#[derive(Debug, Clone)]
pub struct RedisSettings {
    /// `redis://`, `redis+cluster://HOST:PORT,...`, `redis+sentinel://HOST:PORT,.../NAME`; each also as `rediss` (TLS).
    pub url: String,
    /// How long opening a connection may take.
    pub connect_timeout: Duration,
    /// How long a reply may take before its outcome counts as unknown and is asked for again.
    pub response_timeout: Duration,
}

impl RedisSettings {
    /// The defaults for `url`.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            connect_timeout: Duration::from_secs(1),
            response_timeout: Duration::from_millis(500),
        }
    }
}

/// A connection that many callers share: their commands are pipelined, their replies come in order.
#[derive(Clone)]
pub enum Connection {
    /// To one server, made anew when it breaks.
    Single(ConnectionManager),
    /// To every master of a cluster.
    Cluster(Cluster),
    /// To whichever server the sentinels name.
    Sentinel(Following),
}

impl ConnectionLike for Connection {
    fn req_packed_command<'a>(&'a mut self, cmd: &'a Cmd) -> RedisFuture<'a, Value> {
        match self {
            Self::Single(connection) => connection.req_packed_command(cmd),
            Self::Cluster(cluster) => Box::pin(cluster.command(cmd)),
            Self::Sentinel(following) => Box::pin(following.command(cmd)),
        }
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        cmd: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        match self {
            Self::Single(connection) => connection.req_packed_commands(cmd, offset, count),
            Self::Cluster(cluster) => Box::pin(cluster.commands(cmd, offset, count)),
            Self::Sentinel(following) => Box::pin(following.commands(cmd, offset, count)),
        }
    }

    fn get_db(&self) -> i64 {
        match self {
            Self::Single(connection) => connection.get_db(),
            Self::Cluster(_) | Self::Sentinel(_) => 0,
        }
    }
}

/// A connection for long reads, so that an outbox of a megabyte does not stand in the way of orders.
#[derive(Clone)]
pub(crate) enum Bulk {
    Single(ConnectionManager),
    Cluster(Cluster),
    Sentinel(Following),
}

impl Bulk {
    pub(crate) async fn query<T: redis::FromRedisValue>(&self, cmd: &Cmd) -> Result<T, StockError> {
        match self {
            Self::Single(connection) => Ok(cmd.query_async(&mut connection.clone()).await?),
            Self::Cluster(cluster) => Ok(redis::from_redis_value(
                cluster.command(cmd).await?.extract_error()?,
            )
            .map_err(RedisError::from)?),
            Self::Sentinel(following) => following.bulk_query(cmd).await,
        }
    }

    /// One answer for each command, in order. They travel together as far as they can: at one server they share a look at the socket, and
    /// writes among them a flush of its file.
    pub(crate) async fn query_each(&self, cmds: Vec<Cmd>) -> Vec<Result<Value, StockError>> {
        if cmds.is_empty() {
            return Vec::new();
        }
        let together = match self {
            Self::Single(connection) => single::query_each(connection.clone(), &cmds).await,
            Self::Sentinel(following) => following.bulk_query_each(&cmds).await,
            Self::Cluster(cluster) => {
                return join_all(
                    cmds.iter()
                        .map(async |cmd| Ok(cluster.command(cmd).await?.extract_error()?)),
                )
                .await;
            }
        };
        match together {
            Ok(values) => values
                .into_iter()
                .map(|value| Ok(value.extract_error()?))
                .collect(),
            Err(error) => cmds.iter().map(|_| Err(error.clone().into())).collect(),
        }
    }
}

/// Where a subscription can be made.
#[derive(Clone)]
pub(crate) enum Nodes {
    /// At any of these.
    Fixed(Vec<Client>),
    /// At whoever is the master.
    Sentinel(Following),
}

impl Nodes {
    /// Where to subscribe at this attempt, and what says that it is the wrong place from now on.
    pub(crate) fn pick(&self, attempt: usize) -> Option<(Client, CancellationToken)> {
        match self {
            Self::Fixed(nodes) => Some((
                nodes.get(attempt % nodes.len().max(1))?.clone(),
                CancellationToken::new(),
            )),
            Self::Sentinel(following) => Some(following.node()),
        }
    }
}

/// Everything that is open towards Redis.
pub(crate) struct Connections {
    pub orders: Connection,
    pub bulk: Bulk,
    /// For the asks that replicas must confirm.
    pub replicated: Replicated,
    /// Where a subscription can be made.
    pub nodes: Nodes,
}

impl Connections {
    pub(crate) async fn open(settings: &StockSettings) -> Result<Self, StockError> {
        match Address::parse(&settings.redis.url)? {
            Address::Single(url) => single::open(settings, &url).await,
            Address::Cluster(urls) => cluster::open(settings, &urls).await,
            Address::Sentinel(address) => sentinel::open(settings, address).await,
        }
    }
}

/// How long what was sent may remain unacknowledged by the other machine. A server that is only slow acknowledges all the same.
#[cfg(target_os = "linux")]
const UNHEARD_MOST: Duration = Duration::from_secs(10);

/// Replies to small requests must not wait for one another (Nagle). And where a path has died without a word, the connection must break and be made
/// anew, which a reply that does not come in time is no reason for.
fn tcp() -> TcpSettings {
    let settings = TcpSettings::default().set_nodelay(true);
    #[cfg(target_os = "linux")]
    let settings = settings.set_user_timeout(UNHEARD_MOST);
    settings
}

fn info(url: &str) -> Result<ConnectionInfo, StockError> {
    Ok(url
        .into_connection_info()
        .map_err(|_| StockError::Url(address::without_credentials(url)))?
        .set_tcp_settings(tcp()))
}
