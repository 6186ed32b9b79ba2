//! A decoy, which hostile clients attack instead of the service.
//!
//! A rush beside an attack is slower than one alone for two reasons: the service works for the
//! attack, and the attackers take a share of the machine, which may be the greater one where a few
//! cores host all of them. So the same attackers also attack a decoy, which does the least that
//! keeps them going as the service would. What buyers have beside the decoy is what the attackers
//! leave; what they lack beside the service, compared with that, is what the service has lost.
//!
//! **Pace.** Hostile clients have a clock, and the clock is an upper bound. A crowd opens another
//! connection only when one was closed; a client waits for an answer before its next request, and
//! skips the ticks that it misses. So a faster server is attacked more, and a decoy is faster than
//! any service. It would be attacked up to the bound of the clock, the attackers would cost more
//! beside it, and the service would seem to lose less than it does. Therefore each rush counts the
//! connections that were opened, or the requests that were sent. The decoy gets as many a second as
//! the service had in the latest rush beside the same attack (`pace.rs`), and the comparison fails
//! if it got many more.
//!
//! **Schedule.** A crowd of connections is larger than the bound, so each connection that is opened
//! closes another one. The decoy does the same at a bound of its own: that of the service less the
//! connections of the buyers, who are not here. It closes the oldest one, as the service does among
//! those that are alike. It has no time limits: at that pace, connections are closed long before
//! those of the service. Requests are answered at once. Clients whose answers are unread stand
//! still at the service once the buffers are full, and here they send the same number of requests
//! evenly.
//!
//! **What it cannot tell.** To accept, to read and to close is work, too, and any service has it.
//! It is counted as the attackers'. The second figure is what the service has lost beyond that. The
//! rate of attacks is that of the whole rush, with the moments before the first buyer and after the
//! last one, in which clients that wait for answers are faster.

use std::{
    collections::VecDeque,
    io,
    net::{Ipv4Addr, SocketAddr},
    thread::{self, JoinHandle},
    time::Duration,
};

use anyhow::{Context, Result};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, copy_buf, sink},
    net::{TcpListener, TcpStream},
    runtime::Builder,
    sync::oneshot,
    task::{AbortHandle, JoinSet},
    time::sleep,
};

/// Pause after a connection that could not be accepted.
const PAUSE: Duration = Duration::from_millis(10);
/// Bytes that are read at once.
const SPACE: usize = 512;
/// What a slow reader gets: as much as it reads in a minute and more.
const DRIPS: [u8; 4096] = [b'x'; 4096];
/// The longest head that the service reads. After a longer one it closes the connection.
const HEAD_BYTES_MAX: usize = 16 * 1024;
const TOO_LONG: &str = "431 Request Header Fields Too Large";
const PROBLEM: &str = r#"{"type":"about:blank","title":"a decoy","code":"decoy"}"#;

