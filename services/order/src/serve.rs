//! Serves HTTP within limits, and drains requests at shutdown.

mod apart;
mod arriving;
mod connection;
mod connections;
mod reader;
mod requests;
mod threads;

use std::{
    future::poll_fn,
    io,
    net::{IpAddr, SocketAddr},
    num::NonZero,
    panic::AssertUnwindSafe,
    pin::{Pin, pin},
    sync::Arc,
    task::Poll,
    time::{Duration, Instant},
};

use axum::{body::Body, response::IntoResponse};
use events::TargetPolicy;
use futures::{FutureExt, StreamExt};
use http::{HeaderMap, Request, Response, header};
use hyper::{body::Body as _, server::conn::http1};
use tokio::{
    net::{TcpListener, TcpSocket, TcpStream},
    runtime::Handle,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    http::{
        Answer, Api,
        events::{Stopping, WAIT_MAX},
        problem::Problem,
        request_id::{self, RequestId},
    },
    rate::{PeerRates, RateLimits},
    timer::{SharedTimer, Timer},
};
use arriving::Arriving;
use connection::{Served, Tracked};
use connections::{Bounds, Busy, Connection, Connections, Patience};
use requests::Requests;
use threads::Threads;

/// Limits for requests.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Maximum size of a body in bytes.
    pub body_bytes: usize,
    /// Maximum number of headers.
    pub headers: usize,
    /// Maximum size of a request head in bytes.
    pub head_bytes: usize,
    /// How long the head of a request may take to arrive. For the first one of a connection, the
    /// time begins when the connection is opened.
    pub head_timeout: Duration,
    /// How long a connection stays open after a request without another one. A balancer must let go
    /// of its idle connections sooner: a request that it sends just as the connection is closed is
    /// lost.
    pub idle_timeout: Duration,
    /// How long a connection keeps its buffers after a request.
    pub park_after: Duration,
    /// How long a request may take from its head to its response.
    pub request_timeout: Duration,
    /// How long the body of a request may take to arrive, besides the time of
    /// [`Self::body_rate_min`].
    pub body_timeout: Duration,
    /// Bytes of a body that must come each second after that. 0: the request's time-out alone
    /// holds.
    pub body_rate_min: u64,
    /// How long a client may take to read what was sent to it, before its connection is closed.
    pub write_timeout: Duration,
    /// Bytes that give a client a second of that time back. 0: any byte gives back all of it.
    pub write_rate_min: u64,
    /// How long requests that are under way may take at shutdown.
    pub drain_timeout: Duration,
    /// Maximum number of open connections. `None`: as many as there are descriptors, less those
    /// that are kept back for the stores.
    pub connections: Option<usize>,
    /// Maximum number of open connections of one peer.
    pub connections_per_peer: Option<usize>,
    /// Maximum number of requests of one peer whose body is awaited. A trusted proxy has none.
    pub bodies_per_peer: Option<usize>,
    /// How many requests are admitted of each client.
    pub rates: RateLimits,
    /// Which addresses webhooks may have.
    pub webhook_targets: TargetPolicy,
    /// PEM file of authorities that sign the certificates of webhooks, besides those that browsers
    /// trust.
    pub webhook_authority: Option<Vec<u8>>,
    /// Maximum number of webhooks.
    pub webhooks: u32,
    /// Number of threads that serve connections, each with a runtime of its own. With 0, the
    /// runtime of the caller serves them.
    pub threads: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body_bytes: 16 * 1024,
            headers: 64,
            head_bytes: 16 * 1024,
            head_timeout: Duration::from_secs(30),
            // Balancers keep an idle connection for 60 s.
            idle_timeout: Duration::from_secs(75),
            // A connection that has a request each second keeps them.
            park_after: Duration::from_secs(1),
            request_timeout: Duration::from_secs(10),
            // As other servers have it, and less than the slowest mobile network.
            body_timeout: Duration::from_secs(5),
            body_rate_min: 500,
            write_timeout: Duration::from_secs(10),
            write_rate_min: 500,
            drain_timeout: Duration::from_secs(10),
            connections: None,
            connections_per_peer: None,
            // More than a proxy that is not listed has in a rush, if half of its buyers are on slow
            // networks.
            bodies_per_peer: Some(1000),
            rates: RateLimits::default(),
            webhook_targets: TargetPolicy::default(),
            webhook_authority: None,
            webhooks: 100,
            threads: processors(),
        }
    }
}

