//! One server.

use std::{sync::Arc, time::Duration};

use redis::{AsyncConnectionConfig, Client, Cmd, FromRedisValue, RedisResult, Value};

use super::{
    Bulk, Connection, Connections, Nodes, Operators, Reconnecting, Replicated, Target, info,
    operators,
    pool::{Limits, Pool},
    replicated,
};
use crate::{RedisSettings, StockError, StockSettings};

pub(super) async fn open(settings: &StockSettings, url: &str) -> Result<Connections, StockError> {
    let target = Target::new(Client::open(info(&settings.redis, url)?)?);
    Ok(Connections {
        orders: Connection::Single(orders(&settings.redis, &target).await?),
        bulk: Bulk::Single(bulk(&settings.redis, &target).await?),
        operators: Operators::Single(operators::pool(&settings.redis, &target)?),
        replicated: Replicated::new(
            settings,
            replicated::Connections::Single(replicated_pool(settings, &target)?),
        ),
        nodes: Nodes::Single(target),
        masters: 1,
    })
}

/// The connection that the orders share.
pub(super) async fn orders(
    settings: &RedisSettings,
    target: &Arc<Target>,
) -> Result<Reconnecting, StockError> {
    open_at(settings, target, settings.response_timeout).await
}

/// The connection for the recorder's long reads, which its readers share. A pool would check a
/// connection before it lends it, and each check would wait for a flush of the server's file.
pub(super) async fn bulk(
    settings: &RedisSettings,
    target: &Arc<Target>,
) -> Result<Reconnecting, StockError> {
    open_at(settings, target, settings.response_timeout * 4).await
}

async fn open_at(
    settings: &RedisSettings,
    target: &Arc<Target>,
    response_timeout: Duration,
) -> Result<Reconnecting, StockError> {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(settings.connect_timeout))
        .set_response_timeout(Some(response_timeout));
    Ok(Reconnecting::open_at(target, config).await?)
}

/// Connections for reservations that replicas must confirm. One caller at a time uses each.
pub(super) fn replicated_pool(
    settings: &StockSettings,
    target: &Arc<Target>,
) -> Result<Pool, StockError> {
    let limits = Limits {
        connect: settings.redis.connect_timeout,
        recycle: settings.redis.response_timeout,
        response: replicated::response_timeout(settings),
    };
    Pool::new(target, replicated::CONNECTIONS_MAX, limits, |pool| pool)
}

pub(super) async fn query<T: FromRedisValue>(
    connection: &Reconnecting,
    cmd: &Cmd,
) -> RedisResult<T> {
    let reply = connection.command(cmd).await?.extract_error()?;
    Ok(redis::from_redis_value(reply)?)
}

/// Sends all commands as one pipeline. A refusal is a reply.
pub(super) async fn query_each(connection: &Reconnecting, cmds: &[Cmd]) -> RedisResult<Vec<Value>> {
    let mut pipeline = redis::pipe();
    for cmd in cmds {
        pipeline.add_command(cmd.clone());
    }
    connection.commands(&pipeline, 0, cmds.len()).await
}
