//! What Redis servers report of themselves: whether they can be trusted with stock, and how full
//! they are.

use redis::{ErrorKind, RedisError, RedisResult, Value, aio::ConnectionLike};

use super::{Connection, Operators};
use crate::StockError;

/// The oldest major version whose scripts can declare that they only read, or that they may run
/// when memory is short (`#!lua flags=...`).
const OLDEST_MAJOR: u32 = 7;

/// Refuses a server that is too old, that evicts keys, or that is a replica. Warns of one that does
/// not persist or has no bound of memory. Returns the number of masters.
pub(super) async fn check(connection: &Connection) -> Result<u16, StockError> {
    let reply: Value = redis::cmd("INFO")
        .query_async(&mut connection.clone())
        .await?;
    let nodes = by_node(reply, "REDIS_URL");
    for (name, info) in &nodes {
        check_node(name, info)?;
    }
    Ok(u16::try_from(nodes.len()).unwrap_or(u16::MAX))
}

/// Refuses a server that cannot take orders because it is a replica, or still reads its file.
/// Returns its [`run_id`]. Each read of a pool asks for this first. All that `INFO` has would cost the server
/// three times as much.
pub(super) async fn expect_master(connection: &mut impl ConnectionLike) -> RedisResult<String> {
    let mut cmd = redis::cmd("INFO");
    let reply: Value = cmd
        .arg(&["server", "replication", "persistence"])
        .query_async(connection)
        .await?;
    let info = text(&reply);
    let refused = |why| Err(RedisError::from((ErrorKind::Client, why)));
    match (field(&info, "role"), field(&info, "loading")) {
        ("master", "0") => Ok(field(&info, "run_id").to_owned()),
        ("master", _) => refused("the server still reads its file"),
        _ => refused("the server is a replica"),
    }
}

/// Which server replies. It has another name after each start.
pub(super) async fn run_id(connection: &mut impl ConnectionLike) -> RedisResult<String> {
    let mut cmd = redis::cmd("INFO");
    let reply: Value = cmd.arg("server").query_async(connection).await?;
    Ok(field(&text(&reply), "run_id").to_owned())
}

/// The error of a request that a time limit has ended.
pub(crate) fn no_reply() -> RedisError {
    let kind = std::io::ErrorKind::TimedOut;
    std::io::Error::new(kind, "no reply from Redis in time").into()
}

/// The reply to `INFO` of each server. One server replies without a name, and gets this one.
pub(super) fn by_node(reply: Value, name: &str) -> Vec<(String, String)> {
    match reply {
        Value::Map(nodes) => nodes
            .into_iter()
            .map(|(name, info)| (text(&name), text(&info)))
            .collect(),
        single => vec![(name.to_owned(), text(&single))],
    }
}

/// Memory of one Redis server that holds stock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerMemory {
    /// Address of the server: `HOST:PORT`.
    pub server: String,
    /// Bytes that it uses.
    pub used_bytes: u64,
    /// Bytes that it may use; 0 is no bound. At the bound it refuses new orders.
    pub max_bytes: u64,
}

/// Reads the memory of every master. `name` is the address of a single server.
pub(crate) async fn memory(
    operators: &Operators,
    name: &str,
) -> Result<Vec<ServerMemory>, StockError> {
    let reply = operators.query(redis::cmd("INFO").arg("memory")).await?;
    by_node(reply, name)
        .into_iter()
        .map(|(server, info)| node_memory(server, &info))
        .collect()
}

/// Reads the history of every master: the id of the replication that it leads, in order.
pub(crate) async fn histories(
    operators: &Operators,
    name: &str,
) -> Result<Vec<String>, StockError> {
    let mut cmd = redis::cmd("INFO");
    let reply = operators.query(cmd.arg("replication")).await?;
    let mut histories: Vec<_> = by_node(reply, name)
        .iter()
        .map(|(_, info)| field(info, "master_replid").to_owned())
        .collect();
    histories.sort_unstable();
    Ok(histories)
}

