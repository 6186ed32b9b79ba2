//! Attacks with connections alone.

use std::{
    io,
    sync::{Arc, atomic::Ordering},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use futures::future::{BoxFuture, join_all};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, Interest},
    net::{TcpSocket, TcpStream, lookup_host},
    sync::Mutex,
    time::{Instant, MissedTickBehavior, sleep},
};
use uuid::Uuid;

use super::{CLOSED, Field, LATER, pace, pace::Pace};

/// Time between two connections that a client of a crowd opens.
const OPENING_PACE: Duration = Duration::from_millis(20);
/// Bytes that a slow reader takes at once, and the time between: a fraction of what a service may
/// demand.
const DRIP_BYTES: usize = 8;
const DRIP_PACE: Duration = Duration::from_millis(200);
/// Space for answers on the side of a slow reader.
const DRIP_BUFFER: u32 = 4096;
/// Large answers that a slow reader asks for: more than the buffers between the two programs.
const DRIP_REQUESTS: usize = 40;
/// A connection that the service closes without an answer sooner than this made room: the head of a
/// request has 30 seconds to come, and an answer ten to be read. By then a crowd has opened all of
/// its connections.
const SILENT_AT_LEAST: Duration = Duration::from_secs(25);
const UNREAD_AT_LEAST: Duration = Duration::from_secs(8);
const REQUESTS_AT_ONCE: u32 = 20;
/// Requests that a client sends before it stops, on one connection. Their answers are larger than
/// the buffers between the two programs.
const UNREAD_REQUESTS: u32 = 20_000;

/// What became of a connection.
type Held = BoxFuture<'static, io::Result<&'static str>>;

/// Keeps connections open, and opens another one for each that the service closes.
async fn crowd(field: Arc<Field>, attack: &'static str, hold: fn(Arc<Field>) -> Held) {
    let opening = Pace::new(&field, OPENING_PACE, MissedTickBehavior::Delay);
    let opening = Mutex::new(opening);
    let connections = (0..field.connections_each).map(|_| async {
        loop {
            opening.lock().await.tick().await;
            field.count();
            field.open.fetch_add(1, Ordering::Relaxed);
            let ended = hold(Arc::clone(&field)).await;
            field.open.fetch_sub(1, Ordering::Relaxed);
            field.note(attack, ended.unwrap_or("connection refused"));
        }
    });
    let _: Vec<()> = join_all(connections).await;
}

/// Opens connections and sends half of a head on each.
pub(super) async fn stay_silent(field: Arc<Field>) {
    let hold = |field| -> Held { Box::pin(hold(field, b"GET /healthz HT".to_vec())) };
    crowd(field, "silent connections", hold).await;
}

/// Opens connections and sends a head and half a body on each: a report of a payment, which only
/// its body can refute.
pub(super) async fn send_half_bodies(field: Arc<Field>) {
    let hold = |field| -> Held {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let half = format!(
            "POST /v1/orders/{}/payment HTTP/1.1\r\nhost: shop\r\nstockade-signature: t={},v1={}\r\ncontent-length: 200\r\n\r\n{{\"payment\":",
            Uuid::new_v4(),
            now.unwrap_or_default().as_secs(),
            "0".repeat(64)
        );
        Box::pin(hold(field, half.into_bytes()))
    };
    crowd(field, "half bodies", hold).await;
}

/// Sends these bytes, and waits for what the service does.
async fn hold(field: Arc<Field>, bytes: Vec<u8>) -> io::Result<&'static str> {
    let mut connection = connect(&field).await?;
    let opened = Instant::now();
    connection.write_all(&bytes).await?;
    let mut answer = Vec::new();
    let _ = connection.read_to_end(&mut answer).await;
    Ok(if answer.starts_with(b"HTTP/1.1 408") {
        "408"
    } else if answer.is_empty() {
        closed(opened, SILENT_AT_LEAST)
    } else {
        "another answer"
    })
}

/// Whether the connection made room, or ended by a time limit.
fn closed(opened: Instant, limit: Duration) -> &'static str {
    match opened.elapsed() < limit {
        true => CLOSED,
        false => LATER,
    }
}

/// Opens connections, asks for large answers on each, and takes a few bytes of them now and then.
pub(super) async fn read_in_drips(field: Arc<Field>) {
    let hold = |field| -> Held { Box::pin(drip(field)) };
    crowd(field, "slow readers", hold).await;
}

async fn drip(field: Arc<Field>) -> io::Result<&'static str> {
    let mut connection = connect_with(&field, Some(DRIP_BUFFER)).await?;
    let opened = Instant::now();
    let requests = "GET /docs/problems HTTP/1.1\r\nhost: shop\r\n\r\n".repeat(DRIP_REQUESTS);
    connection.write_all(requests.as_bytes()).await?;
    let mut space = [0; DRIP_BYTES];
    // What has come before the end is still there to be read, for minutes.
    while !connection.ready(Interest::READABLE).await?.is_read_closed()
        && connection.read(&mut space).await.is_ok_and(|read| read > 0)
    {
        sleep(DRIP_PACE).await;
    }
    Ok(closed(opened, UNREAD_AT_LEAST))
}

/// Sends requests, and reads none of the answers. The service closes the connection.
pub(super) async fn never_read(field: Arc<Field>) {
    let mut pace = pace(&field).at_once(REQUESTS_AT_ONCE);
    loop {
        pace.tick().await;
        let answer = if fill(&field, &mut pace).await.is_ok() {
            "sent everything"
        } else {
            "closed by the service"
        };
        field.note("unread answers", answer);
    }
}

async fn fill(field: &Field, pace: &mut Pace) -> io::Result<()> {
    let mut connection = connect(field).await?;
    let request = format!(
        "GET /v1/items/{} HTTP/1.1\r\nhost: shop\r\n\r\n",
        field.item
    );
    for number in 0..UNREAD_REQUESTS {
        if number % REQUESTS_AT_ONCE == 0 {
            pace.tick().await;
        }
        connection.write_all(request.as_bytes()).await?;
        field.count();
    }
    Ok(())
}

async fn connect(field: &Field) -> io::Result<TcpStream> {
    connect_with(field, None).await
}

/// A connection with so much space for answers.
async fn connect_with(field: &Field, space: Option<u32>) -> io::Result<TcpStream> {
    let host = field.host.trim_start_matches("http://");
    let host = host.split('/').next().unwrap_or_default();
    let mut addresses = if host.contains(':') {
        lookup_host(host).await?.collect::<Vec<_>>()
    } else {
        lookup_host((host, 80)).await?.collect()
    };
    let address = addresses.pop().ok_or(io::ErrorKind::NotFound)?;
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()
    } else {
        TcpSocket::new_v6()
    }?;
    if let Some(space) = space {
        socket.set_recv_buffer_size(space)?;
    }
    socket.connect(address).await
}