/// Descriptors that no connection of a client gets: those of the stores' pools and of files.
const DESCRIPTORS_KEPT_BACK: u64 = 128;
/// With fewer connections a service is of no use, so it tries.
const CONNECTIONS_MIN: usize = 8;

impl Limits {
    fn patience(&self) -> Patience {
        Patience {
            head: self.head_timeout,
            idle: self.idle_timeout,
            write: self.write_timeout,
            park: self.park_after,
            body: self.body_timeout,
            body_rate: self.body_rate_min,
            write_rate: self.write_rate_min,
        }
    }

    fn bounds(&self) -> Bounds {
        let descriptors = descriptors().saturating_sub(DESCRIPTORS_KEPT_BACK);
        let all = usize::try_from(descriptors).unwrap_or(usize::MAX);
        Bounds {
            total: self.connections.unwrap_or(all).max(CONNECTIONS_MIN),
            per_peer: self.connections_per_peer.unwrap_or(usize::MAX),
            bodies_per_peer: self.bodies_per_peer.unwrap_or(usize::MAX),
            proxies: self.rates.trusted_proxies.clone(),
        }
    }
}

/// The processors that this process may use.
pub fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, NonZero::get)
}

/// The descriptors that this process may have.
fn descriptors() -> u64 {
    nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE)
        .map_or(1024, |(soft, _)| soft)
}

/// Length of the accept queue. The kernel caps it at `net.core.somaxconn`. A crowd connects at the
/// same moment: a client that finds the queue full retries after a second, or is reset.
const BACKLOG: u32 = 16_384;

/// Bytes that the kernel keeps of what a client has not read. Responses are small, and a crowd that
/// does not read must not fill the memory: left alone, the kernel takes up to 4 MB for each.
const SEND_BUFFER: u32 = 64 * 1024;

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
    // Connections inherit it.
    socket.set_send_buffer_size(SEND_BUFFER)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Serves until `stop`, then finishes the requests that are under way.
///
/// Connections are dealt out to [`Limits::threads`]. Orders are placed there; all other requests
/// are answered on the runtime that calls this.
pub async fn serve(
    listener: TcpListener,
    api: impl Into<Api>,
    limits: &Limits,
    stop: CancellationToken,
) {
    let connections = Connections::new(limits.bounds());
    let (serving, http) = (TaskTracker::new(), Arc::new(http(limits)));
    let patience = Arc::new(limits.patience());
    let threads = start_threads(limits.threads);
    let handler = Arc::new(Handler {
        apart: (!threads.is_empty()).then(Handle::current),
        ..Handler::new(api.into(), limits, &stop)
    });
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
        // Otherwise it is closed: every connection has a whole request under way.
        if let Some(admitted) = connections.admit(peer.ip()) {
            let served = Served {
                admitted,
                patience: Arc::clone(&patience),
                http: Arc::clone(&http),
            };
            let handler = Arc::clone(&handler);
            let connect = move |stream| connect(stream, served, handler, peer.ip());
            threads.serve(stream, &serving, connect);
        }
        connections.settle(ACCEPT_PAUSE).await;
    }
    drop(listener);
    connections.drain();
    serving.close();
    if tokio::time::timeout(limits.drain_timeout, serving.wait())
        .await
        .is_err()
    {
        tracing::warn!("drain timeout: some requests were still under way");
    }
}

