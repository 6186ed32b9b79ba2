//! Free ports that outgoing connections do not take.
//!
//! A system that is asked for "any port" returns one of the range for outgoing connections. Such a
//! connection may take the port before the server starts, or while a killed server waits for its
//! restart. We therefore use ports below the range that Linux, macOS and Windows use for outgoing
//! connections. We hand them out in sequence, from a random start, so that two processes on one
//! machine rarely collide. In a collision the second process finds the port taken and uses the next
//! one.

use std::{
    hash::{BuildHasher, RandomState},
    net::{Ipv4Addr, TcpListener},
    sync::{
        LazyLock,
        atomic::{AtomicU16, Ordering},
    },
};

/// A Redis Cluster node also listens on its port + 10000. With this range those second ports are
/// 20000 to 29999, outside our range and outside the range for outgoing connections.
const FIRST_PORT: u16 = 10_000;
const PORT_COUNT: u16 = 10_000;
const CLUSTER_BUS_OFFSET: u16 = 10_000;
const _: () = assert!(
    CLUSTER_BUS_OFFSET >= PORT_COUNT && FIRST_PORT + PORT_COUNT + CLUSTER_BUS_OFFSET <= 32_768
);

/// A port that is free on 127.0.0.1, as is the port 10000 above it. This process gets the same port
/// again only after thousands of calls.
pub async fn free_port() -> u16 {
    loop {
        let port = next();
        if is_free(port) && is_free(port + CLUSTER_BUS_OFFSET) {
            return port;
        }
        tokio::task::yield_now().await;
    }
}

fn next() -> u16 {
    static NEXT: LazyLock<AtomicU16> = LazyLock::new(|| AtomicU16::new(random_start()));
    FIRST_PORT + NEXT.fetch_add(1, Ordering::Relaxed) % PORT_COUNT
}

fn random_start() -> u16 {
    let random = RandomState::new().hash_one(std::process::id()) % u64::from(PORT_COUNT);
    u16::try_from(random).unwrap_or_default()
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
