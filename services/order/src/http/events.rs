//! Events for admins: pages by cursor, with a long poll, or as server-sent events.

use std::{collections::VecDeque, time::Duration};

use ::events::CloudEvent;
use axum::{
    Extension,
    extract::{RawQuery, State},
    response::{
        IntoResponse, Response, Sse,
        sse::{Event as SseEvent, KeepAlive},
    },
};
use domain::Invalid;
use futures::{Stream, stream};
use http::{HeaderMap, header};
use ledger::{EventCursor, Events};
use serde::Serialize;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use url::form_urlencoded;
use utoipa::ToSchema;

use super::{
    App, Problem,
    access::{AdminWith, Read},
    event_reads::POLL_INTERVAL,
    problem::FieldError,
    single::single,
};
use crate::engine::EngineError;

/// Seconds that a request may wait for the next event.
pub(crate) const WAIT_MAX: u64 = 60;
const LIMIT_MAX: u64 = 1000;
const LIMIT: usize = 100;

/// Keeps proxies from closing a silent stream.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Events that a stream reads at a time.
const STREAM_PAGE: usize = 100;

/// Cancelled when the service stops: waiting requests then answer, and streams end.
#[derive(Debug, Clone)]
pub(crate) struct Stopping(pub CancellationToken);

/// A page of events.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct EventPage {
    /// The events, in order. Empty: there are none yet.
    data: Vec<CloudEvent>,
    /// The cursor behind them: the `after` of the next request, also of an empty page.
    #[schema(example = "812-14")]
    next: String,
}

/// Where to start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum After {
    /// At the oldest event that is kept.
    Oldest,
    /// With the events to come.
    Now,
    /// Behind an event.
    Cursor(EventCursor),
}

#[derive(Debug, PartialEq, Eq)]
struct Wanted {
    after: After,
    wait: Duration,
    limit: usize,
}

impl Wanted {
    fn parse(query: &str) -> Result<Self, Problem> {
        let mut wanted = Self {
            after: After::Oldest,
            wait: Duration::ZERO,
            limit: LIMIT,
        };
        let (mut errors, mut seen) = (Vec::new(), Vec::new());
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            let read = if seen.contains(&name) {
                Err("expected once".into())
            } else {
                wanted.set(&name, &value)
            };
            errors.extend(read.err().map(|expected| FieldError::new(&name, expected)));
            seen.push(name);
        }
        if errors.is_empty() {
            Ok(wanted)
        } else {
            Err(Problem::invalid_fields(errors))
        }
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        match name {
            "after" => self.after = after(value)?,
            "wait" => self.wait = Duration::from_secs(number(value, 0, WAIT_MAX)?),
            "limit" => self.limit = usize::try_from(number(value, 1, LIMIT_MAX)?).unwrap_or(LIMIT),
            _ => return Err("expected one of the parameters after, wait, limit".into()),
        }
        Ok(())
    }
}

/// A reader that has no cursor yet may leave the parameter empty.
fn after(text: &str) -> Result<After, String> {
    match text {
        "" => Ok(After::Oldest),
        "now" => Ok(After::Now),
        cursor => cursor.parse().map(After::Cursor).map_err(|_| CURSOR.into()),
    }
}

const LAST_EVENT_ID: &str = "Last-Event-ID";
const CURSOR: &str = "expected `now`, or a cursor from `next` of an earlier page";

fn number(text: &str, min: u64, max: u64) -> Result<u64, String> {
    let number = text
        .parse()
        .ok()
        .filter(|number| (min..=max).contains(number));
    number.ok_or_else(|| format!("expected a whole number from {min} to {max}"))
}

