//! Reads by operators and auditors: snapshots of segments, and outboxes that are read on demand.
//!
//! They take connections from a pool of their own, so that an outbox of a megabyte, or an auditor
//! who inspects a thousand segments, never stands in front of an order. Before it lends a
//! connection, the pool asks whether the server is still a master: a replica that an address led to
//! before a failover would answer with old data. That is one more round trip, which a read by an
//! operator can afford and the hot path cannot. A cluster has one multiplexed client instead, whose
//! replacement after a failover `cluster.rs` describes.
//! `docs/decisions/2026-11-22-the-hot-path-shares-one-connection.md` has the reasons.

use std::sync::Arc;

use deadpool_redis::{Hook, HookError};
use redis::{Cmd, Value, aio::ConnectionLike};

use super::{
    Target,
    pool::{Limits, Pool, give_back},
    server,
};
use crate::{RedisSettings, StockError};

/// Connections of the pool of one server.
const CONNECTIONS_MAX: usize = 4;

/// Long reads may take longer than an order: a multiple of the time limit for a reply.
const TIMEOUT_FACTOR: u32 = 4;

/// The pool of one address.
pub(super) fn pool(settings: &RedisSettings, target: &Arc<Target>) -> Result<Pool, StockError> {
    let limits = Limits {
        connect: settings.connect_timeout,
        recycle: settings.response_timeout,
        response: settings.response_timeout * TIMEOUT_FACTOR,
    };
    Pool::new(target, CONNECTIONS_MAX, limits, |pool| {
        pool.post_create(asks_for_a_master())
            .pre_recycle(asks_for_a_master())
    })
}

fn asks_for_a_master() -> Hook {
    Hook::async_fn(|connection, _| {
        Box::pin(async move {
            let asked = server::expect_master(connection).await;
            asked.map(drop).map_err(HookError::Backend)
        })
    })
}

/// Runs one command on a connection of the pool.
pub(super) async fn query(pool: &Pool, cmd: &Cmd) -> Result<Value, StockError> {
    let mut connection = pool.get().await?;
    let reply = connection.req_packed_command(cmd).await;
    give_back(connection, reply.is_ok());
    Ok(reply?.extract_error()?)
}
