//! The masters of a cluster, each with slots that it serves.
//!
//! A script without keys runs at any server, so it does not show whether the cluster serves the
//! slots of one. A caller that asks every master needs a key of each.

use std::ops::RangeInclusive;

use redis::{Cmd, Value, cluster_routing::Slot};

use super::server;
use crate::StockError;

/// A master, and slots that it serves. It may serve more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Shard {
    /// `HOST:PORT`, as the cluster names it.
    pub server: String,
    slots: RangeInclusive<u16>,
}

impl Shard {
    /// Whether a key is in one of the slots.
    pub(crate) fn has(&self, key: &str) -> bool {
        let wanted = Slot::for_key(key);
        let mut slots = self.slots.clone();
        slots.any(|number| Slot::new(number) == Some(wanted))
    }
}

/// Asks any node of a cluster for [`read`].
pub(crate) fn command() -> Cmd {
    let mut cmd = redis::cmd("CLUSTER");
    cmd.arg("SLOTS");
    cmd
}

/// The reply to [`command`]: each master that serves a slot, once. `asked` is the address of the
/// node: a cluster may leave hosts out, and means the one that its client uses already.
pub(crate) fn read(reply: Value, asked: &str) -> Result<Vec<Shard>, StockError> {
    let host = asked.rsplit_once(':').map_or(asked, |(host, _)| host);
    let Value::Array(rows) = reply else {
        return Err(unreadable(&reply));
    };
    let mut shards: Vec<Shard> = Vec::new();
    for row in rows {
        let shard = shard(&row, host).ok_or_else(|| unreadable(&row))?;
        if !shards.iter().any(|known| known.server == shard.server) {
            shards.push(shard);
        }
    }
    Ok(shards)
}

/// First slot, last slot, the master, and then its replicas, which do not matter here.
fn shard(row: &Value, unnamed: &str) -> Option<Shard> {
    let Value::Array(row) = row else { return None };
    let [
        Value::Int(first),
        Value::Int(last),
        Value::Array(master),
        ..,
    ] = row.as_slice()
    else {
        return None;
    };
    let [host, Value::Int(port), ..] = master.as_slice() else {
        return None;
    };
    let host = Some(server::text(host)).filter(|host| !host.is_empty());
    Some(Shard {
        server: format!("{}:{port}", host.as_deref().unwrap_or(unnamed)),
        slots: u16::try_from(*first).ok()?..=u16::try_from(*last).ok()?,
    })
}

fn unreadable(found: &Value) -> StockError {
    StockError::Unreadable(format!("expected the slots of a cluster, found {found:?}"))
}

#[cfg(test)]
mod tests {
    use redis::Value;

    use super::read;

    fn row(first: i64, last: i64, port: i64) -> Value {
        let node = |port| {
            Value::Array(vec![
                Value::BulkString(b"10.0.0.5".to_vec()),
                Value::Int(port),
                Value::BulkString(b"id".to_vec()),
            ])
        };
        Value::Array(vec![
            Value::Int(first),
            Value::Int(last),
            node(port),
            node(port + 1000),
        ])
    }

    #[test]
    fn each_master_is_named_once_with_slots_of_its_own() {
        let reply = Value::Array(vec![
            row(0, 0, 7000),
            row(1, 8191, 7001),
            row(8192, 8192, 7000),
            row(8193, 16_383, 7002),
        ]);
        let shards = read(reply, "10.0.0.9:7009").unwrap();
        let servers: Vec<_> = shards.iter().map(|shard| &*shard.server).collect();
        assert_eq!(servers, ["10.0.0.5:7000", "10.0.0.5:7001", "10.0.0.5:7002"]);
        // The slot of this text is 12,739 (cluster specification, "Keys hash tags").
        let owners = shards.iter().map(|shard| shard.has("{123456789}x"));
        assert_eq!(owners.collect::<Vec<_>>(), [false, false, true]);
    }

    #[test]
    fn another_reply_is_an_error() {
        for reply in [
            Value::Nil,
            Value::Array(vec![Value::Nil]),
            Value::Array(vec![row(0, 70_000, 7000)]),
        ] {
            assert!(read(reply, "h:1").is_err());
        }
    }

    #[test]
    fn a_master_without_a_host_is_at_the_one_that_was_asked() {
        let master = Value::Array(vec![Value::Nil, Value::Int(7001)]);
        let row = Value::Array(vec![Value::Int(0), Value::Int(16_383), master]);
        let shards = read(Value::Array(vec![row]), "10.0.0.9:7000").unwrap();
        assert_eq!(shards[0].server, "10.0.0.9:7001");
    }
}
