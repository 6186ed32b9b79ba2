//! Free ports that outgoing connections do not take.
//!
//! A system that is asked for "any port" returns one of the range for outgoing connections. Such a
//! connection may take the port before the server starts, or while a killed server waits for its
//! restart. We therefore use ports below the range that Linux, macOS and Windows use for outgoing
//! connections.
//!
//! Another process that starts servers could take the port of a killed server too. So each process
//! claims whole blocks of ports by a lock on a file, which the system releases when the process
//! ends. Without such files, or when all blocks are claimed, a process uses a block that it shares;
//! in a collision it finds the port taken and uses the next one.

use std::{
    fs::{self, File, TryLockError},
    hash::{BuildHasher, RandomState},
    io,
    net::{Ipv4Addr, TcpListener},
    sync::{LazyLock, Mutex, PoisonError},
};

/// A Redis Cluster node also listens on its port + 10000. With this range those second ports are
/// 20000 to 29999, outside our range and outside the range for outgoing connections.
const FIRST_PORT: u16 = 10_000;
const BLOCK_COUNT: u16 = 250;
const BLOCK_PORTS: u16 = 40;
const CLUSTER_BUS_OFFSET: u16 = 10_000;
const _: () = assert!(
    CLUSTER_BUS_OFFSET >= BLOCK_COUNT * BLOCK_PORTS
        && FIRST_PORT + BLOCK_COUNT * BLOCK_PORTS + CLUSTER_BUS_OFFSET <= 32_768
);

/// A port that is free on 127.0.0.1, as is the port 10000 above it. This process gets the same port
/// again only after thousands of calls.
pub async fn free_port() -> u16 {
    loop {
        if let Some(port) = next_free() {
            return port;
        }
        tokio::task::yield_now().await;
    }
}

/// [`free_port`] for code that cannot wait.
pub fn free_port_now() -> u16 {
    loop {
        if let Some(port) = next_free() {
            return port;
        }
        std::thread::yield_now();
    }
}

/// The next port of this process. `None`: it is taken.
fn next_free() -> Option<u16> {
    static PORTS: LazyLock<Mutex<Ports>> = LazyLock::new(|| Mutex::new(Ports::new()));
    let port = PORTS.lock().unwrap_or_else(PoisonError::into_inner).next();
    (is_free(port) && is_free(port + CLUSTER_BUS_OFFSET)).then_some(port)
}

/// The ports of this process.
struct Ports {
    /// The block that ports are handed out from, and how many have been.
    block: u16,
    used: u16,
    /// Locks of the claimed blocks, held until the process ends.
    claims: Vec<File>,
}

impl Ports {
    fn new() -> Self {
        let random = RandomState::new().hash_one(std::process::id()) % u64::from(BLOCK_COUNT);
        Self {
            block: u16::try_from(random).unwrap_or_default(),
            used: BLOCK_PORTS,
            claims: Vec::new(),
        }
    }

    fn next(&mut self) -> u16 {
        if self.used == BLOCK_PORTS {
            self.begin_block();
        }
        self.used += 1;
        FIRST_PORT + self.block * BLOCK_PORTS + self.used - 1
    }

    /// The next block that no process has claimed, or simply the next one.
    fn begin_block(&mut self) {
        self.used = 0;
        for _ in 0..BLOCK_COUNT {
            self.block = (self.block + 1) % BLOCK_COUNT;
            match claim(self.block) {
                Ok(Some(claim)) => {
                    self.claims.push(claim);
                    return;
                }
                Ok(None) => {}
                Err(_) => return,
            }
        }
        self.block = (self.block + 1) % BLOCK_COUNT;
    }
}

/// The lock of a block, or `None` if a process has it, be it this one.
fn claim(block: u16) -> io::Result<Option<File>> {
    let folder = std::env::temp_dir().join("stockade-ports");
    fs::create_dir_all(&folder)?;
    let file = File::create(folder.join(block.to_string()))?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error),
    }
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
        for _ in 0..50 {
            ports.extend([free_port().await, free_port_now()]);
        }
        let distinct: std::collections::HashSet<_> = ports.iter().collect();
        assert_eq!(distinct.len(), 100);
    }

    /// As two processes are: their locks are of different open files.
    #[test]
    fn a_block_is_claimed_by_one_process() {
        let (mut one, mut other) = (Ports::new(), Ports::new());
        other.block = one.block;
        let ports = |of: &mut Ports| (0..100).map(|_| of.next()).collect::<Vec<_>>();
        let of_one = ports(&mut one);
        assert!(ports(&mut other).iter().all(|port| !of_one.contains(port)));
    }
}
