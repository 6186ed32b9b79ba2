//! One Redis server, a cluster of them, or the master that Sentinel names, behind one type.

mod address;
mod claim;
mod cluster;
mod link;
mod operators;
mod pace;
mod pool;
mod reconnecting;
mod replicated;
mod sentinel;
mod server;
pub(crate) mod shards;
mod single;
mod timeouts;

use std::{sync::Arc, time::Duration};

use futures::future::join_all;
use redis::{
    Client, Cmd, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, Pipeline, RedisError,
    RedisFuture, Value, aio::ConnectionLike, io::tcp::TcpSettings,
};
use tokio_util::sync::CancellationToken;

use crate::{RedisSettings, StockError, StockSettings, keys::Keys};
use address::Address;
pub use address::{REDIS_SCHEMES, lists_hosts};
pub use cluster::Cluster;
use pool::Pool;
pub use reconnecting::Reconnecting;
use reconnecting::Target;
pub(crate) use replicated::Replicated;
pub use sentinel::Following;
pub use server::ServerMemory;
pub(crate) use server::{field, histories, memory, no_reply};
pub(crate) use shards::Shard;

/// Carries one command to the server of a segment, and its reply back.
pub(crate) trait Carrier {
    /// The reply to a command that uses keys of one segment.
    async fn carry(&self, cmd: Cmd, keys: &Keys) -> Result<Value, StockError>;
}

impl Carrier for Connection {
    async fn carry(&self, cmd: Cmd, _: &Keys) -> Result<Value, StockError> {
        Ok(cmd.query_async(&mut self.clone()).await?)
    }
}

/// A connection that many callers share. Their commands are pipelined, and the replies come in
/// order.
#[derive(Clone)]
pub enum Connection {
    /// To the server that one address leads to.
    Single(Reconnecting),
    /// To every master of a cluster.
    Cluster(Cluster),
    /// To the master that Sentinel names.
    Sentinel(Following),
}

impl ConnectionLike for Connection {
    fn req_packed_command<'a>(&'a mut self, cmd: &'a Cmd) -> RedisFuture<'a, Value> {
        match self {
            Self::Single(connection) => Box::pin(connection.command(cmd)),
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
            Self::Single(connection) => Box::pin(connection.commands(cmd, offset, count)),
            Self::Cluster(cluster) => Box::pin(cluster.commands(cmd, offset, count)),
            Self::Sentinel(following) => Box::pin(following.commands(cmd, offset, count)),
        }
    }

    fn get_db(&self) -> i64 {
        match self {
            Self::Single(connection) => connection.db(),
            Self::Cluster(_) | Self::Sentinel(_) => 0,
        }
    }
}

/// A connection for long reads, so that an outbox of a megabyte does not stand in front of orders.
#[derive(Clone)]
pub(crate) enum Bulk {
    Single(Reconnecting),
    Cluster(Cluster),
    Sentinel(Following),
}

impl Carrier for Bulk {
    async fn carry(&self, cmd: Cmd, _: &Keys) -> Result<Value, StockError> {
        self.query(&cmd).await
    }
}

impl Bulk {
    pub(crate) async fn query<T: redis::FromRedisValue>(&self, cmd: &Cmd) -> Result<T, StockError> {
        match self {
            Self::Single(connection) => Ok(single::query(connection, cmd).await?),
            Self::Cluster(cluster) => Ok(redis::from_redis_value(
                cluster.command(cmd).await?.extract_error()?,
            )
            .map_err(RedisError::from)?),
            Self::Sentinel(following) => following.bulk_query(cmd).await,
        }
    }

