//! Ports that nobody listens on, and that nobody gets by chance.
//!
//! Asking the system for "any port" answers with one that it also gives to outgoing connections. Such a connection may take the port
//! between the question and the start of the server, or while a killed server waits for its restart. We therefore take ports below the
//! range that Linux, macOS and Windows use for that, and hand them out one after the other, from a start chosen by chance so that two
//! processes at work on one machine rarely meet. When they do, the loser finds the port taken and takes the next one.

use std::{
    hash::{BuildHasher, RandomState},
    net::{Ipv4Addr, TcpListener},
    sync::{
        LazyLock,
        atomic::{AtomicU16, Ordering},
    },
};

/// A Redis Cluster node also listens on its port + 10000. With this range those second ports are 20000 to 29999: they meet neither a port
/// of ours nor the range for outgoing connections.
const FIRST: u16 = 10_000;
const COUNT: u16 = 10_000;
const BUS_OFFSET: u16 = 10_000;
const _: () = assert!(BUS_OFFSET >= COUNT && FIRST + COUNT + BUS_OFFSET <= 32_768);

/// A port on which nobody listens on 127.0.0.1, nor on the port 10000 above it. This process does not get it
/// again before it has asked some thousand times.
pub async fn free_port() -> u16 {
    loop {
        let port = next();
        if is_free(port) && is_free(port + BUS_OFFSET) {
            return port;
        }
        tokio::task::yield_now().await;
    }
}

fn next() -> u16 {
    static NEXT: LazyLock<AtomicU16> = LazyLock::new(|| AtomicU16::new(by_chance()));
    FIRST + NEXT.fetch_add(1, Ordering::Relaxed) % COUNT
}

fn by_chance() -> u16 {
    let chance = RandomState::new().hash_one(std::process::id()) % u64::from(COUNT);
    u16::try_from(chance).unwrap_or_default()
}

fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_port_is_handed_out_once() {
        let mut ports = Vec::new();
        for _ in 0..100 {
            ports.push(free_port().await);
        }
        let distinct: std::collections::HashSet<_> = ports.iter().collect();
        assert_eq!(distinct.len(), 100);
    }
}
