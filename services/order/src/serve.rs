//! Serves HTTP within limits, and drains requests at shutdown.

mod connections;
mod requests;

use std::{
    convert::Infallible,
    future::poll_fn,
    io,
    net::{IpAddr, SocketAddr},
    panic::AssertUnwindSafe,
    pin::{Pin, pin},
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use axum::{Router, body::Body, response::IntoResponse};
use events::TargetPolicy;
use futures::{FutureExt, StreamExt};
use http::{Request, Response};
use hyper::{
    body::{Body as _, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::GracefulShutdown,
};
use tokio::{
    net::{TcpListener, TcpSocket, TcpStream},
    time::{Instant, Sleep, sleep_until},
};
use tokio_io_timeout::TimeoutStream;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use crate::{
    http::{
        events::{Stopping, WAIT_MAX},
        problem::Problem,
        request_id::{self, RequestId},
    },
    rate::{PeerRates, RateLimits},
};
use connections::{Admitted, Bounds, Busy, Connections};
use requests::Requests;

/// Limits for requests.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Maximum size of a body in bytes.
    pub body_bytes: usize,
    /// Maximum number of headers.
    pub headers: usize,
    /// Maximum size of a request head in bytes.
    pub head_bytes: usize,
    /// How long the head of a request may take to arrive. Also the idle timeout of connections.
    pub head_timeout: Duration,
    /// How long a request may take from its head to its response.
    pub request_timeout: Duration,
    /// How long a client may take to read what was sent to it, before its connection is closed.
    pub write_timeout: Duration,
    /// How long requests that are under way may take at shutdown.
    pub drain_timeout: Duration,
    /// Maximum number of open connections. `None`: as many as there are descriptors, less those that
    /// are kept back for the stores.
    pub connections: Option<usize>,
    /// Maximum number of open connections of one peer.
    pub connections_per_peer: Option<usize>,
    /// How many requests are admitted of each client.
    pub rates: RateLimits,
    /// Which addresses webhooks may have.
    pub webhook_targets: TargetPolicy,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body_bytes: 16 * 1024,
            headers: 64,
            head_bytes: 16 * 1024,
            head_timeout: Duration::from_secs(30),
            request_timeout: Duration::from_secs(10),
            write_timeout: Duration::from_secs(10),
            drain_timeout: Duration::from_secs(10),
            connections: None,
            connections_per_peer: None,
            rates: RateLimits::default(),
            webhook_targets: TargetPolicy::default(),
        }
    }
}

/// Descriptors that no connection of a client gets: those of the stores' pools and of files.
const DESCRIPTORS_KEPT_BACK: u64 = 128;
/// With fewer connections a service is of no use, so it tries.
const CONNECTIONS_MIN: usize = 8;

impl Limits {
    fn bounds(&self) -> Bounds {
        let descriptors = descriptors().saturating_sub(DESCRIPTORS_KEPT_BACK);
        let all = usize::try_from(descriptors).unwrap_or(usize::MAX);
        Bounds {
            total: self.connections.unwrap_or(all).max(CONNECTIONS_MIN),
            per_peer: self.connections_per_peer.unwrap_or(usize::MAX),
        }
    }
}

/// The descriptors that this process may have.
fn descriptors() -> u64 {
    nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE)
        .map_or(1024, |(soft, _)| soft)
}

/// Length of the accept queue. The kernel caps it at `net.core.somaxconn`. A crowd connects at the
/// same moment: a client that finds the queue full retries after a second, or is reset.
const BACKLOG: u32 = 16_384;