/// What a decoy does with what a client sends.
#[derive(Debug, Clone, Copy)]
pub(super) enum Reply {
    /// It reads everything, and answers nothing.
    Nothing,
    /// It answers the first bytes with enough for a slow reader, and nothing after them.
    Drips,
    /// It answers each request with this status.
    Refusal(&'static str),
}

/// A listener with a thread of its own, until it is dropped.
pub(super) struct Decoy {
    address: SocketAddr,
    /// The thread ends when this is dropped.
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Decoy {
    /// Listens, and holds at most `bound` connections.
    pub(super) async fn start(reply: Reply, bound: usize) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
        let listener = listener.context("the decoy cannot listen")?;
        let address = listener.local_addr()?;
        let listener = listener.into_std()?;
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = oneshot::channel::<()>();
        let thread = thread::Builder::new().name("decoy".into()).spawn(move || {
            runtime.block_on(async move {
                let Ok(listener) = TcpListener::from_std(listener) else {
                    return;
                };
                tokio::select! {
                    _ = stopped => {}
                    () = serve(listener, reply, bound) => {}
                }
            });
        })?;
        Ok(Self {
            address,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// Its address as a URL.
    pub(super) fn host(&self) -> String {
        format!("http://{}", self.address)
    }
}

impl Drop for Decoy {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn serve(listener: TcpListener, reply: Reply, bound: usize) {
    let mut connections = JoinSet::new();
    let mut oldest_first = VecDeque::new();
    loop {
        let Ok((connection, _)) = listener.accept().await else {
            sleep(PAUSE).await;
            continue;
        };
        while connections.try_join_next().is_some() {}
        if connections.len() >= bound {
            close_first(&mut oldest_first);
        }
        oldest_first.push_back(connections.spawn(answer(connection, reply)));
    }
}

/// Closes the first of these connections that is still open.
fn close_first(connections: &mut VecDeque<AbortHandle>) {
    while let Some(connection) = connections.pop_front() {
        if !connection.is_finished() {
            connection.abort();
            return;
        }
    }
}

async fn answer(mut connection: TcpStream, reply: Reply) {
    // A client that leaves is none of the decoy's concern.
    let _: io::Result<()> = match reply {
        Reply::Nothing => discard(&mut connection).await,
        Reply::Drips => drip(&mut connection).await,
        Reply::Refusal(status) => refuse(connection, status).await,
    };
}

/// Reads until the client closes the connection.
async fn discard(connection: &mut TcpStream) -> io::Result<()> {
    let mut space = [0; SPACE];
    while connection.read(&mut space).await? > 0 {}
    Ok(())
}

async fn drip(connection: &mut TcpStream) -> io::Result<()> {
    // As the service does: the end would wait behind what the client has not read.
    connection.set_zero_linger()?;
    let mut space = [0; SPACE];
    if connection.read(&mut space).await? > 0 {
        connection.write_all(&DRIPS).await?;
    }
    discard(connection).await
}

/// Answers one request after the other.
async fn refuse(connection: TcpStream, status: &str) -> io::Result<()> {
    let mut connection = BufReader::new(connection);
    let refusal = response(status, "");
    while let Some(head) = read_head(&mut connection).await? {
        let mut body = AsyncReadExt::take(&mut connection, head.body);
        copy_buf(&mut body, &mut sink()).await?;
        if head.bytes > HEAD_BYTES_MAX {
            let last = response(TOO_LONG, "connection: close\r\n");
            return connection.write_all(last.as_bytes()).await;
        }
        connection.write_all(refusal.as_bytes()).await?;
    }
    Ok(())
}

/// `headers`: more lines, each with its end.
fn response(status: &str, headers: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/problem+json\r\ncontent-length: {}\r\n{headers}\r\n{PROBLEM}",
        PROBLEM.len()
    )
}

/// What of the head of a request matters here.
#[derive(Debug, Default)]
struct Head {
    bytes: usize,
    /// Bytes of the body that follows.
    body: u64,
}

/// The next head. `None`: the client has closed the connection.
async fn read_head(connection: &mut BufReader<TcpStream>) -> io::Result<Option<Head>> {
    let mut head = Head::default();
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = connection.read_until(b'\n', &mut line).await?;
        if read == 0 {
            return Ok(None);
        }
        head.bytes += read;
        if line == b"\r\n" {
            return Ok(Some(head));
        }
        if let Some(length) = content_length(&line) {
            head.body = length;
        }
    }
}

fn content_length(line: &[u8]) -> Option<u64> {
    let (name, value) = std::str::from_utf8(line).ok()?.split_once(':')?;
    if name.eq_ignore_ascii_case("content-length") {
        value.trim().parse().ok()
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpStream,
        time::timeout,
    };

    use super::{DRIPS, Decoy, HEAD_BYTES_MAX, Reply, TOO_LONG, response};

    const REFUSED: &str = "409 Conflict";

    /// Guards against hanging.
    async fn in_time<T>(future: impl Future<Output = T>) -> T {
        let ended = timeout(testbed::timeout(), future).await;
        ended.expect("the decoy does not answer")
    }

    async fn connect(address: SocketAddr) -> TcpStream {
        in_time(TcpStream::connect(address)).await.unwrap()
    }

    /// Sends these bytes, and reads as many as the expected answer has.
    async fn is_answered(connection: &mut TcpStream, request: &str, answer: &str) {
        connection.write_all(request.as_bytes()).await.unwrap();
        let mut read = vec![0; answer.len()];
        in_time(connection.read_exact(&mut read)).await.unwrap();
        assert_eq!(String::from_utf8(read).unwrap(), answer);
    }

    /// Waits until the decoy has closed the connection, and returns what came before.
    async fn rest(connection: &mut TcpStream) -> Vec<u8> {
        let mut read = Vec::new();
        // A connection that is reset is closed, too.
        let _ = in_time(connection.read_to_end(&mut read)).await;
        read
    }

    #[tokio::test]
    async fn each_request_of_a_connection_is_answered_and_its_body_is_no_request() {
        let decoy = Decoy::start(Reply::Refusal(REFUSED), 8).await.unwrap();
        let mut connection = connect(decoy.address).await;
        let answer = response(REFUSED, "");
        let get = "GET / HTTP/1.1\r\nhost: shop\r\n\r\n";
        let post = "POST / HTTP/1.1\r\nContent-Length: 18\r\n\r\nGET / HTTP/1.1\r\n\r\n";
        for request in [get, post, get] {
            is_answered(&mut connection, request, &answer).await;
        }
        connection.shutdown().await.unwrap();
        assert!(rest(&mut connection).await.is_empty());
    }

    #[tokio::test]
    async fn a_head_above_the_limit_is_the_last_one() {
        let decoy = Decoy::start(Reply::Refusal(REFUSED), 8).await.unwrap();
        let mut connection = connect(decoy.address).await;
        let long = "x".repeat(HEAD_BYTES_MAX);
        let request = format!("GET / HTTP/1.1\r\nlong: {long}\r\n\r\n");
        let answer = response(TOO_LONG, "connection: close\r\n");
        is_answered(&mut connection, &request, &answer).await;
        assert!(rest(&mut connection).await.is_empty());
    }

    #[tokio::test]
    async fn at_the_bound_the_oldest_connection_is_closed() {
        let decoy = Decoy::start(Reply::Refusal(REFUSED), 2).await.unwrap();
        let answer = response(REFUSED, "");
        let get = "GET / HTTP/1.1\r\n\r\n";
        let mut open = Vec::new();
        for _ in 0..3 {
            let mut connection = connect(decoy.address).await;
            is_answered(&mut connection, get, &answer).await;
            open.push(connection);
        }
        assert!(rest(&mut open[0]).await.is_empty());
        is_answered(&mut open[1], get, &answer).await;
        is_answered(&mut open[2], get, &answer).await;
    }

    #[tokio::test]
    async fn a_connection_that_its_client_has_closed_takes_no_room() {
        let decoy = Decoy::start(Reply::Refusal(REFUSED), 2).await.unwrap();
        let answer = response(REFUSED, "");
        let get = "GET / HTTP/1.1\r\n\r\n";
        let mut first = connect(decoy.address).await;
        is_answered(&mut first, get, &answer).await;
        for _ in 0..4 {
            let mut next = connect(decoy.address).await;
            is_answered(&mut next, get, &answer).await;
            next.shutdown().await.unwrap();
            // The decoy closes its end when it has seen that of the client.
            assert!(rest(&mut next).await.is_empty());
        }
        is_answered(&mut first, get, &answer).await;
    }

    #[tokio::test]
    async fn a_slow_reader_gets_its_drips_once() {
        let decoy = Decoy::start(Reply::Drips, 8).await.unwrap();
        let mut connection = connect(decoy.address).await;
        let mut read = vec![0; DRIPS.len()];
        connection.write_all(b"GET").await.unwrap();
        in_time(connection.read_exact(&mut read)).await.unwrap();
        connection.write_all(b"GET").await.unwrap();
        connection.shutdown().await.unwrap();
        assert!(rest(&mut connection).await.is_empty());
    }

    #[tokio::test]
    async fn a_decoy_that_is_dropped_closes_what_it_holds() {
        let decoy = Decoy::start(Reply::Nothing, 8).await.unwrap();
        let address = decoy.address;
        assert_eq!(decoy.host(), format!("http://{address}"));
        let mut connection = connect(address).await;
        connection
            .write_all(b"GET / HTTP/1.1\r\n\r\n")
            .await
            .unwrap();
        drop(decoy);
        assert!(rest(&mut connection).await.is_empty());
    }
}
