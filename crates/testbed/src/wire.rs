//! One short question to a server on this machine, over TCP.
//!
//! For servers that are asked only whether they are ready: a client library for each would be more to build than to use.

use std::{io, net::Ipv4Addr, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

/// Short, since whoever asks asks again: ZooKeeper never answers a question that came between its taking the port and its being ready.
const ANSWER_WITHIN: Duration = Duration::from_millis(200);

/// What the server sends until it closes the connection or has sent this many bytes; nothing, if that takes too long.
pub(crate) async fn ask(port: u16, question: &str, at_most: u64) -> Option<Vec<u8>> {
    timeout(ANSWER_WITHIN, exchange(port, question, at_most))
        .await
        .ok()?
        .ok()
}

async fn exchange(port: u16, question: &str, at_most: u64) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
    stream.write_all(question.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.take(at_most).read_to_end(&mut answer).await?;
    Ok(answer)
}
