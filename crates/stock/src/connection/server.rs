//! Checks whether a Redis server can be trusted with stock.

use redis::Value;

use super::Connection;
use crate::StockError;

/// The oldest major version whose scripts can declare that they only read, or that they may run when
/// memory is short (`#!lua flags=...`).
const OLDEST_MAJOR: u32 = 7;

/// Refuses a server that is too old, that evicts keys, or that is a replica. Warns of one that does
/// not persist or has no bound of memory. Returns the number of masters.
pub(super) async fn check(connection: &Connection) -> Result<u16, StockError> {
    let reply: Value = redis::cmd("INFO")
        .query_async(&mut connection.clone())
        .await?;
    let nodes = match reply {
        Value::Map(nodes) => nodes
            .into_iter()
            .map(|(name, info)| (text(&name), text(&info)))
            .collect(),
        single => vec![("REDIS_URL".to_owned(), text(&single))],
    };
    for (name, info) in &nodes {
        check_node(name, info)?;
    }
    Ok(u16::try_from(nodes.len()).unwrap_or(u16::MAX))
}

fn text(value: &Value) -> String {
    match value {
        Value::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::SimpleString(text) => text.clone(),
        Value::VerbatimString { text, .. } => text.clone(),
        _ => String::new(),
    }
}

fn check_node(name: &str, info: &str) -> Result<(), StockError> {
    let field = |wanted: &str| {
        info.lines()
            .filter_map(|line| line.split_once(':'))
            .find(|(field, _)| *field == wanted)
            .map_or("", |(_, value)| value.trim())
    };
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
    use super::check_node;

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
}
