//! Requests that are answered apart from the thread of their connection.
//!
//! A thread serves hundreds of connections. A list, an audit or a page of the console computes for
//! milliseconds, and a statement of SQL belongs to the runtime that has the pool. So they run on
//! the shared runtime, streamed bodies included, and the connection only waits for them.

use axum::body::Body;
use bytes::Bytes;
use futures::{Stream, stream};
use http::{Request, Response};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Body as _, Frame};
use tokio::{runtime::Handle, sync::mpsc};
use tokio_util::task::AbortOnDropHandle;

use super::{Tracked, refused};
use crate::http::{Answer, Api, problem::Problem, request_id};

/// Parts of a streamed body that wait for the connection.
const FRAMES_MAX: usize = 4;

type FrameResult = Result<Frame<Bytes>, axum::Error>;

/// Answers the request on `runtime`. Dropping it ends that, as if the request were answered here.
pub(super) async fn answer(
    runtime: &Handle,
    api: &Api,
    request: Request<Tracked>,
) -> Response<Answer> {
    let (api, streaming) = (api.clone(), runtime.clone());
    let answer = request_id::for_another_task(async move {
        let response = api.answer(request).await;
        response.map(|body| streamed(&streaming, body))
    });
    match AbortOnDropHandle::new(runtime.spawn(answer)).await {
        Ok(response) => response.map(Answer::Any),
        // It panicked.
        Err(_) => refused(Problem::internal()),
    }
}

/// The body, made on `runtime` part by part, unless it is complete already.
fn streamed(runtime: &Handle, body: Body) -> Body {
    if body.size_hint().exact().is_some() {
        return body;
    }
    let (sender, frames) = mpsc::channel(FRAMES_MAX);
    runtime.spawn(make(body, sender));
    Body::new(StreamBody::new(received(frames)))
}

/// Ends when the body does, or when the connection needs no more of it.
async fn make(mut body: Body, frames: mpsc::Sender<FrameResult>) {
    loop {
        let next = tokio::select! {
            next = body.frame() => next,
            () = frames.closed() => return,
        };
        let Some(frame) = next else { return };
        if frames.send(frame).await.is_err() {
            return;
        }
    }
}

fn received(frames: mpsc::Receiver<FrameResult>) -> impl Stream<Item = FrameResult> {
    stream::unfold(frames, async |mut frames| {
        let frame = frames.recv().await?;
        Some((frame, frames))
    })
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{Arc, Mutex},
        thread,
    };

    use axum::body::Body;
    use bytes::Bytes;
    use futures::stream;
    use http_body_util::BodyExt;
    use tokio::runtime::Builder;

    use super::streamed;

    /// Says on which threads it was polled, and when it was dropped.
    struct Source {
        threads: Arc<Mutex<Vec<thread::ThreadId>>>,
        _alive: tokio::sync::oneshot::Sender<()>,
    }

    #[tokio::test]
    async fn a_streamed_body_is_made_on_the_other_runtime_and_ends_with_its_reader() {
        let other = Builder::new_multi_thread()
            .worker_threads(1)
            .build()
            .unwrap();
        let threads = Arc::new(Mutex::new(Vec::new()));
        let (_alive, dropped) = tokio::sync::oneshot::channel();
        let source = Source {
            threads: Arc::clone(&threads),
            _alive,
        };
        let rows = stream::unfold(source, async |source| {
            source.threads.lock().unwrap().push(thread::current().id());
            Some((Ok::<_, axum::Error>(Bytes::from_static(b"row")), source))
        });
        let mut body = streamed(other.handle(), Body::from_stream(rows));
        for _ in 0..9 {
            let row = body.frame().await.unwrap().unwrap().into_data().unwrap();
            assert_eq!(row, "row");
        }
        drop(body);
        assert!(dropped.await.is_err(), "the source outlives its reader");
        let here = thread::current().id();
        assert!(threads.lock().unwrap().iter().all(|thread| *thread != here));
        other.shutdown_background();
    }

    #[tokio::test]
    async fn a_body_that_breaks_off_says_so_and_a_whole_one_stays_as_it_is() {
        let here = tokio::runtime::Handle::current();
        let parts = [
            Ok(Bytes::from_static(b"row")),
            Err(std::io::Error::other("the ledger is gone")),
        ];
        let mut body = streamed(&here, Body::from_stream(stream::iter(parts)));
        assert!(body.frame().await.unwrap().is_ok());
        assert!(body.frame().await.unwrap().is_err());
        let whole = streamed(&here, Body::from("whole"));
        assert_eq!(whole.collect().await.unwrap().to_bytes(), "whole");
    }
}
