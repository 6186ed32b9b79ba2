//! Counts SQL statements, for any database. sqlx logs one event for each statement.
//!
//! SQLite's statements run on a separate thread, so the thread does not identify the test. sqlx
//! carries the caller's span over to that thread; statements are therefore assigned by span, and
//! one subscriber serves the whole process. Statements outside such a span are not logged at all,
//! so a concurrent test that counts allocations is not affected.

use std::{
    collections::HashMap,
    sync::{LazyLock, Mutex, MutexGuard, Once, PoisonError},
};

use tracing::{
    Event, Instrument, Metadata, Subscriber, field::Visit, level_filters::LevelFilter, span,
    subscriber::Interest,
};
use tracing_subscriber::{
    Layer, Registry,
    layer::{Context, SubscriberExt},
    registry::LookupSpan,
};

/// Name of the span in which statements are counted.
const SPAN: &str = "statements_are_counted";
/// Name of the span in which a connection is made or asked whether it is usable. When that happens
/// depends on time and on other tests, not on the work.
const UPKEEP: &str = "connection_upkeep";
const SQLX: &str = "sqlx::query";
/// With it a connection to SQLite is set up, when a pool makes one more.
const PRAGMA: &str = "PRAGMA";

/// The statements of each open span.
static SEEN: LazyLock<Mutex<HashMap<u64, Vec<String>>>> = LazyLock::new(Mutex::default);

fn seen() -> MutexGuard<'static, HashMap<u64, Vec<String>>> {
    SEEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The first word of every statement that `work` sends through sqlx, in order. sqlx does not
/// log the begin of a transaction on PostgreSQL.
///
/// # Panics
///
/// If the process already has another subscriber.
pub async fn statements<T>(work: impl Future<Output = T>) -> (T, Vec<String>) {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        let subscriber = Registry::default().with(Statements);
        tracing::subscriber::set_global_default(subscriber)
            .expect("no other subscriber in this process");
    });
    let span = tracing::info_span!(SPAN);
    let id = span.id().map_or(0, |id| id.into_u64());
    seen().insert(id, Vec::new());
    let done = work.instrument(span).await;
    (done, seen().remove(&id).unwrap_or_default())
}

struct Statements;

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Statements {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        match (metadata.name(), metadata.target()) {
            (SPAN | UPKEEP, _) => Interest::always(),
            (_, SQLX) => Interest::sometimes(),
            _ => Interest::never(),
        }
    }

    fn enabled(&self, metadata: &Metadata<'_>, context: Context<'_, S>) -> bool {
        matches!(metadata.name(), SPAN | UPKEEP)
            || (metadata.target() == SQLX && counted_in(context.lookup_current()).is_some())
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::TRACE)
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut statement = FirstWord(String::new());
        event.record(&mut statement);
        if let Some(id) = counted_in(context.event_span(event))
            && statement.0 != PRAGMA
            && let Some(statements) = seen().get_mut(&id.into_u64())
        {
            statements.push(statement.0);
        }
    }
}

/// The counting span among `span` and its ancestors. Statements of the upkeep do not count.
fn counted_in<'a, S: LookupSpan<'a>>(
    span: Option<tracing_subscriber::registry::SpanRef<'a, S>>,
) -> Option<span::Id> {
    span?
        .scope()
        .find(|span| matches!(span.name(), SPAN | UPKEEP))
        .filter(|span| span.name() == SPAN)
        .map(|span| span.id())
}

/// Collects the field `summary`: the first words of the statement.
struct FirstWord(String);

impl Visit for FirstWord {
    fn record_str(&mut self, field: &tracing::field::Field, value: &str) {
        if field.name() == "summary" {
            self.0 = value.split(' ').next().unwrap_or_default().to_owned();
        }
    }

    fn record_debug(&mut self, _: &tracing::field::Field, _: &dyn std::fmt::Debug) {}
}
