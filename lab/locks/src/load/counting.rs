//! Counts the messages that a client sends. A piece of data that one read of the proxy returns is
//! one message.
//!
//! Two requests that a client writes together therefore count once. A request in two pieces also
//! counts once if the pieces arrive together.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use anyhow::Result;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, copy},
    net::{TcpListener, TcpStream},
    task::{JoinHandle, JoinSet},
};

/// A proxy between clients and a server on this machine. Dropping it closes the connections.
pub(super) struct Counter {
    pub(super) port: u16,
    sent: Arc<AtomicU64>,
    accepting: JoinHandle<()>,
}

impl Counter {
    pub(super) async fn start(server: u16) -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let port = listener.local_addr()?.port();
        let sent = Arc::new(AtomicU64::new(0));
        let accepting = tokio::spawn(accept(listener, server, Arc::clone(&sent)));
        Ok(Self {
            port,
            sent,
            accepting,
        })
    }

    /// Number of messages sent so far.
    pub(super) fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }
}

impl Drop for Counter {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// Number of messages sent through all of these proxies so far.
pub(super) fn total_sent(counters: &[Counter]) -> u64 {
    counters.iter().map(Counter::sent).sum()
}

/// Accepts connections. Their tasks belong to this task and end with it.
async fn accept(listener: TcpListener, server: u16, sent: Arc<AtomicU64>) {
    let mut connections = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        connections.spawn(forward(client, server, Arc::clone(&sent)));
        while connections.try_join_next().is_some() {}
    }
}

async fn forward(client: TcpStream, server: u16, sent: Arc<AtomicU64>) {
    let Ok(server) = TcpStream::connect(("127.0.0.1", server)).await else {
        return;
    };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let count = async {
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(length @ 1..) = from_client.read(&mut buffer).await {
            sent.fetch_add(1, Ordering::Relaxed);
            if to_server.write_all(&buffer[..length]).await.is_err() {
                return;
            }
        }
    };
    // The end of one direction ends the connection.
    tokio::select! {
        () = count => {}
        _ = copy(&mut from_server, &mut to_client) => {}
    }
}
