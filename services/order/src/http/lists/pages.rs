//! Writes a list: one page as JSON, or all pages as CSV or JSON lines.
//!
//! A stream reads the next page from the ledger when the client has taken the one before, so a list
//! of any length needs the memory of a page, and holds no connection of the ledger meanwhile. Between
//! two pages the ledger has as long for orders as the last one took.

use std::{sync::Arc, time::Duration};

use axum::{
    body::Body,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use futures::{
    FutureExt, StreamExt,
    future::BoxFuture,
    stream::{self, Stream},
};
use http::{HeaderValue, header};
use ledger::Page;
use serde::Serialize;
use tokio::time::{Instant, sleep_until};
use utoipa::ToSchema;

use super::{
    cursor::Key,
    query::{Format, ListQuery},
};
use crate::{
    engine::{Engine, EngineError},
    http::{App, Problem},
};

/// Rows that a stream reads at a time.
const STREAM_ROWS: usize = 1000;

/// Longest pause after a page: balancers cut a connection off that is silent for long.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// A page of a list.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PageBody<T> {
    /// The rows. Unless the list ends here: `limit` of them, or with `state` at least one.
    data: Vec<T>,
    /// The value of `after` for the next page; null: the list ends here.
    next: Option<String>,
}

/// Reads the page behind a key.
type Read<R, K> =
    dyn Fn(Option<K>, usize) -> BoxFuture<'static, Result<Page<R, K>, EngineError>> + Send + Sync;

/// Answers a query of a list, whose columns in CSV these are. `read` reads it from the engine.
pub(super) async fn list<R, K, F>(
    app: &App,
    query: ListQuery<K>,
    columns: &[&str],
    read: impl Fn(Arc<Engine>, Option<K>, usize) -> F + Send + Sync + 'static,
) -> Result<Response, Problem>
where
    R: Serialize + Send + 'static,
    K: Key + Send + 'static,
    F: Future<Output = Result<Page<R, K>, EngineError>> + Send + 'static,
{
    let engine = Arc::clone(&app.engine);
    let read: Arc<Read<R, K>> =
        Arc::new(move |after, at_most| read(Arc::clone(&engine), after, at_most).boxed());
    if query.format != Format::Json {
        return streamed(read, columns, query).await;
    }
    let page = read(query.after, query.limit).await?;
    let body = PageBody {
        next: page.next.map(|key| app.cursors.issue(&query.list, &key)),
        data: page.rows,
    };
    Ok((NO_STORE, axum::Json(body)).into_response())
}

/// The first page is read before the response begins, so that an outage is a problem body.
async fn streamed<R: Serialize + Send + 'static, K: Send + 'static>(
    read: Arc<Read<R, K>>,
    columns: &[&str],
    query: ListQuery<K>,
) -> Result<Response, Problem> {
    let (media_type, head) = match query.format {
        Format::Csv => ("text/csv; charset=utf-8; header=present", csv_line(columns)),
        Format::Json | Format::Jsonl => ("application/jsonl", Ok(Bytes::new())),
    };
    let first = timed(&read, query.after).await?;
    let rows = stream::once(async { head }).chain(rows(first, read, query.format));
    let headers = [
        (header::CACHE_CONTROL, NO_STORE[0].1.clone()),
        (header::CONTENT_TYPE, HeaderValue::from_static(media_type)),
    ];
    Ok((headers, Body::from_stream(rows)).into_response())
}

/// Lists show buyers, and change all the time.
const NO_STORE: [(header::HeaderName, HeaderValue); 1] =
    [(header::CACHE_CONTROL, HeaderValue::from_static("no-store"))];