/// Events of orders and items, oldest first: at least once, and in order for each item.
///
/// With `Accept: text/event-stream` the answer is a stream of server-sent events, one for each event,
/// whose id is the cursor; `Last-Event-ID` resumes it.
#[utoipa::path(get, path = "/v1/events", operation_id = "listEvents", tag = "admins",
    params(("after" = Option<String>, Query, description = "`next` of the page before, or the `id` of an event; `now`: only events to come. Default, and if it is empty: the oldest event that is kept"),
        ("wait" = Option<u64>, Query, description = "seconds to wait for an event if there is none, 60 at most. Default: 0", minimum = 0, maximum = 60),
        ("limit" = Option<u64>, Query, description = "events in a page, 1000 at most. Default: 100", minimum = 1, maximum = 1000),
        ("Last-Event-ID" = Option<String>, Header, description = "the last event that a stream has had; takes the place of `after`")),
    responses(AdminWith<Read>, (status = 200, description = "the next events, as CloudEvents 1.0", body = EventPage),
        (status = 400, description = "`invalid_request`; `invalid_cursor`: the ledger has issued no such cursor", body = Problem),
        (status = 410, description = "`cursor_expired`: events behind the cursor were removed, because they were too old", body = Problem),
        (status = 503, description = "`unavailable`", body = Problem)),
    security(("admin" = [])))]
pub(crate) async fn list(
    State(app): State<App>,
    _: AdminWith<Read>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
    stopping: Option<Extension<Stopping>>,
) -> Result<Response, Problem> {
    let mut wanted = Wanted::parse(&query.unwrap_or_default())?;
    let wants_stream = accepts_stream(&headers);
    if wants_stream && let Some(last) = last_event(&headers)? {
        wanted.after = After::Cursor(last);
    }
    let stop = stopping.map_or_else(CancellationToken::new, |Extension(Stopping(stop))| stop);
    let reader = Reader::start(app, wanted.after, stop).await?;
    if wants_stream {
        return Ok(streamed(reader));
    }
    let page = reader.page(wanted.limit, wanted.wait).await?;
    Ok(([(header::CACHE_CONTROL, "no-store")], axum::Json(page)).into_response())
}

/// The cursor of the last event that a stream has had. An empty one is none, as for `after`.
fn last_event(headers: &HeaderMap) -> Result<Option<EventCursor>, Problem> {
    let refused = |expected: &str| Problem::invalid_cursor(LAST_EVENT_ID, expected);
    let several = |several: Invalid| refused(&format!("expected {}", several.expected));
    let last = single(headers, LAST_EVENT_ID).map_err(several)?;
    let last = last.filter(|last| !last.is_empty());
    let cursor = last.map(|last| last.to_str().ok().and_then(|last| last.parse().ok()));
    cursor
        .map(|cursor| cursor.ok_or_else(|| refused(CURSOR)))
        .transpose()
}

fn accepts_stream(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(header::ACCEPT).iter();
    accepted
        .filter_map(|value| value.to_str().ok())
        .any(|value| value.contains("text/event-stream"))
}

/// Reads from a cursor on.
struct Reader {
    app: App,
    cursor: EventCursor,
    /// The end of the events when there were none behind the cursor.
    empty_at: Option<EventCursor>,
    stop: CancellationToken,
}

impl Reader {
    /// A reader at a cursor that the ledger knows.
    async fn start(app: App, after: After, stop: CancellationToken) -> Result<Self, Problem> {
        let ledger = &app.engine.ledger;
        let cursor = match after {
            After::Cursor(cursor) => cursor,
            After::Now => app
                .event_reads
                .end_of_now(&**ledger)
                .await
                .map_err(EngineError::from)?,
            After::Oldest => EventCursor::START,
        };
        let first = app.event_reads.read(&**ledger, cursor, 1).await;
        let cursor = match first.map_err(EngineError::from)? {
            Events::Page(_) => cursor,
            Events::Removed(oldest) if after == After::Oldest => oldest,
            Events::Removed(_) => return Err(Problem::cursor_expired()),
            Events::Unknown => return Err(Problem::invalid_cursor("after", CURSOR)),
        };
        Ok(Self {
            app,
            cursor,
            empty_at: None,
            stop,
        })
    }

    /// The next events. Waits for the first of them.
    async fn page(mut self, limit: usize, wait: Duration) -> Result<EventPage, Problem> {
        let data = self.next(limit, Instant::now() + wait).await?;
        Ok(EventPage {
            data,
            next: self.cursor.to_string(),
        })
    }