    /// One decision for each command, in order. They travel together as far as they can: at one
    /// server they share a look at the socket, and writes among them a flush of its file.
    pub(crate) async fn query_each(&self, cmds: Vec<Cmd>) -> Vec<Result<Value, StockError>> {
        if cmds.is_empty() {
            return Vec::new();
        }
        let together = match self {
            Self::Single(connection) => single::query_each(connection, &cmds).await,
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

/// Connections for reads by operators and auditors.
#[derive(Clone)]
pub(crate) enum Operators {
    Single(Pool),
    Cluster(Cluster),
    Sentinel(Following),
}

impl Operators {
    pub(crate) async fn query(&self, cmd: &Cmd) -> Result<Value, StockError> {
        match self {
            Self::Single(pool) => operators::query(pool, cmd).await,
            Self::Cluster(cluster) => Ok(cluster.command(cmd).await?.extract_error()?),
            Self::Sentinel(following) => following.operators_query(cmd).await,
        }
    }
}

impl Carrier for Operators {
    async fn carry(&self, cmd: Cmd, _: &Keys) -> Result<Value, StockError> {
        self.query(&cmd).await
    }
}

/// Servers that a subscription can be made at.
#[derive(Clone)]
pub(crate) enum Nodes {
    /// The server that this address leads to.
    Single(Arc<Target>),
    /// Any of these.
    Cluster(Vec<Client>),
    /// The present master.
    Sentinel(Following),
}

impl Nodes {
    /// Address of the only server, or of the present master: `HOST:PORT`, without a password.
    pub(crate) fn address(&self) -> String {
        self.pick(0).map_or_else(String::new, |(client, _)| {
            client.get_connection_info().addr().to_string()
        })
    }

    /// The server to subscribe at in this attempt, and a token that is cancelled when the server is
    /// not the master any more.
    pub(crate) fn pick(&self, attempt: usize) -> Option<(Client, CancellationToken)> {
        match self {
            Self::Single(target) => Some((target.client.clone(), target.stay())),
            Self::Cluster(nodes) => Some((
                nodes.get(attempt % nodes.len().max(1))?.clone(),
                CancellationToken::new(),
            )),
            Self::Sentinel(following) => Some(following.node()),
        }
    }
}

/// Every connection to Redis.
pub(crate) struct Connections {
    pub orders: Connection,
    pub bulk: Bulk,
    /// For reads by operators and auditors.
    pub operators: Operators,
    /// For reservations that replicas must confirm.
    pub replicated: Replicated,
    /// For subscriptions.
    pub nodes: Nodes,
    /// Number of masters: 1 without a cluster.
    pub masters: u16,
}

impl Connections {
    /// Connects, and refuses servers that cannot be trusted with stock.
    pub(crate) async fn open(settings: &StockSettings) -> Result<Self, StockError> {
        let mut connections = match Address::parse(&settings.redis.url)? {
            Address::Single(url) => single::open(settings, &url).await?,
            Address::Cluster(urls) => cluster::open(settings, &urls).await?,
            Address::Sentinel(address) => sentinel::open(settings, address).await?,
        };
        connections.masters = server::check(&connections.orders).await?;
        Ok(connections)
    }
}

/// A client of every master that the URL leads to.
pub(crate) async fn masters(settings: &RedisSettings) -> Result<Vec<Client>, StockError> {
    let open = |url: &str| Ok::<_, StockError>(Client::open(info(settings, url)?)?);
    match Address::parse(&settings.url)? {
        Address::Single(url) => Ok(vec![open(&url)?]),
        Address::Cluster(urls) => cluster::masters(settings, &urls).await,
        Address::Sentinel(address) => {
            let url = sentinel::master_url(settings, address).await?;
            Ok(vec![open(&url)?])
        }
    }
}

/// Time limit for the TCP acknowledgement of sent data. A server that is only slow acknowledges all
/// the same.
#[cfg(target_os = "linux")]
const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(10);

/// Disables Nagle's algorithm: replies to small requests must not wait for one another. Where a
/// path has died silently, the connection must break and be reopened; a missing reply alone does
/// not break it.
fn tcp() -> TcpSettings {
    let settings = TcpSettings::default().set_nodelay(true);
    #[cfg(target_os = "linux")]
    let settings = settings.set_user_timeout(UNACKNOWLEDGED_MAX);
    settings
}

/// How to connect to the server at `url`.
fn info(settings: &RedisSettings, url: &str) -> Result<ConnectionInfo, StockError> {
    let info = url
        .into_connection_info()
        .map_err(|_| StockError::Url(lock::without_secrets(url)))?
        .set_tcp_settings(tcp());
    match &settings.tls {
        // Parses the certificates, and keeps them with the address.
        Some(certificates) if is_encrypted(&info) => {
            let client = Client::build_with_tls(info, certificates.clone())?;
            Ok(client.get_connection_info().clone())
        }
        _ => Ok(info),
    }
}

fn is_encrypted(info: &ConnectionInfo) -> bool {
    matches!(info.addr(), ConnectionAddr::TcpTls { .. })
}
