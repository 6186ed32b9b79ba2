//! Commands that a Redis server runs, as it counts them itself. A script counts, and so does every command that it calls.

use std::collections::BTreeMap;

use redis::{InfoDict, RedisResult, aio::MultiplexedConnection};

/// How often the server at `url` ran each command while `work` was done, by anybody: the server must be the caller's own.
pub async fn commands<T>(
    url: &str,
    work: impl Future<Output = T>,
) -> RedisResult<(T, BTreeMap<String, u64>)> {
    let mut connection = redis::Client::open(url)?
        .get_multiplexed_async_connection()
        .await?;
    let before = calls(&mut connection).await?;
    let done = work.await;
    let mut after = calls(&mut connection).await?;
    // Our own.
    after.remove("info");
    for (command, calls) in &mut after {
        *calls -= before.get(command).copied().unwrap_or_default();
    }
    after.retain(|_, calls| *calls > 0);
    Ok((done, after))
}

/// `cmdstat_evalsha:calls=3,usec=...`
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
