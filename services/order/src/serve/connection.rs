//! One connection: its stream, its time limits, and the buffers that it gives back while it is
//! idle.
//!
//! hyper keeps two buffers of 8 KiB and the state of a request for each connection, and ten
//! thousand buyers wait most of the time. A connection that has been silent between two requests is
//! therefore *parked*: only the stream is kept, until the first bytes of the next request come.
//!
//! It parks only where the next byte begins a request. After a body that was not read to its end,
//! what comes next is the rest of that body; read as a head, it would be a request that the
//! client's proxy has never seen.

use std::{
    convert::Infallible,
    future::poll_fn,
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Instant,
};

use bytes::{Buf, Bytes};
use futures::FutureExt;
use http::{Request, Response};
use hyper::{
    body::{Body, Frame, Incoming, SizeHint},
    server::conn::http1,
    service::{HttpService, service_fn},
};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};

use super::connections::{Admitted, Connection, Ending, Limit, Patience};
use crate::http::Answer;

/// Bytes that a parked connection reads of the next request.
const FIRST_BYTES: usize = 64;

/// A stream that can end at once.
pub(super) trait Abort {
    /// Has the system forget what the client has not taken. Otherwise the end waits behind it, and
    /// the system keeps both for minutes after the connection has made room.
    fn abort(&self);
}

impl Abort for TcpStream {
    fn abort(&self) {
        if let Err(error) = self.set_zero_linger() {
            tracing::debug!(%error, "could not have a connection end at once");
        }
    }
}

/// A connection, and what serves it.
pub(super) struct Served {
    pub admitted: Arc<Admitted>,
    pub patience: Arc<Patience>,
    pub http: Arc<http1::Builder>,
}

impl Served {
    /// Serves the connection until it ends.
    pub(super) async fn run<S, A, F>(self, stream: S, answer: A)
    where
        S: AsyncRead + AsyncWrite + Abort + Unpin + Send,
        A: Fn(Request<Tracked>) -> F + Clone,
        F: Future<Output = Response<Answer>>,
    {
        let mut stream = Watched {
            stream,
            first: Bytes::new(),
            admitted: Arc::clone(&self.admitted),
            patience: Arc::clone(&self.patience),
        };
        loop {
            let connection = &self.admitted.connection;
            let (answer, tracked) = (answer.clone(), Arc::clone(connection));
            let service = service_fn(move |request: Request<Incoming>| {
                let request = request.map(|body| Tracked::new(body, &tracked));
                answer(request).map(Ok::<_, Infallible>)
            });
            let serving = Box::new(self.http.serve_connection(TokioIo::new(stream), service));
            let Some(idle) = self.serve(serving).await else {
                return;
            };
            stream = idle;
            // hyper may have read what follows the last request.
            if stream.first.is_empty() && !self.park(&mut stream).await {
                return;
            }
        }
    }

    /// Serves requests. Returns the stream once the connection is idle. `None`: it has ended.
    async fn serve<S, H>(
        &self,
        mut serving: Box<http1::Connection<TokioIo<Watched<S>>, H>>,
    ) -> Option<Watched<S>>
    where
        S: AsyncRead + AsyncWrite + Abort + Unpin + Send,
        H: HttpService<Incoming, ResBody = Answer>,
        H::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let is_idle = poll_fn(|context| self.poll_serving(&mut serving, context)).await;
        if is_idle {
            return Some(take_stream(serving));
        }
        if self.admitted.connection.is_unread() {
            take_stream(serving).stream.abort();
        }
        None
    }

    /// Ready with whether the connection is idle, or has ended.
    fn poll_serving<S, H>(
        &self,
        serving: &mut http1::Connection<TokioIo<Watched<S>>, H>,
        context: &mut Context<'_>,
    ) -> Poll<bool>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send,
        H: HttpService<Incoming, ResBody = Answer>,
        H::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        match self.admitted.connection.ending(context) {
            Ending::Open => {}
            Ending::Drained => Pin::new(&mut *serving).graceful_shutdown(),
            Ending::Closed => return Poll::Ready(false),
        }
        loop {
            if let Poll::Ready(result) = Pin::new(&mut *serving).poll(context) {
                if let Err(error) = result {
                    tracing::trace!(%error, "connection ended early");
                }
                return Poll::Ready(false);
            }
            self.admitted.count_body();
            match self.admitted.limit(&self.patience) {
                None => return Poll::Pending,
                Some(Limit::Park(until)) => return self.poll_until(until, context).map(|()| true),
                Some(Limit::Body(until)) => {
                    ready!(self.poll_until(until, context));
                    // Polled again, the request is answered with its refusal.
                    self.admitted.connection.body.late();
                    show_slow("body");
                }
                Some(Limit::Write(until)) => {
                    ready!(self.poll_until(until, context));
                    show_slow("response");
                    return Poll::Ready(false);
                }
                Some(Limit::Head(until) | Limit::Idle(until)) => {
                    return self.poll_until(until, context).map(|()| false);
                }
            }
        }
    }

    /// Waits for the next request without buffers. Returns whether one has begun.
    async fn park<S: AsyncRead + Unpin>(&self, stream: &mut Watched<S>) -> bool {
        let until = self.admitted.idle_limit(&self.patience);
        poll_fn(|context| {
            if self.admitted.connection.ending(context) != Ending::Open {
                return Poll::Ready(false);
            }
            if let Poll::Ready(has_begun) = stream.poll_first(context) {
                return Poll::Ready(has_begun);
            }
            self.poll_until(until, context).map(|()| false)
        })
        .await
    }

    fn poll_until(&self, until: Instant, context: &mut Context<'_>) -> Poll<()> {
        let timer = &self.admitted.connection.timer;
        timer.poll_until(until.into(), context)
    }
}