/// Without threads the service is slower, and no less correct.
fn start_threads(count: usize) -> Threads {
    Threads::start(count).unwrap_or_else(|error| {
        tracing::warn!(%error, "could not start threads for connections");
        Threads::default()
    })
}

fn http(limits: &Limits) -> http1::Builder {
    let mut http = http1::Builder::new();
    // No timer of hyper's, which it makes anew for each head: `Served` has one for the connection.
    http.header_read_timeout(None).max_headers(limits.headers);
    // Write head and body of a response from one buffer: cheaper than two parts for small
    // responses. A connection keeps the buffer of its largest response.
    http.writev(false);
    // hyper's minimum is 8 KiB.
    http.max_buf_size(limits.head_bytes.max(8192));
    http
}

async fn connect(stream: TcpStream, served: Served, handler: Arc<Handler>, peer: IpAddr) {
    // Responses are small and must not wait for one another (Nagle).
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "could not set TCP_NODELAY");
    }
    let admitted = Arc::clone(&served.admitted);
    let answer = move |request: Request<Tracked>| {
        let (handler, admitted) = (Arc::clone(&handler), Arc::clone(&admitted));
        async move {
            let busy = admitted.busy(!request.body().is_end_stream());
            let connection = &admitted.connection;
            busy_while_written(handler.answer(request, peer, connection).await, busy)
        }
    };
    served.run(stream, answer).await;
}

/// Keeps the connection from making room for others until a streamed body has been written. A body
/// that is complete already needs no such protection, and a stream of events has none: anyone can
/// open many of them, and none ends by itself.
fn busy_while_written(response: Response<Answer>, busy: Busy) -> Response<Answer> {
    if response.body().size_hint().exact().is_some() {
        return response;
    }
    if is_event_stream(response.headers()) {
        busy.live();
    }
    response.map(|body| {
        let written = Body::new(body).into_data_stream().inspect(move |_| {
            // The closure owns the mark, and is dropped with the body.
            let _ = &busy;
        });
        Answer::Any(Body::from_stream(written))
    })
}

fn is_event_stream(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE);
    kind.is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"))
}

/// Requests of this path wait for something to happen, and must know when the service stops.
const WAITING: &str = "/v1/events";

/// A request of these paths counts for what it asks for: once for each line, or for each item that
/// has to be read.
const COUNTED: [&str; 2] = ["/v1/carts", "/v1/items:batch"];

/// What the API answers itself. Pages outside of it may need to know who asks.
const API: &str = "/v1/";

/// Answers the requests of all connections.
struct Handler {
    api: Api,
    timeout: Duration,
    rates: Arc<PeerRates>,
    stopping: Stopping,
    requests: &'static Requests,
    /// Where requests are answered that may hold up their thread. `None`: where they arrive.
    apart: Option<Handle>,
}

impl Handler {
    fn new(api: Api, limits: &Limits, stop: &CancellationToken) -> Self {
        Self {
            api,
            timeout: limits.request_timeout,
            rates: Arc::new(PeerRates::new(&limits.rates)),
            stopping: Stopping(stop.clone()),
            requests: Requests::shared(),
            apart: None,
        }
    }

    async fn answer(
        &self,
        request: Request<Tracked>,
        peer: IpAddr,
        connection: &Connection,
    ) -> Response<Answer> {
        let started = Instant::now();
        let route = self.requests.route(request.uri().path());
        let id = RequestId::of(request.headers());
        let response = id.name(pin!(self.respond(request, peer, connection))).await;
        self.requests
            .record(route, response.status(), started.elapsed());
        response
    }

