//! One Redis server or a cluster of them, behind one type.

use std::time::Duration;

use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionInfo, IntoConnectionInfo, Pipeline, RedisFuture, Value,
    aio::{ConnectionLike, ConnectionManager, ConnectionManagerConfig},
    cluster::ClusterClient,
    cluster_async::ClusterConnection,
    io::tcp::TcpSettings,
};

use crate::StockError;

/// Where the stock is, and how long to wait for it.
#[derive(Debug, Clone)]
pub struct RedisSettings {
    /// `redis://`, `rediss://` (TLS), `redis+cluster://HOST:PORT,...` or `rediss+cluster://`.
    pub url: String,
    /// How long opening a connection may take.
    pub connect_timeout: Duration,
    /// How long a reply may take before its outcome counts as unknown and is asked for again.
    pub response_timeout: Duration,
    /// Connections for long reads (outboxes), apart from the one that the orders share.
    pub bulk_connections: usize,
}

impl RedisSettings {
    /// The defaults for `url`.
    pub fn new(url: impl Into<String>) -> Self {
        Self { url: url.into(), connect_timeout: Duration::from_secs(1), response_timeout: Duration::from_millis(500), bulk_connections: 4 }
    }
}

/// A connection that many callers share: their commands are pipelined, their replies come in order.
#[derive(Clone)]
pub enum Connection {
    /// To one server, made anew when it breaks.
    Single(ConnectionManager),
    /// To every master of a cluster.
    Cluster(ClusterConnection),
}

impl ConnectionLike for Connection {
    fn req_packed_command<'a>(&'a mut self, cmd: &'a Cmd) -> RedisFuture<'a, Value> {
        match self {
            Self::Single(connection) => connection.req_packed_command(cmd),
            Self::Cluster(connection) => connection.req_packed_command(cmd),
        }
    }

    fn req_packed_commands<'a>(&'a mut self, cmd: &'a Pipeline, offset: usize, count: usize) -> RedisFuture<'a, Vec<Value>> {
        match self {
            Self::Single(connection) => connection.req_packed_commands(cmd, offset, count),
            Self::Cluster(connection) => connection.req_packed_commands(cmd, offset, count),
        }
    }

    fn get_db(&self) -> i64 {
        match self {
            Self::Single(connection) => connection.get_db(),
            Self::Cluster(connection) => connection.get_db(),
        }
    }
}

/// Connections for long reads, so that an outbox of a megabyte does not stand in the way of orders.
#[derive(Clone)]
pub(crate) enum Bulk {
    Single(deadpool_redis::Pool),
    Cluster(ClusterConnection),
}

/// Everything that is open towards Redis.
pub(crate) struct Connections {
    pub orders: Connection,
    pub bulk: Bulk,
    /// One client per node that a subscription can be made at.
    pub nodes: Vec<Client>,
}

