//! The task of one sink: leases it, reads its next events, publishes them, and moves its position
//! after the broker has acknowledged them.

use std::{error::Error, time::Duration};

use events::CloudEvent;
use jiff::Timestamp;
use ledger::{Event, EventCursor, Events, LedgerError};
use supervision::ErrorLatch;
use tokio::time::{Instant, timeout};

use super::{Broker, SinkError, SinkSettings};
use crate::{ERRORS, Publisher, RELEASE_TIMEOUT};

/// Events of one read: what a crash repeats at most.
const PAGE: usize = 100;

/// How long events that are being published still get when the publisher stops.
const GRACE: Duration = Duration::from_secs(2);

/// What the task does next.
#[derive(Debug, Clone, Copy)]
enum Next {
    /// There may be more events.
    Read,
    /// There are none now, another publisher has the sink, or the broker has failed.
    Pause(Duration),
}

/// Publishes to the sink until the publisher stops.
pub(crate) async fn run(publisher: &Publisher, settings: &SinkSettings) {
    let broker = match settings.open() {
        Ok(broker) => broker,
        Err(error) => {
            let error: &(dyn Error + 'static) = &error;
            tracing::error!(sink = settings.name(), error, "no events for the sink");
            return;
        }
    };
    let mut sink = Sink {
        publisher,
        name: settings.name(),
        broker,
        lease: None,
        failures: 0,
        reading: ErrorLatch::new("reading events for a sink", ERRORS),
        publishing: ErrorLatch::new(what(settings), "stockade_sink_errors_total"),
    };
    while !publisher.stop.is_cancelled() {
        let pause = match sink.step().await {
            Ok(next) => {
                sink.reading.recovered();
                next
            }
            Err(error) => {
                sink.reading.failed(&error);
                Next::Pause(publisher.settings.poll_interval)
            }
        };
        if let Next::Pause(pause) = pause {
            publisher.is_stopped_after(pause).await;
        }
    }
    sink.release().await;
}

fn what(settings: &SinkSettings) -> &'static str {
    match settings {
        SinkSettings::Redis { .. } => "publishing events to the Redis stream",
        SinkSettings::Nats { .. } => "publishing events to NATS",
        SinkSettings::Amqp { .. } => "publishing events to the AMQP exchange",
    }
}

struct Sink<'a> {
    publisher: &'a Publisher,
    name: &'static str,
    broker: Box<dyn Broker>,
    lease: Option<Lease>,
    /// Failed attempts in a row.
    failures: u32,
    reading: ErrorLatch,
    publishing: ErrorLatch,
}

/// What this publisher knows of a sink that it has.
#[derive(Clone, Copy)]
struct Lease {
    cursor: EventCursor,
    renewed: Instant,
}

