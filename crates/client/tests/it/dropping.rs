//! A TCP proxy that passes requests on and drops answers.

use std::{
    collections::VecDeque,
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional},
    net::{TcpListener, TcpStream},
};

use crate::server::Server;

/// What the proxy does with the answers of one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answers {
    /// They pass.
    Pass,
    /// The connection is cut when the server has answered.
    Drop,
    /// The connection is cut in the middle of the answer.
    Tear,
}

/// The proxy. After the connections of its plan, all others pass.
#[derive(Debug)]
pub struct Dropping {
    pub url: String,
    plan: Arc<Mutex<VecDeque<Answers>>>,
}

impl Dropping {
    pub async fn before(server: &Server, plan: impl IntoIterator<Item = Answers>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let target: SocketAddr = server.url["http://".len()..].parse().unwrap();
        let plan = Arc::new(Mutex::new(plan.into_iter().collect::<VecDeque<_>>()));
        let left = Arc::clone(&plan);
        drop(tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let answers = left.lock().unwrap().pop_front().unwrap_or(Answers::Pass);
                drop(tokio::spawn(connection(client, target, answers)));
            }
        }));
        Self { url, plan }
    }

    /// Whether every connection of the plan was made.
    pub fn is_done(&self) -> bool {
        self.plan.lock().unwrap().is_empty()
    }
}

async fn connection(mut client: TcpStream, target: SocketAddr, answers: Answers) {
    let mut server = TcpStream::connect(target).await.unwrap();
    if answers == Answers::Pass {
        let _ = copy_bidirectional(&mut client, &mut server).await;
        return;
    }
    let (mut from_client, mut to_client) = client.split();
    let (mut from_server, mut to_server) = server.split();
    let mut answer = [0; 1024];
    // An answer proves that the server has done what was requested. Until then requests pass.
    let bytes = tokio::select! {
        bytes = from_server.read(&mut answer) => bytes.unwrap(),
        _ = tokio::io::copy(&mut from_client, &mut to_server) => 0,
    };
    if answers == Answers::Tear {
        // The client may have given up.
        let _ = to_client.write_all(&answer[..bytes / 2]).await;
    }
}