fn node_memory(server: String, info: &str) -> Result<ServerMemory, StockError> {
    let bytes = |wanted| {
        field(info, wanted)
            .parse()
            .map_err(|_| StockError::Unreadable(format!("expected {wanted} in INFO of {server}")))
    };
    Ok(ServerMemory {
        used_bytes: bytes("used_memory")?,
        max_bytes: bytes("maxmemory")?,
        server,
    })
}

/// A field of a reply to `INFO`; empty if there is none.
pub(crate) fn field<'a>(info: &'a str, wanted: &str) -> &'a str {
    info.lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(field, _)| *field == wanted)
        .map_or("", |(_, value)| value.trim())
}

/// The text of a reply; empty if it has none.
pub(super) fn text(value: &Value) -> String {
    match value {
        Value::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::SimpleString(text) => text.clone(),
        Value::VerbatimString { text, .. } => text.clone(),
        _ => String::new(),
    }
}

fn check_node(name: &str, info: &str) -> Result<(), StockError> {
    let field = |wanted| field(info, wanted);
    let version = field("redis_version");
    let major = version
        .split('.')
        .next()
        .and_then(|major| major.parse::<u32>().ok());
    if major.is_none_or(|major| major < OLDEST_MAJOR) {
        return refuse(
            name,
            format!("redis_version is {version:?}, and Stockade needs {OLDEST_MAJOR}.0 or newer"),
        );
    }
    let policy = field("maxmemory_policy");
    if policy != "noeviction" {
        return refuse(
            name,
            format!("maxmemory-policy is {policy:?}, so it may evict stock; set it to noeviction"),
        );
    }
    if field("role") == "slave" {
        return refuse(
            name,
            "replicaof is set: it is a replica and cannot be written to; name its master".into(),
        );
    }
    if field("maxmemory") == "0" {
        tracing::warn!(
            server = name,
            "maxmemory is 0: with too many orders the system ends this server, where it could refuse new ones; set it"
        );
    }
    if field("aof_enabled") == "0" {
        tracing::warn!(
            server = name,
            "appendonly is no: a crash of this server loses orders that were acknowledged as accepted"
        );
    }
    Ok(())
}

fn refuse(name: &str, why: String) -> Result<(), StockError> {
    Err(StockError::Unsuitable(format!(
        "refusing the Redis server {name}: {why}"
    )))
}

#[cfg(test)]
mod tests {
    use super::{ServerMemory, check_node, node_memory};

    fn info(version: &str, policy: &str, role: &str) -> String {
        format!(
            "# Server\r\nredis_version:{version}\r\nmaxmemory_policy:{policy}\r\nrole:{role}\r\naof_enabled:1\r\n"
        )
    }

    #[test]
    fn a_refusal_names_the_setting_of_the_server() {
        assert!(check_node("n", &info("7.0.0", "noeviction", "master")).is_ok());
        assert!(check_node("n", &info("10.1.0", "noeviction", "master")).is_ok());
        let table = [
            (info("6.2.14", "noeviction", "master"), "redis_version"),
            (info("", "noeviction", "master"), "redis_version"),
            (info("7.0.0", "allkeys-lru", "master"), "maxmemory-policy"),
            (info("7.0.0", "volatile-ttl", "master"), "maxmemory-policy"),
            (info("7.0.0", "noeviction", "slave"), "replicaof"),
        ];
        for (info, setting) in table {
            assert!(
                check_node("n", &info)
                    .unwrap_err()
                    .to_string()
                    .contains(setting),
                "{info}"
            );
        }
    }

    #[test]
    fn memory_is_read_from_the_fields_of_the_server() {
        let info = "# Memory\r\nused_memory:872024\r\nused_memory_rss:1\r\nmaxmemory:1073741824\r\nmaxmemory_policy:noeviction\r\n";
        let expected = ServerMemory {
            server: "n:1".into(),
            used_bytes: 872_024,
            max_bytes: 1 << 30,
        };
        assert_eq!(node_memory("n:1".into(), info).unwrap(), expected);
        let error = node_memory("n:1".into(), "# Memory\r\n").unwrap_err();
        assert!(error.to_string().contains("used_memory"), "{error}");
    }
}
