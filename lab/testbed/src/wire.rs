//! One short request to a server on this machine, over TCP.
//!
//! For servers that we only check for readiness: a client library for each would cost more to build
//! than it gives.

use std::{io, net::Ipv4Addr, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

/// Short, because callers poll: ZooKeeper never answers a request that arrived after it had bound
/// its port and before it was ready.
const RESPONSE_TIMEOUT: Duration = Duration::from_millis(200);

/// Sends `request` and reads until the server closes the connection or has sent `bytes_max` bytes.
/// Returns `None` on an error or after the timeout.
pub(crate) async fn exchange(port: u16, request: &str, bytes_max: u64) -> Option<Vec<u8>> {
    timeout(RESPONSE_TIMEOUT, try_exchange(port, request, bytes_max))
        .await
        .ok()?
        .ok()
}

async fn try_exchange(port: u16, request: &str, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
    stream.write_all(request.as_bytes()).await?;
    let mut response = Vec::new();
    stream.take(bytes_max).read_to_end(&mut response).await?;
    Ok(response)
}
