//! A stream of a Redis server: an entry for each event.

use async_trait::async_trait;
use events::CloudEvent;
use redis::{AsyncConnectionConfig, Client, Pipeline, TlsCertificates, aio::MultiplexedConnection};

use super::{Broker, SinkError};

/// The stream.
pub(super) struct RedisStream {
    client: Client,
    /// Dropped after a failure: it may lead to a server that is a replica now.
    connection: Option<MultiplexedConnection>,
    stream: String,
    entries_max: usize,
}

impl RedisStream {
    pub(super) fn open(
        url: &str,
        tls: Option<&TlsCertificates>,
        stream: &str,
        entries_max: usize,
    ) -> Result<Self, SinkError> {
        let client = match tls {
            Some(tls) if url.starts_with("rediss:") => Client::build_with_tls(url, tls.clone()),
            _ => Client::open(url),
        };
        let expected = "redis://HOST:PORT or rediss://HOST:PORT";
        Ok(Self {
            client: client.map_err(|_| SinkError::Url(expected))?,
            connection: None,
            stream: stream.to_owned(),
            entries_max,
        })
    }

    async fn connect(&self) -> Result<MultiplexedConnection, SinkError> {
        // The caller has a timeout for all of it.
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(None);
        let connected = self
            .client
            .get_multiplexed_async_connection_with_config(&config);
        connected.await.map_err(|error| SinkError::broker(&error))
    }

    /// All or none: an entry that Redis refuses must not let a later one overtake it.
    fn additions(&self, events: &[CloudEvent]) -> Pipeline {
        let mut additions = redis::pipe();
        additions.atomic();
        for event in events {
            additions
                .cmd("XADD")
                .arg(&self.stream)
                .arg("MAXLEN")
                .arg("~")
                .arg(self.entries_max)
                .arg("*")
                .arg(&[("id", &event.id), ("type", &event.kind)])
                .arg(&[("subject", &event.subject), ("event", &event.to_json())])
                .ignore();
        }
        additions
    }
}

#[async_trait]
impl Broker for RedisStream {
    async fn publish(&mut self, events: &[CloudEvent]) -> Result<usize, SinkError> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => self.connect().await?,
        };
        let added = self.additions(events).exec_async(&mut connection).await;
        added.map_err(|error| SinkError::broker(&error))?;
        self.connection = Some(connection);
        Ok(events.len())
    }
}
