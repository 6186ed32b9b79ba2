//! One short request to a server on this machine, over TCP.
//!
//! For servers that we only check for readiness: a client library for each would cost more to build
//! than it gives.

use std::{
    hash::{BuildHasher, RandomState},
    io,
    net::Ipv4Addr,
    time::Duration,
};

use local::Readiness;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::JoinSet,
    time::timeout,
};

/// ZooKeeper never answers a request that arrived after it had bound its port and before it was
/// ready.
const REPEAT_AFTER: Duration = Duration::from_millis(200);
/// The first attempt has two seconds: on a busy machine each answer takes longer than one interval.
const ATTEMPTS_MAX: usize = 10;

/// A name that no server has had before.
pub(crate) fn new_name() -> String {
    format!(
        "testbed-{:016x}",
        RandomState::new().hash_one(std::process::id())
    )
}

/// Ready, if the answer to `request` has the name of our server in it.
pub(crate) async fn is_named(port: u16, request: &str, name: &str) -> Readiness {
    const RESPONSE_BYTES_MAX: u64 = 64 << 10;
    match exchange(port, request, RESPONSE_BYTES_MAX).await {
        Some(response) if String::from_utf8_lossy(&response).contains(name) => Readiness::Ready,
        _ => Readiness::Silent,
    }
}

/// Sends `request` and reads until the server closes the connection or has sent `bytes_max` bytes.
/// Repeats it on another connection while no answer comes. Returns `None` on an error, or after all
/// attempts.
pub(crate) async fn exchange(port: u16, request: &str, bytes_max: u64) -> Option<Vec<u8>> {
    let mut attempts = JoinSet::new();
    for _ in 0..ATTEMPTS_MAX {
        attempts.spawn(try_exchange(port, request.to_owned(), bytes_max));
        if let Ok(Some(answer)) = timeout(REPEAT_AFTER, attempts.join_next()).await {
            return answer.ok()?.ok();
        }
    }
    None
}

async fn try_exchange(port: u16, request: String, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
    stream.write_all(request.as_bytes()).await?;
    let mut response = Vec::new();
    stream.take(bytes_max).read_to_end(&mut response).await?;
    Ok(response)
}
