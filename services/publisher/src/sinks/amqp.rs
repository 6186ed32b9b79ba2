//! An exchange of an AMQP 0.9.1 broker: a persistent message for each event.
//!
//! A broker confirms a message only after its disk has it, so events are sent in batches: the
//! confirmations of a batch wait for the disk together.

use std::collections::HashSet;

use async_trait::async_trait;
use events::CloudEvent;
use futures::future::try_join_all;
use lapin::{
    BasicProperties, Channel, Confirmation, Connection, ConnectionProperties, ExchangeKind,
    PublisherConfirm,
    options::{BasicPublishOptions, ConfirmSelectOptions, ExchangeDeclareOptions},
    runtime::default_runtime,
    tcp::{OwnedIdentity, OwnedTLSConfig},
    types::FieldTable,
    uri::AMQPUri,
};
use redis::{ClientTlsConfig, TlsCertificates};

use super::{Broker, CONTENT_TYPE, SinkError, routing_key};

/// Delivery mode of a message that the broker writes to its disk.
const PERSISTENT: u8 = 2;

/// Events whose confirmations are awaited together.
const BATCH_MAX: usize = 100;

/// The exchange.
pub(super) struct Exchange {
    uri: AMQPUri,
    tls: Option<TlsCertificates>,
    name: String,
    /// Dropped after a failure. The connection ends with its last part.
    open: Option<(Connection, Channel)>,
    /// Events of the next batch. One after a failure, and twice as many after each success, so that
    /// no event overtakes one that the broker keeps refusing.
    batch: usize,
}

/// What the broker made of a batch.
struct Outcome {
    /// Events before the first that it refused.
    accepted: usize,
    refused: Option<SinkError>,
}

impl Exchange {
    pub(super) fn open(
        url: &str,
        tls: Option<&TlsCertificates>,
        name: &str,
    ) -> Result<Self, SinkError> {
        let expected = "amqp://USER:PASSWORD@HOST:PORT/VHOST or the same with amqps";
        Ok(Self {
            uri: url.parse().map_err(|_| SinkError::Url(expected))?,
            tls: tls.cloned(),
            name: name.to_owned(),
            open: None,
            batch: 1,
        })
    }

    async fn connect(&self) -> Result<(Connection, Channel), lapin::Error> {
        let properties = ConnectionProperties::default().with_connection_name("stockade".into());
        let (uri, runtime) = (self.uri.clone(), default_runtime()?);
        let connection =
            Connection::connect_uri_with_config(uri, properties, self.certificates(), runtime);
        let connection = connection.await?;
        let channel = connection.create_channel().await?;
        channel
            .confirm_select(ConfirmSelectOptions::default())
            .await?;
        let durable = ExchangeDeclareOptions {
            durable: true,
            ..ExchangeDeclareOptions::default()
        };
        let (name, kind) = (self.name.as_str().into(), ExchangeKind::Topic);
        channel
            .exchange_declare(name, kind, durable, FieldTable::default())
            .await?;
        Ok((connection, channel))
    }

    fn certificates(&self) -> OwnedTLSConfig {
        let Some(tls) = &self.tls else {
            return OwnedTLSConfig::default();
        };
        let text = |pem: &Vec<u8>| String::from_utf8_lossy(pem).into_owned();
        let identity = |own: &ClientTlsConfig| OwnedIdentity::PKCS8 {
            pem: own.client_cert.clone(),
            key: own.client_key.clone(),
        };
        OwnedTLSConfig {
            identity: tls.client_tls.as_ref().map(identity),
            cert_chain: tls.root_cert.as_ref().map(text),
        }
    }

    /// Mandatory: an event for which there is no queue comes back, and is not lost.
    async fn send(
        &self,
        channel: &Channel,
        event: &CloudEvent,
    ) -> Result<PublisherConfirm, lapin::Error> {
        let options = BasicPublishOptions {
            mandatory: true,
            ..BasicPublishOptions::default()
        };
        let properties = BasicProperties::default()
            .with_message_id(event.id.as_str().into())
            .with_type(event.kind.as_str().into())
            .with_content_type(CONTENT_TYPE.into())
            .with_delivery_mode(PERSISTENT);
        let (name, key) = (self.name.as_str().into(), routing_key(event).into());
        let body = event.to_json();
        channel
            .basic_publish(name, key, options, body.as_bytes(), properties)
            .await
    }

    /// Sends all events, and returns when the broker has answered for each.
    async fn send_all(
        &self,
        channel: &Channel,
        events: &[CloudEvent],
    ) -> Result<Vec<Confirmation>, lapin::Error> {
        let mut confirmations = Vec::with_capacity(events.len());
        for event in events {
            confirmations.push(self.send(channel, event).await?);
        }
        try_join_all(confirmations).await
    }
}

/// lapin hands a returned message to whichever confirmation comes next, so returned events are
/// found by their ids.
fn outcome(events: &[CloudEvent], confirmations: Vec<Confirmation>) -> Outcome {
    let is_refused: Vec<_> = confirmations
        .iter()
        .map(|confirmation| !confirmation.is_ack())
        .collect();
    let returned: HashSet<_> = confirmations
        .into_iter()
        .filter_map(Confirmation::take_message)
        .filter_map(|message| message.delivery.properties.message_id().clone())
        .map(|id| id.to_string())
        .collect();
    for (accepted, (event, is_refused)) in events.iter().zip(is_refused).enumerate() {
        let refused = if returned.contains(&event.id) {
            SinkError::Unroutable(routing_key(event))
        } else if is_refused {
            SinkError::Broker("the broker refused the event".into())
        } else {
            continue;
        };
        return Outcome {
            accepted,
            refused: Some(refused),
        };
    }
    Outcome {
        accepted: events.len(),
        refused: None,
    }
}

#[async_trait]
impl Broker for Exchange {
    async fn publish(&mut self, events: &[CloudEvent]) -> Result<usize, SinkError> {
        let batch = self.batch;
        let events = &events[..events.len().min(batch)];
        // Both are as after a failure until this batch has succeeded, even if the future is
        // dropped.
        self.batch = 1;
        let open = match self.open.take() {
            Some(open) => open,
            None => self
                .connect()
                .await
                .map_err(|error| SinkError::broker(&error))?,
        };
        let confirmations = self.send_all(&open.1, events).await;
        let confirmations = confirmations.map_err(|error| SinkError::broker(&error))?;
        self.open = Some(open);
        match outcome(events, confirmations) {
            Outcome {
                accepted: 0,
                refused: Some(error),
            } => Err(error),
            Outcome { accepted, refused } => {
                if refused.is_none() {
                    self.batch = (batch * 2).min(BATCH_MAX);
                }
                Ok(accepted)
            }
        }
    }
}
