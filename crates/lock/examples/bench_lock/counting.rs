//! Counts the messages that a client sends: what arrives at a server in one piece is one.
//!
//! A client that writes two requests at once has sent one message, and so has one that splits a request only if the pieces arrive together.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, copy},
    net::{TcpListener, TcpStream},
};

/// Stands between clients and a server on this machine.
pub struct Counter {
    pub port: u16,
    sent: Arc<AtomicU64>,
}

impl Counter {
    pub async fn start(server: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
        let port = listener.local_addr().expect("it is bound").port();
        let sent = Arc::new(AtomicU64::new(0));
        tokio::spawn(accept(listener, server, Arc::clone(&sent)));
        Self { port, sent }
    }

    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }
}

async fn accept(listener: TcpListener, server: u16, sent: Arc<AtomicU64>) {
    while let Ok((client, _)) = listener.accept().await {
        tokio::spawn(forward(client, server, Arc::clone(&sent)));
    }
}

async fn forward(client: TcpStream, server: u16, sent: Arc<AtomicU64>) {
    let Ok(server) = TcpStream::connect(("127.0.0.1", server)).await else { return };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    tokio::spawn(async move { copy(&mut from_server, &mut to_client).await });
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(length @ 1..) = from_client.read(&mut buffer).await {
        sent.fetch_add(1, Ordering::Relaxed);
        if to_server.write_all(&buffer[..length]).await.is_err() {
            return;
        }
    }
}