    async fn respond(
        &self,
        mut request: Request<Tracked>,
        peer: IpAddr,
        connection: &Connection,
    ) -> Response<Answer> {
        let (path, headers) = (request.uri().path(), request.headers());
        if let Err(too_many) = self.rates.admit(peer, path, headers) {
            return refused(Problem::from(too_many));
        }
        let is_counted = COUNTED.contains(&path);
        let bucket = is_counted.then(|| self.rates.bucket(peer, headers));
        let client = (!path.starts_with(API)).then(|| self.rates.client(peer, headers));
        let mut timeout = self.timeout;
        if path.starts_with(WAITING) {
            timeout += Duration::from_secs(WAIT_MAX);
            request.extensions_mut().insert(self.stopping.clone());
        }
        if let Some(client) = client {
            request.extensions_mut().insert(client);
        }
        if let Some(bucket) = bucket.flatten() {
            request.extensions_mut().insert(bucket);
        }
        let (timer, body) = (&connection.timer, &connection.body);
        let answer = AssertUnwindSafe(self.answer_somewhere(request, timer)).catch_unwind();
        let answer = pin!(answer);
        let answer = pin!(unless_late(body, answer));
        match timer.within(timeout, answer).await {
            Some(Some(Ok(answer))) => answer,
            Some(Some(Err(_panic))) => refused(Problem::internal()),
            Some(None) => refused(Problem::slow_request()),
            None if request_id::is_reading() => refused(Problem::slow_request()),
            None => refused(Problem::timed_out()),
        }
    }

    async fn answer_somewhere(
        &self,
        request: Request<Tracked>,
        timer: &SharedTimer,
    ) -> Response<Answer> {
        match &self.apart {
            Some(runtime) if !self.api.is_direct(&request) => {
                apart::answer(runtime, &self.api, request).await
            }
            _ => self.api.answer_within(request, timer).await,
        }
    }
}

/// The result of `work`. `None`: the body that it waits for comes too slowly.
async fn unless_late<W: Future>(body: &Arriving, mut work: Pin<&mut W>) -> Option<W::Output> {
    poll_fn(|context| match work.as_mut().poll(context) {
        Poll::Ready(done) => Poll::Ready(Some(done)),
        Poll::Pending if body.is_late() => Poll::Ready(None),
        Poll::Pending => Poll::Pending,
    })
    .await
}

fn refused(problem: Problem) -> Response<Answer> {
    problem.into_response().map(Answer::Any)
}

#[cfg(test)]
mod tests {
    use std::{convert::Infallible, sync::Arc};

    use axum::body::Body;
    use bytes::Bytes;
    use futures::stream;
    use http::{HeaderValue, Response, header};

    use super::{Answer, Bounds, Connections, busy_while_written};

    fn table_of_one() -> Arc<Connections> {
        Connections::new(Bounds {
            total: 1,
            per_peer: 1,
            bodies_per_peer: 1,
            proxies: Vec::new(),
        })
    }

    #[test]
    fn a_stream_of_events_makes_room() {
        let table = table_of_one();
        let peer = [10, 0, 0, 1].into();
        let viewer = table.admit(peer).unwrap();
        let events = stream::repeat(Ok::<_, Infallible>(Bytes::from_static(b"data: 1\n\n")));
        let mut response = Response::new(Answer::Any(Body::from_stream(events)));
        let kind = HeaderValue::from_static("text/event-stream");
        response.headers_mut().insert(header::CONTENT_TYPE, kind);
        let response = busy_while_written(response, viewer.busy(false));
        assert!(table.admit(peer).is_some());
        drop(response);
    }

    #[test]
    fn a_connection_that_streams_does_not_make_room() {
        let table = table_of_one();
        let peer = [10, 0, 0, 1].into();
        let streaming = table.admit(peer).unwrap();
        let rows = stream::repeat(Ok::<_, Infallible>(Bytes::from_static(b"row")));
        let response = Response::new(Answer::Any(Body::from_stream(rows)));
        let response = busy_while_written(response, streaming.busy(false));
        assert!(table.admit(peer).is_none());
        drop(response);
        let whole = Response::new(Answer::Any("whole".into()));
        let whole = busy_while_written(whole, streaming.busy(false));
        assert!(table.admit(peer).is_some());
        drop(whole);
    }
}
