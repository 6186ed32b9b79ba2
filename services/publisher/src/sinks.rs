//! Sinks: brokers that get every event.
//!
//! A broker knows how to publish events and when they are acknowledged. The task of a sink does the
//! rest: the lease, the position, repeats and metrics are the same for every broker.

#[cfg(feature = "amqp")]
mod amqp;
#[cfg(feature = "nats")]
mod nats;
mod redis;
mod task;

use std::{fmt, time::Duration};

use ::redis::TlsCertificates;
use async_trait::async_trait;
use events::CloudEvent;

pub(crate) use task::run;

/// Where a sink is, and under which names its broker keeps the events.
#[derive(Clone)]
pub enum SinkSettings {
    /// A stream of one Redis server.
    Redis {
        /// `redis://HOST:PORT`, or `rediss` for TLS.
        url: String,
        /// Certificates of `rediss`, unless they are those that browsers trust.
        tls: Option<TlsCertificates>,
        /// Key of the stream.
        stream: String,
        /// Entries that the stream keeps, about.
        entries_max: usize,
    },
    /// A stream of NATS JetStream.
    Nats {
        /// `nats://HOST:PORT` of the servers of one cluster, or `tls` for TLS.
        urls: Vec<String>,
        /// An authority besides those of the system, and a certificate of ours, for `tls`.
        tls: Option<TlsCertificates>,
        /// Content of a credentials file (`.creds`): a user's JWT, and the seed that signs for it.
        credentials: Option<String>,
        /// The stream, created if it is missing.
        stream: String,
        /// First word of the events' subjects.
        subject: String,
        /// How long a stream that is created keeps events.
        keep: Duration,
    },
    /// An exchange of an AMQP 0.9.1 broker.
    Amqp {
        /// `amqp://HOST:PORT/VHOST`, or `amqps` for TLS.
        url: String,
        /// An authority besides those that browsers trust, and a certificate of ours, for `amqps`.
        tls: Option<TlsCertificates>,
        /// The exchange, of the type `topic`, created if it is missing.
        exchange: String,
    },
}

impl fmt::Debug for SinkSettings {
    /// Without the URL, which may have a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Sink").field(&self.name()).finish()
    }
}

/// Why events were not published.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SinkError {
    /// The URL cannot be read. It is not shown, because it may have a password.
    #[error("expected {0}")]
    Url(&'static str),
    /// A certificate or its key cannot be used.
    #[error("STOCKADE_TLS_CA, STOCKADE_TLS_CERT, STOCKADE_TLS_KEY: {0}")]
    Certificates(String),
    /// The credentials file cannot be read. It is not shown, because it has a secret.
    #[error(
        "STOCKADE_EVENTS_NATS_CREDENTIALS: expected a credentials file (.creds) with a user's JWT and its seed"
    )]
    Credentials,
    /// The program was built without this kind of sink.
    #[error("{0} is not compiled in; build stockade with `--features {0}`")]
    NotCompiled(&'static str),
    /// The broker cannot be reached, or refuses.
    #[error("{0}")]
    Broker(String),
    /// No queue takes the event.
    #[error(
        "no queue is bound for {0}: bind one with the key `#`, or give the exchange an alternate exchange"
    )]
    Unroutable(String),
    /// The broker has not acknowledged the events in time.
    #[error("the broker did not answer in time")]
    Timeout,
    /// The ledger has other events than when the sink was last published to.
    #[error(
        "the ledger does not know the sink's position; was it restored from a backup? Delete its row in `sinks`, and it starts with the oldest event"
    )]
    UnknownPosition,
}

impl SinkError {
    fn broker(error: &dyn std::error::Error) -> Self {
        Self::Broker(error.to_string())
    }
}

/// A connection to a broker, made when it is needed.
#[async_trait]
pub(crate) trait Broker: Send + Sync {
    /// Publishes the first events, one or more of them, in order. Returns how many, after the
    /// broker has acknowledged them. After an error, or if the future was dropped, they may be
    /// published or not.
    async fn publish(&mut self, events: &[CloudEvent]) -> Result<usize, SinkError>;
}

impl SinkSettings {
    /// The name of the sink in the ledger and in metrics.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Redis { .. } => "redis",
            Self::Nats { .. } => "nats",
            Self::Amqp { .. } => "amqp",
        }
    }

    /// Checks what can be checked without the broker.
    pub fn check(&self) -> Result<(), SinkError> {
        self.open().map(drop)
    }

    pub(crate) fn open(&self) -> Result<Box<dyn Broker>, SinkError> {
        match self {
            Self::Redis {
                url,
                tls,
                stream,
                entries_max,
            } => {
                let opened = redis::RedisStream::open(url, tls.as_ref(), stream, *entries_max)?;
                Ok(Box::new(opened))
            }
            #[cfg(feature = "nats")]
            Self::Nats {
                urls,
                tls,
                credentials,
                stream,
                subject,
                keep,
            } => {
                let access = nats::Access::new(urls, tls.as_ref(), credentials.as_deref())?;
                let opened = nats::JetStream::open(access, stream, subject, *keep);
                Ok(Box::new(opened))
            }
            #[cfg(feature = "amqp")]
            Self::Amqp { url, tls, exchange } => {
                let opened = amqp::Exchange::open(url, tls.as_ref(), exchange)?;
                Ok(Box::new(opened))
            }
            #[cfg(not(all(feature = "nats", feature = "amqp")))]
            missing => Err(SinkError::NotCompiled(missing.name())),
        }
    }
}

/// The media type of an event as JSON.
#[cfg(any(feature = "nats", feature = "amqp"))]
const CONTENT_TYPE: &str = "application/cloudevents+json";

/// `order.held.vase`: the kind and the item, by which consumers choose events. The last word may
/// have dots.
#[cfg(any(feature = "nats", feature = "amqp"))]
fn routing_key(event: &CloudEvent) -> String {
    let kind = event.kind.strip_prefix(events::TYPE_PREFIX);
    format!("{}.{}", kind.unwrap_or(&event.kind), event.subject)
}