/// Why a stream ended early. The client sees an incomplete response.
#[derive(Debug, thiserror::Error)]
enum StreamError {
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error("a row could not be written as CSV")]
    Csv(#[from] csv::Error),
    #[error("a row could not be written as JSON")]
    Json(#[from] serde_json::Error),
}

/// What a stream does next.
enum Step<R, K> {
    /// Writes this page.
    Write(Timed<R, K>),
    /// Reads the page behind this key, at this time or later.
    Read { after: K, at: Instant },
}

/// A page, and how long it took.
type Timed<R, K> = (Page<R, K>, Duration);

async fn timed<R, K>(read: &Arc<Read<R, K>>, after: Option<K>) -> Result<Timed<R, K>, EngineError> {
    let began = Instant::now();
    let page = read(after, STREAM_ROWS).await?;
    Ok((page, began.elapsed()))
}

fn rows<R: Serialize + Send + 'static, K: Send + 'static>(
    first: Timed<R, K>,
    read: Arc<Read<R, K>>,
    format: Format,
) -> impl Stream<Item = Result<Bytes, StreamError>> + Send {
    let pages = stream::try_unfold(Some(Step::Write(first)), move |step| {
        let read = Arc::clone(&read);
        async move {
            let (page, took) = match step {
                None => return Ok(None),
                Some(Step::Write(page)) => page,
                Some(Step::Read { after, at }) => {
                    sleep_until(at).await;
                    timed(&read, Some(after)).await?
                }
            };
            let pause = took.min(PAUSE_MAX);
            let next = page.next.map(|after| Step::Read {
                after,
                at: Instant::now() + pause,
            });
            Ok(Some((write(&page.rows, format)?, next)))
        }
    });
    pages.inspect(|written: &Result<_, StreamError>| {
        if let Err(error) = written {
            tracing::warn!(
                error = error as &dyn std::error::Error,
                "a list ended early"
            );
        }
    })
}

fn write<R: Serialize>(rows: &[R], format: Format) -> Result<Bytes, StreamError> {
    match format {
        Format::Csv => {
            let mut csv = csv::WriterBuilder::new()
                .has_headers(false)
                .from_writer(Vec::new());
            for row in rows {
                csv.serialize(row)?;
            }
            Ok(written(csv)?)
        }
        Format::Json | Format::Jsonl => {
            let mut lines = Vec::new();
            for row in rows {
                serde_json::to_writer(&mut lines, row)?;
                lines.push(b'\n');
            }
            Ok(lines.into())
        }
    }
}

fn csv_line(columns: &[&str]) -> Result<Bytes, StreamError> {
    let mut csv = csv::Writer::from_writer(Vec::new());
    csv.write_record(columns)?;
    Ok(written(csv)?)
}

fn written(csv: csv::Writer<Vec<u8>>) -> Result<Bytes, csv::Error> {
    csv.into_inner()
        .map(Bytes::from)
        .map_err(|error| error.into_error().into())
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{
            Arc, Mutex,
            atomic::{AtomicU64, Ordering},
        },
        time::{Duration, Instant},
    };

    use futures::{FutureExt, StreamExt, TryStreamExt};
    use ledger::Page;
    use tokio::time::sleep;

    use super::{Format, Read, Timed, rows, timed};
    use crate::engine::EngineError;

    /// A list of a thousand pages with two rows each, whose page behind `broken` cannot be read.
    fn list(broken: u64, reads: &Arc<AtomicU64>) -> (Timed<u64, u64>, Arc<Read<u64, u64>>) {
        let page = |key: u64| Page {
            rows: vec![key, key],
            next: (key < 1000).then_some(key + 1),
        };
        let reads = Arc::clone(reads);
        let read = move |key: Option<u64>, _| {
            reads.fetch_add(1, Ordering::SeqCst);
            let key = key.unwrap_or_default();
            async move {
                match key == broken {
                    true => Err(EngineError::OutcomeUnknown(std::time::Duration::ZERO)),
                    false => Ok(page(key)),
                }
            }
            .boxed()
        };
        ((page(1), Duration::ZERO), Arc::new(read))
    }

    #[tokio::test]
    async fn a_stream_reads_a_page_when_the_one_before_was_taken() {
        let reads = Arc::default();
        let (first, read) = list(0, &reads);
        let mut stream = Box::pin(rows(first, read, Format::Jsonl));
        for taken in 0..9 {
            assert!(stream.next().await.unwrap().is_ok());
            assert_eq!(reads.load(Ordering::SeqCst), taken);
        }
        let rest: Vec<_> = stream.try_collect().await.unwrap();
        assert_eq!(rest.len(), 991);
        assert_eq!(rest[990], "1000\n1000\n");
    }

    #[tokio::test]
    async fn a_page_that_cannot_be_read_breaks_the_stream_off() {
        let (first, read) = list(4, &Arc::default());
        let parts: Vec<_> = rows(first, read, Format::Jsonl).collect().await;
        let read: Vec<_> = parts.iter().map(Result::is_ok).collect();
        assert_eq!(read, [true, true, true, false]);
    }

    #[tokio::test]
    async fn a_stream_leaves_the_ledger_as_much_time_as_it_takes() {
        const PAGE_TIME: Duration = Duration::from_millis(20);
        let reads: Arc<Mutex<Vec<[Instant; 2]>>> = Arc::default();
        let noted = Arc::clone(&reads);
        let read: Arc<Read<u64, u64>> = Arc::new(move |key, _| {
            let (noted, began) = (Arc::clone(&noted), Instant::now());
            async move {
                sleep(PAGE_TIME).await;
                noted.lock().unwrap().push([began, Instant::now()]);
                let key = key.unwrap_or_default();
                let next = (key < 3).then_some(key + 1);
                Ok(Page {
                    rows: vec![key],
                    next,
                })
            }
            .boxed()
        });
        let first = timed(&read, None).await.unwrap();
        let parts = rows(first, read, Format::Jsonl).collect::<Vec<_>>().await;
        assert_eq!(parts.len(), 4);
        for pair in reads.lock().unwrap().windows(2) {
            let [[began, ended], [next, _]] = [pair[0], pair[1]];
            assert!(next - ended >= ended - began, "{pair:?}");
        }
    }
}