    /// The next events. Empty: there were none `until` then, or the service stops.
    async fn next(&mut self, limit: usize, until: Instant) -> Result<Vec<CloudEvent>, Problem> {
        loop {
            let events = self.read(limit).await?;
            if !events.is_empty() || Instant::now() >= until || self.stop.is_cancelled() {
                return Ok(events);
            }
            tokio::select! {
                () = sleep_until((Instant::now() + POLL_INTERVAL).min(until)) => {}
                () = self.stop.cancelled() => {}
            }
        }
    }

    /// The next events, if there may be any.
    async fn read(&mut self, limit: usize) -> Result<Vec<CloudEvent>, Problem> {
        let (reads, ledger) = (&self.app.event_reads, &*self.app.engine.ledger);
        // Before the read: what comes in between moves the end once more.
        let end = reads.end(ledger).await.map_err(EngineError::from)?;
        if self.empty_at == Some(end) {
            return Ok(Vec::new());
        }
        let events = match reads.read(ledger, self.cursor, limit).await {
            Ok(Events::Page(events)) => events,
            Ok(Events::Removed(_)) => return Err(Problem::cursor_expired()),
            Ok(Events::Unknown) => return Err(Problem::invalid_cursor("after", CURSOR)),
            Err(error) => return Err(EngineError::from(error).into()),
        };
        match events.last() {
            Some(last) => self.cursor = last.cursor,
            None => self.empty_at = Some(end),
        }
        Ok(events.into_iter().map(CloudEvent::from).collect())
    }
}

/// The stream ends when the service stops, or when the ledger fails. The client then resumes it with
/// the id of the last event.
fn streamed(reader: Reader) -> Response {
    let keep_alive = KeepAlive::new().interval(KEEP_ALIVE);
    Sse::new(stream_of(reader))
        .keep_alive(keep_alive)
        .into_response()
}

fn stream_of(reader: Reader) -> impl Stream<Item = Result<SseEvent, std::convert::Infallible>> {
    let start = (reader, VecDeque::new());
    stream::unfold(start, async |(mut reader, mut events)| {
        while events.is_empty() {
            if reader.stop.is_cancelled() {
                return None;
            }
            let until = Instant::now() + Duration::from_secs(WAIT_MAX);
            events.extend(reader.next(STREAM_PAGE, until).await.ok()?);
        }
        let event: CloudEvent = events.pop_front()?;
        let sent = SseEvent::default().id(&event.id).data(event.to_json());
        Some((Ok(sent), (reader, events)))
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{After, Wanted};

    #[test]
    fn every_wrong_parameter_is_named() {
        let wanted = Wanted::parse("after=812-14&wait=30&limit=1000").unwrap();
        assert_eq!(wanted.after, After::Cursor("812-14".parse().unwrap()));
        assert_eq!((wanted.wait, wanted.limit), (Duration::from_secs(30), 1000));
        assert_eq!(Wanted::parse("after=now").unwrap().after, After::Now);
        for query in ["", "after=", "after=&wait=1"] {
            assert_eq!(
                Wanted::parse(query).unwrap().after,
                After::Oldest,
                "{query}"
            );
        }
        let table = [
            ("after=1", vec!["/after"]),
            ("wait=61", vec!["/wait"]),
            ("wait=-1", vec!["/wait"]),
            ("wait=1.5", vec!["/wait"]),
            ("limit=0", vec!["/limit"]),
            ("limit=1001", vec!["/limit"]),
            ("first=1", vec!["/first"]),
            ("after=now&after=", vec!["/after"]),
            ("after=x&wait=x&limit=x", vec!["/after", "/wait", "/limit"]),
        ];
        for (query, pointers) in table {
            let problem = serde_json::to_value(Wanted::parse(query).unwrap_err()).unwrap();
            let errors = problem["errors"].as_array().unwrap();
            let found: Vec<_> = errors
                .iter()
                .map(|error| error["pointer"].as_str().unwrap())
                .collect();
            assert_eq!(found, pointers, "{problem}");
        }
    }
}
