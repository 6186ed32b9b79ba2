//! What Redis servers say of themselves, for operators who prepare a sale: persistence, memory,
//! replicas and clock.
//!
//! It opens connections of its own. A server that [`crate::Stock::connect`] would refuse is
//! described like any other.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use redis::{AsyncConnectionConfig, Client, Value, aio::MultiplexedConnection};

use crate::{RedisSettings, StockError, connection};

/// A server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedisReport {
    /// `HOST:PORT`.
    pub server: String,
    /// `redis_version`.
    pub version: String,
    /// Whether it is a master.
    pub is_master: bool,
    /// `appendfsync`: `always`, `everysec` or `no`. `None`: it keeps no log of its writes.
    pub appendfsync: Option<String>,
    /// Whether it could write its log, and its last snapshot.
    pub writes_ok: bool,
    /// `maxmemory_policy`.
    pub eviction: String,
    /// Bytes in use.
    pub used_bytes: u64,
    /// Bytes that it may use; 0 is no bound.
    pub max_bytes: u64,
    /// Replicas that follow it.
    pub replicas: Vec<ReplicaReport>,
    /// Its time minus the time of this machine. `None`: it does not say.
    pub clock_difference_ms: Option<i64>,
}

/// A replica, as its master sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplicaReport {
    /// `HOST:PORT`.
    pub server: String,
    /// Whether it follows the stream of writes.
    pub is_online: bool,
    /// Bytes of that stream which it has not confirmed.
    pub behind_bytes: u64,
    /// Seconds since its last confirmation. A healthy replica confirms every second.
    pub silent_seconds: Option<u64>,
}

/// Asks every master that the URL leads to: one server, the masters of a cluster, or the master
/// that Sentinel names.
pub async fn inspect(settings: &RedisSettings) -> Result<Vec<RedisReport>, StockError> {
    let mut reports = Vec::new();
    for client in connection::masters(settings).await? {
        reports.push(inspect_server(settings, &client).await?);
    }
    Ok(reports)
}

async fn inspect_server(
    settings: &RedisSettings,
    client: &Client,
) -> Result<RedisReport, StockError> {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(settings.connect_timeout))
        .set_response_timeout(Some(settings.response_timeout));
    let mut connection = client
        .get_multiplexed_async_connection_with_config(&config)
        .await?;
    let clock_difference_ms = clock_difference(&mut connection).await;
    let info: String = redis::cmd("INFO").query_async(&mut connection).await?;
    let server = client.get_connection_info().addr().to_string();
    let appendfsync = match connection::field(&info, "aof_enabled") {
        "1" => Some(appendfsync(&mut connection).await),
        _ => None,
    };
    Ok(RedisReport {
        appendfsync,
        clock_difference_ms,
        ..read(server, &info)
    })
}

/// Some services do not let their customers read the configuration.
async fn appendfsync(connection: &mut MultiplexedConnection) -> String {
    let mut cmd = redis::cmd("CONFIG");
    cmd.arg("GET").arg("appendfsync");
    let pair: Result<Vec<String>, _> = cmd.query_async(connection).await;
    let value = pair.ok().and_then(|pair| pair.into_iter().nth(1));
    value.unwrap_or_else(|| "unknown".into())
}

/// The time of the server minus ours in the middle of the round trip.
async fn clock_difference(connection: &mut MultiplexedConnection) -> Option<i64> {
    let before = now();
    let reply: Value = redis::cmd("TIME").query_async(connection).await.ok()?;
    let middle = (before + now()) / 2;
    let (seconds, micros): (u64, u64) = redis::from_redis_value(reply).ok()?;
    let theirs = Duration::from_secs(seconds) + Duration::from_micros(micros);
    let ms = |time: Duration| i64::try_from(time.as_millis()).ok();
    Some(ms(theirs)? - ms(middle)?)
}

fn now() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}

fn read(server: String, info: &str) -> RedisReport {
    let field = |wanted| connection::field(info, wanted);
    let number = |wanted| field(wanted).parse().unwrap_or(0);
    let written: u64 = number("master_repl_offset");
    let replicas =
        (0..).map_while(|at| replica(connection::field(info, &format!("slave{at}")), written));
    RedisReport {
        server,
        version: field("redis_version").to_owned(),
        is_master: field("role") == "master",
        appendfsync: None,
        writes_ok: ["aof_last_write_status", "rdb_last_bgsave_status"]
            .iter()
            .all(|name| field(name) != "err"),
        eviction: field("maxmemory_policy").to_owned(),
        used_bytes: number("used_memory"),
        max_bytes: number("maxmemory"),
        replicas: replicas.collect(),
        clock_difference_ms: None,
    }
}

/// `ip=10.0.0.5,port=6379,state=online,offset=120,lag=1`
fn replica(text: &str, written: u64) -> Option<ReplicaReport> {
    let part = |wanted| {
        text.split(',')
            .filter_map(|part| part.split_once('='))
            .find(|(name, _)| *name == wanted)
            .map(|(_, value)| value)
    };
    let confirmed = part("offset").and_then(|offset| offset.parse().ok());
    Some(ReplicaReport {
        server: format!("{}:{}", part("ip")?, part("port")?),
        is_online: part("state") == Some("online"),
        behind_bytes: written.saturating_sub(confirmed.unwrap_or(0)),
        silent_seconds: part("lag").and_then(|lag| lag.parse().ok()),
    })
}

#[cfg(test)]
mod tests {
    use super::read;

    #[test]
    fn a_report_has_what_the_server_says() {
        let info = "redis_version:7.0.15\r\nrole:master\r\nmaxmemory:100\r\nused_memory:40\r\nmaxmemory_policy:noeviction\r\n\
            master_repl_offset:500\r\nslave0:ip=a,port=1,state=online,offset=500,lag=0\r\nslave1:ip=b,port=2,state=wait_bgsave,offset=0,lag=0\r\n";
        let report = read("h:1".into(), info);
        assert!(report.is_master && report.writes_ok);
        let failing = format!("{info}aof_last_write_status:err\r\n");
        assert!(!read("h:1".into(), &failing).writes_ok);
        assert_eq!((report.used_bytes, report.max_bytes), (40, 100));
        let replicas: Vec<_> = report
            .replicas
            .iter()
            .map(|replica| (&*replica.server, replica.is_online, replica.behind_bytes))
            .collect();
        assert_eq!(replicas, [("a:1", true, 0), ("b:2", false, 500)]);
    }
}