/// Pause after an error of the listener, so that connections can end.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Listens on this address.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()
    } else {
        TcpSocket::new_v6()
    }?;
    // As listeners usually do: connections of the previous process may still be in TIME_WAIT.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Serves until `stop`, then finishes the requests that are under way.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    limits: &Limits,
    stop: CancellationToken,
) {
    let graceful = GracefulShutdown::new();
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(limits.head_timeout)
        .max_headers(limits.headers);
    // Write head and body of a response from one buffer: cheaper than two parts for small
    // responses. A connection keeps the buffer of its largest response.
    http.writev(false);
    // hyper's minimum is 8 KiB.
    http.max_buf_size(limits.head_bytes.max(8192));
    let connections = Connections::new(limits.bounds());
    let rates = Arc::new(PeerRates::new(&limits.rates));
    let stopping = Arc::new(Stopping(stop.clone()));
    loop {
        let (stream, peer) = tokio::select! {
            () = stop.cancelled() => break,
            accepted = listener.accept() => match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    // Most likely out of file descriptors.
                    tracing::warn!(%error, "could not accept a connection");
                    connections.make_room();
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            }
        };
        // Otherwise it is closed: every connection has a request under way.
        if let Some(admitted) = connections.admit(peer.ip()) {
            let handler = Handler {
                router: router.clone(),
                timeout: limits.request_timeout,
                rates: Arc::clone(&rates),
                stopping: Arc::clone(&stopping),
                peer: peer.ip(),
                timer: Timer::default(),
            };
            connect(stream, handler, admitted, limits, &http, &graceful);
        }
    }
    drop(listener);
    if tokio::time::timeout(limits.drain_timeout, graceful.shutdown())
        .await
        .is_err()
    {
        tracing::warn!("drain timeout: some requests were still under way");
    }
}

fn connect(
    stream: TcpStream,
    handler: Handler,
    admitted: Arc<Admitted>,
    limits: &Limits,
    http: &http1::Builder,
    graceful: &GracefulShutdown,
) {
    // Responses are small and must not wait for one another (Nagle).
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "could not set TCP_NODELAY");
    }
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(limits.write_timeout));
    let connection = Arc::clone(&admitted.connection);
    let service = service_fn(move |request| {
        let (handler, busy) = (handler.clone(), admitted.busy());
        async move { Ok::<_, Infallible>(busy_while_written(handler.answer(request).await, busy)) }
    });
    let serving = graceful.watch(http.serve_connection(TokioIo::new(Box::pin(stream)), service));
    tokio::spawn(async move {
        tokio::select! {
            result = serving => {
                if let Err(error) = result {
                    tracing::trace!(%error, "connection ended early");
                }
            }
            () = connection.closed() => {}
        }
    });
}

/// Keeps the connection from making room for others until a streamed body has been written. A body
/// that is complete already needs no such protection.
fn busy_while_written(response: Response<Body>, busy: Busy) -> Response<Body> {
    if response.body().size_hint().exact().is_some() {
        return response;
    }
    response.map(|body| {
        Body::from_stream(body.into_data_stream().inspect(move |_| {
            // The closure owns the mark, and is dropped with the body.
            let _ = &busy;
        }))
    })
}
/// Requests of this path wait for something to happen, and must know when the service stops.
const WAITING: &str = "/v1/events";

/// Answers the requests of one connection. Each request has a copy.
#[derive(Clone)]
struct Handler {
    router: Router,
    timeout: Duration,
    rates: Arc<PeerRates>,
    stopping: Arc<Stopping>,
    peer: IpAddr,
    timer: Timer,
}

impl Handler {
    async fn answer(self, request: Request<Incoming>) -> Response<Body> {
        let (started, requests) = (Instant::now(), Requests::shared());
        let route = requests.route(request.uri().path());
        let id = RequestId::of(request.headers());
        let response = id.name(self.respond(request)).await;
        requests.record(route, response.status(), started.elapsed());
        response
    }

