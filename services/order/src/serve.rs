//! Serving HTTP within limits, and ending without dropping what was taken.

use std::{
    convert::Infallible,
    future::poll_fn,
    io,
    net::SocketAddr,
    panic::AssertUnwindSafe,
    pin::{Pin, pin},
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use axum::{Router, body::Body, response::IntoResponse};
use futures::FutureExt;
use http::{Request, Response};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::GracefulShutdown,
};
use tokio::{
    net::{TcpListener, TcpSocket, TcpStream},
    time::{Instant, Sleep, sleep_until},
};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use crate::http::problem::Problem;

/// What a request may cost us.
#[derive(Debug, Clone)]
pub struct Limits {
    /// The largest body, in bytes.
    pub body_bytes: usize,
    /// The most headers.
    pub headers: usize,
    /// The largest head of a request, in bytes.
    pub head_bytes: usize,
    /// How long the head of a request may take to arrive. Also ends idle connections.
    pub head_within: Duration,
    /// How long a request may take from its head to its answer.
    pub request_within: Duration,
    /// How long requests that are under way may take when the service ends.
    pub drain_within: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body_bytes: 16 * 1024,
            headers: 64,
            head_bytes: 16 * 1024,
            head_within: Duration::from_secs(30),
            request_within: Duration::from_secs(10),
            drain_within: Duration::from_secs(10),
        }
    }
}

/// Connections that may wait to be accepted; the system has a bound of its own (`net.core.somaxconn`) and takes the lesser. A crowd comes all at once, and whom
/// the queue has no place for asks again after a second, or is reset.
const BACKLOG: u32 = 16_384;

/// Listens at this address.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()
    } else {
        TcpSocket::new_v6()
    }?;
    // As a listener usually does: the address may still be waiting for stray packets of the process before us.
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
        .header_read_timeout(limits.head_within)
        .max_headers(limits.headers);
    // Head and body of an answer are put together and written at once: cheaper than two parts, for answers as small as ours. A connection keeps the buffer of
    // its largest answer.
    http.writev(false);
    // hyper's own floor is 8 KiB.
    http.max_buf_size(limits.head_bytes.max(8192));
    loop {
        let stream = tokio::select! {
            () = stop.cancelled() => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    // Out of file descriptors, most likely: let some connections end first.
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            }
        };
        connect(
            stream,
            router.clone(),
            limits.request_within,
            &http,
            &graceful,
        );
    }
    drop(listener);
    if tokio::time::timeout(limits.drain_within, graceful.shutdown())
        .await
        .is_err()
    {
        tracing::warn!("requests were still under way when the time to finish them was over");
    }
}

fn connect(
    stream: TcpStream,
    router: Router,
    within: Duration,
    http: &http1::Builder,
    graceful: &GracefulShutdown,
) {
    // Answers are small and must not wait for one another (Nagle).
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "TCP_NODELAY could not be set");
    }
    let timer = Timer::default();
    let service = service_fn(move |request| answer(router.clone(), request, timer.clone(), within));
    let connection = graceful.watch(http.serve_connection(TokioIo::new(stream), service));
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::trace!(%error, "a connection ended early");
        }
    });
}

async fn answer(
    router: Router,
    request: Request<Incoming>,
    timer: Timer,
    within: Duration,
) -> Result<Response<Body>, Infallible> {
    let answer = AssertUnwindSafe(router.oneshot(request.map(Body::new))).catch_unwind();
    Ok(match timer.within(within, answer).await {
        Some(Ok(Ok(answer))) => answer,
        Some(Err(_panic)) => Problem::internal().into_response(),
        None => Problem::timed_out().into_response(),
    })
}

/// The timer of a connection, for one request after another. To set one for each request and to take it back would cost more than to look
/// at the clock in the rare case that it fires.
#[derive(Clone, Default)]
struct Timer(Arc<Mutex<Option<Pin<Box<Sleep>>>>>);

impl Timer {
    /// `None`: it was not done in time.
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
        while sleep.as_mut().poll(context).is_ready() {
            if Instant::now() >= until {
                return Poll::Ready(());
            }
            // It was set for an earlier request.
            sleep.as_mut().reset(until);
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use std::{future::pending, time::Duration};

    use tokio::time::{Instant, sleep};

    use super::Timer;

    #[tokio::test]
    async fn one_timer_is_for_each_request_in_its_turn() {
        let (timer, within) = (Timer::default(), Duration::from_secs(2));
        for _ in 0..2 {
            assert!(
                timer
                    .within(within, sleep(Duration::from_millis(1200)))
                    .await
                    .is_some()
            );
        }
        let began = Instant::now();
        assert!(timer.within(within, pending::<()>()).await.is_none());
        assert!(began.elapsed() >= within);
        assert!(
            timer
                .within(within, sleep(Duration::from_millis(100)))
                .await
                .is_some()
        );
    }
}
