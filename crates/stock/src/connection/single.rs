//! One server.

use std::time::Duration;

use redis::{
    AsyncConnectionConfig, Client, Cmd,
    aio::{ConnectionManager, ConnectionManagerConfig},
};

use super::{Bulk, Connection, Connections, Nodes, RedisSettings, Replicated, info, replicated};
use crate::{StockError, stock::StockSettings};

pub(super) async fn open(settings: &StockSettings, url: &str) -> Result<Connections, StockError> {
    let client = Client::open(info(url)?)?;
    Ok(Connections {
        orders: Connection::Single(manager(&settings.redis, &client).await?),
        bulk: Bulk::Single(bulk(&settings.redis, url)?),
        replicated: Replicated::new(settings, replicated::Connections::Single(replicated_pool(settings, url)?)),
        nodes: Nodes::Fixed(vec![client]),
    })
}

/// The connection that the orders share.
pub(super) async fn manager(settings: &RedisSettings, client: &Client) -> Result<ConnectionManager, StockError> {
    let config = ConnectionManagerConfig::new()
        .set_connection_timeout(Some(settings.connect_timeout))
        .set_response_timeout(Some(settings.response_timeout))
        .set_number_of_retries(3)
        .set_min_delay(Duration::from_millis(20))
        .set_max_delay(Duration::from_millis(500));
    Ok(client.get_connection_manager_with_config(config).await?)
}

/// Connections for long reads.
pub(super) fn bulk(settings: &RedisSettings, url: &str) -> Result<deadpool_redis::Pool, StockError> {
    pool(settings, url, settings.bulk_connections, settings.response_timeout * 4)
}

/// Connections for asks that replicas must confirm.
pub(super) fn replicated_pool(settings: &StockSettings, url: &str) -> Result<deadpool_redis::Pool, StockError> {
    pool(&settings.redis, url, replicated::CONNECTIONS, replicated::response_timeout(settings))
}

/// Connections that one caller has for itself at a time.
fn pool(settings: &RedisSettings, url: &str, connections: usize, response_timeout: Duration) -> Result<deadpool_redis::Pool, StockError> {
    let config =
        AsyncConnectionConfig::new().set_connection_timeout(Some(settings.connect_timeout)).set_response_timeout(Some(response_timeout));
    let manager = deadpool_redis::Manager::new_with_config(info(url)?, config)?;
    deadpool_redis::Pool::builder(manager)
        .max_size(connections)
        .wait_timeout(Some(response_timeout))
        .runtime(deadpool_redis::Runtime::Tokio1)
        .build()
        .map_err(|error| StockError::Pool(error.to_string()))
}

/// Asks on a connection of the pool.
pub(super) async fn query<T: redis::FromRedisValue>(pool: &deadpool_redis::Pool, cmd: &Cmd) -> Result<T, StockError> {
    let mut connection = pool.get().await.map_err(|error| StockError::Pool(error.to_string()))?;
    Ok(cmd.query_async(&mut connection).await?)
}
