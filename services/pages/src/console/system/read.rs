//! What the page of the system reads. A store that does not answer leaves its part out, not the
//! page: this is the page on which an operator looks for the reason.

use std::{sync::Arc, time::Duration};

use audit::Snapshot;
use domain::ItemId;
use futures::{StreamExt, stream};
use jiff::Timestamp;
use ledger::{DatabaseReport, EventCursor, Events, SeenProcess};
use order::{Engine, engine::EngineError};
use stock::RedisReport;

/// How long a part may take.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Items whose segments are read, and how many concurrently.
const ITEMS_MAX: usize = 50;
const ITEMS_CONCURRENT: usize = 8;

/// A part, or why there is none.
pub(super) type Part<T> = Result<T, String>;

/// What the page shows.
pub(in super::super) struct System {
    pub(super) processes: Part<Vec<SeenProcess>>,
    pub(super) redis: Part<Vec<RedisReport>>,
    pub(super) ledger: Part<Database>,
    pub(super) segments: Part<Backlog>,
    pub(super) receivers: Part<Vec<Receiver>>,
}

/// The ledger's database.
pub(super) struct Database {
    pub report: DatabaseReport,
    /// Its clock less this machine's.
    pub clock_difference_ms: Option<i64>,
}

/// What the ledger does not have yet.
pub(super) struct Backlog {
    /// Items that sell or may sell again, and how many of them were read.
    pub items: usize,
    pub read: usize,
    /// Segments with outbox entries that the ledger does not have, those with the oldest first.
    pub behind: Vec<Behind>,
}

/// A segment that the ledger lags behind.
pub(super) struct Behind {
    pub item: ItemId,
    pub segment: u16,
    pub entries: usize,
    pub oldest_ms: u64,
}

/// What gets events: a sink or a webhook.
pub(super) struct Receiver {
    pub kind: &'static str,
    pub name: String,
    /// Age of the oldest event that it has not got. `None`: it has all.
    pub lag: Option<Duration>,
    /// Why it gets none, or is late.
    pub problem: Option<String>,
}

impl System {
    /// `at_work`: the items that sell, may sell again, or have units that are to return.
    pub(in super::super) async fn read(
        engine: &Arc<Engine>,
        at_work: impl Future<Output = Result<Arc<[ItemId]>, Arc<EngineError>>>,
    ) -> Self {
        let (stock, ledger) = (&engine.stock, &engine.ledger);
        let (processes, redis, database, segments, receivers) = tokio::join!(
            part(ledger.processes()),
            part(stock.inspect_servers()),
            part(database(engine)),
            part(backlog(engine, at_work)),
            part(receivers(engine)),
        );
        Self {
            processes,
            redis,
            ledger: database,
            segments,
            receivers,
        }
    }
}

async fn part<T, E: std::error::Error>(reading: impl Future<Output = Result<T, E>>) -> Part<T> {
    match tokio::time::timeout(TIMEOUT, reading).await {
        Ok(Ok(read)) => Ok(read),
        Ok(Err(error)) => Err(in_full(&error)),
        Err(_) => Err(format!("no answer within {} seconds", TIMEOUT.as_secs())),
    }
}

/// The error with its causes.
fn in_full(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text += &format!(": {error}");
        cause = error.source();
    }
    text
}

async fn database(engine: &Engine) -> Result<Database, ledger::LedgerError> {
    let before = Timestamp::now().as_millisecond();
    let report = engine.ledger.inspect().await?;
    let middle = i64::midpoint(before, Timestamp::now().as_millisecond());
    Ok(Database {
        clock_difference_ms: report.now_ms.map(|theirs| theirs - middle),
        report,
    })
}

async fn backlog(
    engine: &Arc<Engine>,
    at_work: impl Future<Output = Result<Arc<[ItemId]>, Arc<EngineError>>>,
) -> Result<Backlog, Arc<EngineError>> {
    let at_work = at_work.await?;
    let (items, read) = (at_work.len(), at_work.len().min(ITEMS_MAX));
    let mut reading = stream::iter(at_work[..read].to_vec())
        .map(|id| async move {
            let snapshots = audit::snapshots(&engine.stock, &*engine.ledger, &id).await;
            (id, snapshots)
        })
        .buffer_unordered(ITEMS_CONCURRENT);
    let mut behind = Vec::new();
    while let Some((id, snapshots)) = reading.next().await {
        let late = snapshots.map_err(EngineError::from)?;
        behind.extend(late.iter().filter_map(|segment| lag(&id, segment)));
    }
    behind.sort_by_key(|segment| segment.oldest_ms);
    Ok(Backlog {
        items,
        read,
        behind,
    })
}

fn lag(item: &ItemId, segment: &Snapshot) -> Option<Behind> {
    let unrecorded = &segment.unrecorded;
    let oldest_ms = unrecorded.oldest_ms?;
    Some(Behind {
        item: item.clone(),
        segment: segment.row.key.segment,
        entries: unrecorded.entries,
        oldest_ms,
    })
}

async fn receivers(engine: &Engine) -> Result<Vec<Receiver>, ledger::LedgerError> {
    let mut receivers = Vec::new();
    for sink in engine.ledger.sinks().await? {
        let (lag, problem) = lag_of(engine, sink.cursor).await?;
        receivers.push(Receiver {
            kind: "sink",
            name: sink.name,
            lag,
            problem,
        });
    }
    for webhook in engine.ledger.webhooks().await? {
        let (lag, problem) = lag_of(engine, webhook.cursor).await?;
        let failing = webhook.last_error.map(|error| {
            let failures = webhook.failures;
            format!("{failures} failed attempts in a row: {error}")
        });
        let disabled = webhook.disabled_at.map(|_| "disabled".to_owned());
        receivers.push(Receiver {
            kind: "webhook",
            // A path may have a secret.
            name: host_of(&webhook.webhook.url).to_owned(),
            lag,
            problem: disabled.or(failing).or(problem),
        });
    }
    Ok(receivers)
}

async fn lag_of(
    engine: &Engine,
    cursor: EventCursor,
) -> Result<(Option<Duration>, Option<String>), ledger::LedgerError> {
    Ok(match engine.ledger.events(cursor, 1).await? {
        Events::Page(events) => {
            let age = |event: &ledger::Event| Timestamp::now().duration_since(event.at);
            let age = events.first().map(age);
            (age.map(|age| age.try_into().unwrap_or_default()), None)
        }
        Events::Removed(_) => (None, Some("events that it has not got were removed".into())),
        Events::Unknown => (None, Some("the ledger does not know its position".into())),
    })
}

fn host_of(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let host = rest.split(['/', '?', '#']).next().unwrap_or(rest);
    host.rsplit('@').next().unwrap_or(host)
}

#[cfg(test)]
mod tests {
    use super::host_of;

    #[test]
    fn a_webhook_is_named_by_its_host_alone() {
        for (url, host) in [
            ("https://shop.example/hook?key=secret", "shop.example"),
            ("https://user:word@shop.example:8443/x", "shop.example:8443"),
            ("shop.example", "shop.example"),
        ] {
            assert_eq!(host_of(url), host);
        }
    }
}