impl Sink<'_> {
    /// Publishes the next page of events, up to the first that fails.
    async fn step(&mut self) -> Result<Next, LedgerError> {
        let Some(cursor) = self.leased().await? else {
            // The publisher that has it reports it.
            self.report_lag(None);
            return Ok(Next::Pause(self.part_of_lease() / 2));
        };
        match self.publisher.ledger.events(cursor, PAGE).await? {
            Events::Page(events) if events.is_empty() => {
                self.report_lag(None);
                Ok(Next::Pause(self.publisher.settings.poll_interval))
            }
            Events::Page(events) => self.publish(&events).await,
            Events::Removed(oldest) => {
                tracing::warn!(
                    sink = self.name,
                    "events that the sink has not got were removed, because it was not in use for days"
                );
                self.advance(oldest).await?;
                Ok(Next::Read)
            }
            Events::Unknown => Ok(self.failed(&SinkError::UnknownPosition)),
        }
    }

    /// A third of the lease: a step that takes as long ends before the lease does.
    fn part_of_lease(&self) -> Duration {
        self.publisher.settings.lease / 3
    }

    /// How far the sink has got, if this publisher has it. Renews the lease in time.
    async fn leased(&mut self) -> Result<Option<EventCursor>, LedgerError> {
        if let Some(lease) = self.lease
            && lease.renewed.elapsed() < self.part_of_lease()
        {
            return Ok(Some(lease.cursor));
        }
        let (renewed, publisher) = (Instant::now(), self.publisher);
        let leased = publisher
            .ledger
            .lease_sink(self.name, publisher.id, publisher.settings.lease);
        let cursor = leased.await?;
        self.lease = cursor.map(|cursor| Lease { cursor, renewed });
        Ok(cursor)
    }

    async fn publish(&mut self, events: &[Event]) -> Result<Next, LedgerError> {
        self.report_lag(events.first());
        let (acknowledged, result) = self.send(events).await;
        let published = metrics::counter!("stockade_sink_events_total", "sink" => self.name);
        published.increment(acknowledged as u64);
        if let Some(last) = acknowledged.checked_sub(1) {
            self.advance(events[last].cursor).await?;
            self.failures = 0;
        }
        match result {
            Err(error) => return Ok(self.failed(&error)),
            Ok(()) if acknowledged > 0 => self.publishing.recovered(),
            // The publisher stops.
            Ok(()) => {}
        }
        Ok(Next::Read)
    }

    /// Sends the events in order, up to the first that fails. Returns how many the broker has
    /// acknowledged.
    async fn send(&mut self, events: &[Event]) -> (usize, Result<(), SinkError>) {
        let envelopes: Vec<_> = events.iter().cloned().map(CloudEvent::from).collect();
        let (began, part) = (Instant::now(), self.part_of_lease());
        let response = part.min(self.publisher.settings.request_timeout);
        let mut acknowledged = 0;
        while acknowledged < envelopes.len()
            && began.elapsed() < part
            && !self.publisher.stop.is_cancelled()
        {
            let published = self.broker.publish(&envelopes[acknowledged..]);
            let published = tokio::select! {
                published = timeout(response, published) => published,
                // The next publisher sends it again.
                () = self.publisher.stopped_for(GRACE) => break,
            };
            match published.unwrap_or(Err(SinkError::Timeout)) {
                Ok(count) => acknowledged += count,
                Err(error) => return (acknowledged, Err(error)),
            }
        }
        (acknowledged, Ok(()))
    }

    async fn advance(&mut self, to: EventCursor) -> Result<(), LedgerError> {
        let publisher = self.publisher;
        let advanced = publisher.ledger.advance_sink(self.name, publisher.id, to);
        let has = advanced.await?;
        self.lease = self.lease.filter(|_| has).map(|lease| Lease {
            cursor: to,
            ..lease
        });
        Ok(())
    }

    /// Notes a failed attempt, and how long to wait for the next one.
    fn failed(&mut self, error: &SinkError) -> Next {
        self.publishing.failed(error);
        let factor = 2_u32.saturating_pow(self.failures.min(16));
        self.failures = self.failures.saturating_add(1);
        let pause = self.publisher.settings.poll_interval.saturating_mul(factor);
        // Not longer, or the lease would end.
        Next::Pause(pause.min(self.part_of_lease()))
    }

    async fn release(&self) {
        let publisher = self.publisher;
        let released = publisher.ledger.release_sink(self.name, publisher.id);
        if let Ok(Err(error)) = timeout(RELEASE_TIMEOUT, released).await {
            let error: &(dyn Error + 'static) = &error;
            tracing::debug!(error, "could not release a sink");
        }
    }

    /// How old the oldest event is that the broker has not acknowledged.
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    fn report_lag(&self, oldest: Option<&Event>) {
        let age = oldest.map_or(0, |event| {
            Timestamp::now().as_millisecond() - event.at.as_millisecond()
        });
        metrics::gauge!("stockade_sink_lag_seconds", "sink" => self.name)
            .set(age.max(0) as f64 / 1000.0);
    }
}
