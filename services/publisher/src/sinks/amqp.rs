//! An exchange of an AMQP 0.9.1 broker: a persistent message for each event.

use async_trait::async_trait;
use events::CloudEvent;
use lapin::{
    BasicProperties, Channel, Confirmation, Connection, ConnectionProperties, ExchangeKind,
    options::{BasicPublishOptions, ConfirmSelectOptions, ExchangeDeclareOptions},
    types::FieldTable,
    uri::AMQPUri,
};

use super::{Broker, CONTENT_TYPE, SinkError, routing_key};

/// Delivery mode of a message that the broker writes to its disk.
const PERSISTENT: u8 = 2;

/// The exchange.
pub(super) struct Exchange {
    uri: AMQPUri,
    name: String,
    /// Dropped after a failure. The connection ends with its last part.
    open: Option<(Connection, Channel)>,
}

impl Exchange {
    pub(super) fn open(url: &str, name: &str) -> Result<Self, SinkError> {
        let expected = "amqp://USER:PASSWORD@HOST:PORT/VHOST or the same with amqps";
        Ok(Self {
            uri: url.parse().map_err(|_| SinkError::Url(expected))?,
            name: name.to_owned(),
            open: None,
        })
    }

    async fn connect(&self) -> Result<(Connection, Channel), lapin::Error> {
        let properties = ConnectionProperties::default().with_connection_name("stockade".into());
        let connection = Connection::connect_uri(self.uri.clone(), properties).await?;
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

    /// Mandatory: an event for which there is no queue comes back, and is not lost.
    async fn send(
        &self,
        channel: &Channel,
        event: &CloudEvent,
    ) -> Result<Confirmation, lapin::Error> {
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
        let sent = channel.basic_publish(name, key, options, body.as_bytes(), properties);
        sent.await?.await
    }
}

#[async_trait]
impl Broker for Exchange {
    async fn publish(&mut self, events: &[CloudEvent]) -> Result<usize, SinkError> {
        let Some(first) = events.first() else {
            return Ok(0);
        };
        let open = match self.open.take() {
            Some(open) => open,
            None => self
                .connect()
                .await
                .map_err(|error| SinkError::broker(&error))?,
        };
        let sent = self.send(&open.1, first).await;
        let confirmation = sent.map_err(|error| SinkError::broker(&error))?;
        self.open = Some(open);
        match confirmation {
            Confirmation::Ack(None) => Ok(1),
            Confirmation::Ack(Some(_)) => Err(SinkError::Unroutable(routing_key(first))),
            _ => Err(SinkError::Broker("the broker refused the event".into())),
        }
    }
}