    async fn respond(self, mut request: Request<Incoming>) -> Response<Body> {
        let (path, headers) = (request.uri().path(), request.headers());
        if let Err(too_many) = self.rates.admit(self.peer, path, headers) {
            return Problem::from(too_many).into_response();
        }
        let mut timeout = self.timeout;
        if path.starts_with(WAITING) {
            timeout += Duration::from_secs(WAIT_MAX);
            let stopping = Stopping::clone(&self.stopping);
            request.extensions_mut().insert(stopping);
        }
        let answer = AssertUnwindSafe(self.router.oneshot(request.map(Body::new))).catch_unwind();
        match self.timer.within(timeout, answer).await {
            Some(Ok(Ok(answer))) => answer,
            Some(Err(_panic)) => Problem::internal().into_response(),
            None if request_id::is_reading() => Problem::slow_request().into_response(),
            None => Problem::timed_out().into_response(),
        }
    }
}

/// The timer of a connection, shared by its requests. Registering and cancelling one for each
/// request would cost more than reading the clock in the rare case that it fires.
#[derive(Clone, Default)]
struct Timer(Arc<Mutex<Option<Pin<Box<Sleep>>>>>);

impl Timer {
    /// Runs `work`. `None`: it took longer than `time`.
    async fn within<T>(&self, time: Duration, work: impl Future<Output = T>) -> Option<T> {
        let until = Instant::now() + time;
        let mut work = pin!(work);
        poll_fn(|context| match work.as_mut().poll(context) {
            Poll::Ready(done) => Poll::Ready(Some(done)),
            Poll::Pending => self.poll_until(until, context).map(|()| None),
        })
        .await
    }

    fn poll_until(&self, until: Instant, context: &mut Context<'_>) -> Poll<()> {
        let mut timer = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let sleep = timer.get_or_insert_with(|| Box::pin(sleep_until(until)));
        if sleep.deadline() > until {
            // The request before this one had more time.
            sleep.as_mut().reset(until);
        }
        while sleep.as_mut().poll(context).is_ready() {
            if Instant::now() >= until {
                return Poll::Ready(());
            }
            // The timer was set for an earlier request.
            sleep.as_mut().reset(until);
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use std::{convert::Infallible, future::pending, time::Duration};

    use tokio::time::{Instant, sleep};

    use axum::body::Body;
    use bytes::Bytes;
    use futures::stream;
    use http::Response;

    use super::{Bounds, Connections, Timer, busy_while_written};

    #[test]
    fn a_connection_that_streams_does_not_make_room() {
        let (total, per_peer) = (1, 1);
        let table = Connections::new(Bounds { total, per_peer });
        let peer = [10, 0, 0, 1].into();
        let streaming = table.admit(peer).unwrap();
        let rows = stream::repeat(Ok::<_, Infallible>(Bytes::from_static(b"row")));
        let response = Response::new(Body::from_stream(rows));
        let response = busy_while_written(response, streaming.busy());
        assert!(table.admit(peer).is_none());
        drop(response);
        let whole = busy_while_written(Response::new("whole".into()), streaming.busy());
        assert!(table.admit(peer).is_some());
        drop(whole);
    }

    #[tokio::test]
    async fn requests_of_a_connection_share_one_timer_and_each_has_its_full_time() {
        let (timer, timeout) = (Timer::default(), Duration::from_secs(2));
        for _ in 0..2 {
            assert!(
                timer
                    .within(timeout, sleep(Duration::from_millis(1200)))
                    .await
                    .is_some()
            );
        }
        let began = Instant::now();
        assert!(timer.within(timeout, pending::<()>()).await.is_none());
        assert!(began.elapsed() >= timeout);
        assert!(
            timer
                .within(timeout, sleep(Duration::from_millis(100)))
                .await
                .is_some()
        );
    }
    #[tokio::test]
    async fn a_request_after_one_that_had_more_time_has_its_own() {
        let (timer, short) = (Timer::default(), Duration::from_millis(50));
        let long = Duration::from_secs(3600);
        assert!(timer.within(long, sleep(short)).await.is_some());
        let refused = timer.within(short, pending::<()>());
        let within = tokio::time::timeout(Duration::from_secs(30), refused).await;
        assert_eq!(within, Ok(None::<()>));
    }
}
