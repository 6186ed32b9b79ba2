//! Counts the commands that a Redis server runs, by its own statistics. A script counts, and so
//! does each command that it calls.

use std::collections::BTreeMap;

use redis::{AsyncConnectionConfig, InfoDict, RedisResult, aio::MultiplexedConnection};

/// The command that reads the statistics, and the one by which an idle connection finds out whether
/// its server is still there: it comes with time, and not with the work.
const NOT_OF_WORK: [&str; 2] = ["info", "ping"];

/// By these a process begins to listen, in a task of its own that may come to it late.
const LISTENING: [&str; 2] = ["client|setinfo", "subscribe"];

/// More of them than the few listeners of a process send, two of the first for each, are work.
const LISTENING_MAX: u64 = 16;

/// How many times the server at `url` ran each command during `work`. The commands of all clients
/// count, so the server must belong to the caller alone.
pub async fn commands<T>(
    url: &str,
    work: impl Future<Output = T>,
) -> RedisResult<(T, BTreeMap<String, u64>)> {
    // The driver gives up after half a second, which a busy machine reaches.
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(None)
        .set_response_timeout(None);
    let mut connection = redis::Client::open(url)?
        .get_multiplexed_async_connection_with_config(&config)
        .await?;
    let before = calls(&mut connection).await?;
    let done = work.await;
    let mut after = calls(&mut connection).await?;
    for command in NOT_OF_WORK {
        after.remove(command);
    }
    for (command, calls) in &mut after {
        *calls -= before.get(command).copied().unwrap_or_default();
    }
    after.retain(|command, calls| {
        let is_listening = LISTENING.contains(&&**command) && *calls <= LISTENING_MAX;
        *calls > 0 && !is_listening
    });
    Ok((done, after))
}

/// Parses lines like `cmdstat_evalsha:calls=3,usec=...`.
async fn calls(connection: &mut MultiplexedConnection) -> RedisResult<BTreeMap<String, u64>> {
    let info: InfoDict = redis::cmd("INFO")
        .arg("commandstats")
        .query_async(connection)
        .await?;
    let calls = info.keys().filter_map(|name| {
        let stats: String = info.get(name)?;
        let calls = stats
            .strip_prefix("calls=")?
            .split(',')
            .next()?
            .parse()
            .ok()?;
        Some((name.strip_prefix("cmdstat_")?.to_owned(), calls))
    });
    Ok(calls.collect())
}