fn show_slow(of: &'static str) {
    metrics::counter!("stockade_slow_clients_total", "of" => of).increment(1);
}

/// In a function of its own, so that the parts take no room in the connection's task.
#[expect(
    clippy::boxed_local,
    reason = "unboxed by the caller, the connection would take room in its task"
)]
fn take_stream<S, H>(serving: Box<http1::Connection<TokioIo<Watched<S>>, H>>) -> Watched<S>
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
    H: HttpService<Incoming, ResBody = Answer>,
    H::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let parts = serving.into_parts();
    let mut stream = parts.io.into_inner();
    stream.first = without_empty_lines(parts.read_buf);
    stream
}

/// The bytes without the empty lines that stand before a request (RFC 9112, section 2.2). A
/// connection that kept them would not wait for the request.
fn without_empty_lines(mut bytes: Bytes) -> Bytes {
    let ends = bytes.iter().take_while(|byte| b"\r\n".contains(byte));
    let ends = ends.count();
    bytes.advance(ends);
    if bytes.is_empty() {
        // Empty, it would still keep hyper's buffer of 8 KiB.
        return Bytes::new();
    }
    bytes
}

/// The stream of a connection. It notes when bytes come, and when the client does not read.
struct Watched<S> {
    stream: S,
    /// Bytes that were read before, and come first.
    first: Bytes,
    admitted: Arc<Admitted>,
    patience: Arc<Patience>,
}

impl<S: AsyncRead + Unpin> Watched<S> {
    /// Reads the first bytes of a request. Ready with whether there are any.
    fn poll_first(&mut self, context: &mut Context<'_>) -> Poll<bool> {
        let mut space = [0; FIRST_BYTES];
        let mut buffer = ReadBuf::new(&mut space);
        let read = ready!(Pin::new(&mut self.stream).poll_read(context, &mut buffer));
        self.first = Bytes::copy_from_slice(buffer.filled());
        Poll::Ready(read.is_ok() && !self.first.is_empty())
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.first.is_empty() {
            let length = this.first.len().min(buffer.remaining());
            buffer.put_slice(&this.first[..length]);
            this.admitted.received(&this.first[..length]);
            this.first.advance(length);
            if this.first.is_empty() {
                // The bytes that are read would stay as long as the connection.
                this.first = Bytes::new();
            }
            return Poll::Ready(Ok(()));
        }
        let before = buffer.filled().len();
        let Poll::Ready(read) = Pin::new(&mut this.stream).poll_read(context, buffer) else {
            this.admitted.connection.waited();
            return Poll::Pending;
        };
        this.admitted.received(&buffer.filled()[before..]);
        Poll::Ready(read)
    }
}

impl<S> Watched<S> {
    fn watch<T>(&self, written: Poll<T>, bytes: impl FnOnce(&T) -> usize) -> Poll<T> {
        match &written {
            Poll::Pending => self.admitted.blocked(),
            Poll::Ready(result) => self.admitted.took(bytes(result), &self.patience),
        }
        written
    }

    fn watch_write(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        self.watch(written, |written| *written.as_ref().unwrap_or(&0))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.watch_write(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, parts);
        self.watch_write(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.watch(flushed, |_| 0)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let ended = Pin::new(&mut self.stream).poll_shutdown(context);
        self.watch(ended, |_| 0)
    }
}

/// The body of a request. It notes how far it has come.
pub(super) struct Tracked {
    body: Incoming,
    connection: Arc<Connection>,
}

impl Tracked {
    fn new(body: Incoming, connection: &Arc<Connection>) -> Self {
        let connection = Arc::clone(connection);
        Self { body, connection }
    }
}

impl Body for Tracked {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        // Before the connection is woken to read: it notes then whether something is missing.
        self.connection.body.wanted();
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        if frame.is_none() || self.body.is_end_stream() {
            self.connection.body_ended();
        } else if let Some(Ok(frame)) = &frame {
            let bytes = frame.data_ref().map_or(0, Bytes::len);
            self.connection.body.came(bytes);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Tracked {
    fn drop(&mut self) {
        if !self.body.is_end_stream() {
            // The request waits for no more of it, and is under work.
            self.connection.body.ended();
        }
    }
}