impl Connections {
    pub(crate) async fn open(settings: &RedisSettings) -> Result<Self, StockError> {
        match Address::parse(&settings.url)? {
            Address::Single(url) => open_single(settings, &url).await,
            Address::Cluster(urls) => open_cluster(settings, urls).await,
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Address {
    Single(String),
    Cluster(Vec<String>),
}

impl Address {
    fn parse(url: &str) -> Result<Self, StockError> {
        let cluster = [("redis+cluster://", "redis://"), ("rediss+cluster://", "rediss://")];
        for (prefix, scheme) in cluster {
            if let Some(rest) = url.strip_prefix(prefix) {
                // Credentials stand once, in front of the first node, and go for all of them.
                let (credentials, hosts) = rest.rsplit_once('@').map_or(("", rest), |(user, hosts)| (user, hosts));
                let at = if credentials.is_empty() { "" } else { "@" };
                let nodes = hosts.split(',').map(|host| format!("{scheme}{credentials}{at}{host}")).collect();
                return Ok(Self::Cluster(nodes));
            }
        }
        if url.starts_with("redis://") || url.starts_with("rediss://") {
            return Ok(Self::Single(url.into()));
        }
        Err(StockError::Url(without_credentials(url)))
    }
}

fn without_credentials(url: &str) -> String {
    match (url.find("://"), url.rfind('@')) {
        (Some(scheme), Some(at)) if scheme + 3 <= at => format!("{}***{}", &url[..scheme + 3], &url[at..]),
        _ => url.into(),
    }
}

/// Replies to small requests must not wait for one another (Nagle).
fn tcp() -> TcpSettings {
    TcpSettings::default().set_nodelay(true)
}

fn info(url: &str) -> Result<ConnectionInfo, StockError> {
    Ok(url.into_connection_info().map_err(|_| StockError::Url(without_credentials(url)))?.set_tcp_settings(tcp()))
}

async fn open_single(settings: &RedisSettings, url: &str) -> Result<Connections, StockError> {
    let client = Client::open(info(url)?)?;
    let config = ConnectionManagerConfig::new()
        .set_connection_timeout(Some(settings.connect_timeout))
        .set_response_timeout(Some(settings.response_timeout))
        .set_number_of_retries(3)
        .set_min_delay(Duration::from_millis(20))
        .set_max_delay(Duration::from_millis(500));
    let orders = client.get_connection_manager_with_config(config).await?;
    Ok(Connections { orders: Connection::Single(orders), bulk: Bulk::Single(pool(settings, url)?), nodes: vec![client] })
}

fn pool(settings: &RedisSettings, url: &str) -> Result<deadpool_redis::Pool, StockError> {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(settings.connect_timeout))
        .set_response_timeout(Some(settings.response_timeout * 4));
    let manager = deadpool_redis::Manager::new_with_config(info(url)?, config)?;
    deadpool_redis::Pool::builder(manager)
        .max_size(settings.bulk_connections)
        .wait_timeout(Some(settings.response_timeout * 4))
        .runtime(deadpool_redis::Runtime::Tokio1)
        .build()
        .map_err(|error| StockError::Pool(error.to_string()))
}

async fn open_cluster(settings: &RedisSettings, urls: Vec<String>) -> Result<Connections, StockError> {
    let infos = urls.iter().map(|url| info(url)).collect::<Result<Vec<_>, _>>()?;
    let nodes = infos.iter().cloned().map(Client::open).collect::<Result<Vec<_>, _>>()?;
    let client = ClusterClient::builder(infos)
        .connection_timeout(settings.connect_timeout)
        .response_timeout(settings.response_timeout)
        .overall_response_timeout(Some(settings.response_timeout * 2))
        .tcp_settings(tcp())
        .retries(1)
        .build()?;
    let orders = client.get_async_connection().await?;
    let bulk = client.get_async_connection().await?;
    Ok(Connections { orders: Connection::Cluster(orders), bulk: Bulk::Cluster(bulk), nodes })
}

impl Bulk {
    pub(crate) async fn query<T: redis::FromRedisValue>(&self, cmd: &Cmd) -> Result<T, StockError> {
        match self {
            Self::Single(pool) => {
                let mut connection = pool.get().await.map_err(|error| StockError::Pool(error.to_string()))?;
                Ok(cmd.query_async(&mut connection).await?)
            }
            Self::Cluster(connection) => Ok(cmd.query_async(&mut connection.clone()).await?),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Address, without_credentials};

    #[test]
    fn urls_name_a_server_or_the_nodes_of_a_cluster() {
        assert_eq!(Address::parse("redis://h:1").unwrap(), Address::Single("redis://h:1".into()));
        let nodes = vec!["redis://u:p@a:1".into(), "redis://u:p@b:2".into()];
        assert_eq!(Address::parse("redis+cluster://u:p@a:1,b:2").unwrap(), Address::Cluster(nodes));
        let nodes = vec!["rediss://a:1".into()];
        assert_eq!(Address::parse("rediss+cluster://a:1").unwrap(), Address::Cluster(nodes));
        assert!(Address::parse("http://h").is_err());
    }

    #[test]
    fn an_error_does_not_show_a_password() {
        assert_eq!(without_credentials("http://user:secret@host"), "http://***@host");
        assert_eq!(without_credentials("nonsense"), "nonsense");
    }
}
