//! Real brokers, and what they have of the events.

use publisher::SinkSettings;
use serde_json::Value;
use testbed::{Redis, timeout};

/// An event as a consumer of the broker gets it.
#[derive(Debug, Clone)]
pub struct Received {
    pub id: String,
    pub event: Value,
}

impl Received {
    fn new(id: &str, event: &[u8]) -> Self {
        let event: Value = serde_json::from_slice(event).unwrap();
        assert_eq!(event["id"], id);
        Self {
            id: id.to_owned(),
            event,
        }
    }

    pub fn item(&self) -> &str {
        self.event["subject"].as_str().unwrap()
    }
}

/// A broker that a test may break.
#[allow(async_fn_in_trait)]
pub trait Broker: Sized {
    async fn start() -> Self;
    fn sink(&self) -> SinkSettings;
    /// All events so far, in the broker's order, repeats included.
    async fn received(&mut self) -> Vec<Received>;
    async fn kill(&mut self);
    async fn restart(&mut self);
    async fn pause(&self);
    async fn resume(&self);
    /// The last lines of the broker's log.
    fn log(&self) -> String;

    /// The same without repeats.
    async fn distinct(&mut self) -> Vec<Received> {
        let mut distinct: Vec<Received> = Vec::new();
        for one in self.received().await {
            if distinct.iter().all(|known| known.id != one.id) {
                distinct.push(one);
            }
        }
        distinct
    }
}

macro_rules! faults {
    ($server:ident) => {
        async fn kill(&mut self) {
            self.$server.kill().await.unwrap();
        }

        async fn restart(&mut self) {
            self.$server.restart().await.unwrap();
        }

        async fn pause(&self) {
            self.$server.pause().await.unwrap();
        }

        async fn resume(&self) {
            self.$server.resume().await.unwrap();
        }

        fn log(&self) -> String {
            self.$server.log_tail()
        }
    };
}

pub struct RedisStream {
    pub server: Redis,
    pub entries_max: usize,
}

impl RedisStream {
    pub async fn connection(&self) -> redis::aio::MultiplexedConnection {
        let client = redis::Client::open(self.server.url()).unwrap();
        let patient = redis::AsyncConnectionConfig::new()
            .set_connection_timeout(Some(timeout()))
            .set_response_timeout(Some(timeout()));
        let connection = client.get_multiplexed_async_connection_with_config(&patient);
        connection.await.unwrap()
    }
}

impl Broker for RedisStream {
    async fn start() -> Self {
        Self {
            server: Redis::start().await.unwrap(),
            entries_max: 100_000,
        }
    }

    fn sink(&self) -> SinkSettings {
        SinkSettings::Redis {
            url: self.server.url(),
            tls: None,
            stream: "shop:events".into(),
            entries_max: self.entries_max,
        }
    }

    async fn received(&mut self) -> Vec<Received> {
        let mut connection = self.connection().await;
        let all = redis::cmd("XRANGE")
            .arg(&["shop:events", "-", "+"])
            .to_owned();
        let all: redis::streams::StreamRangeReply = all.query_async(&mut connection).await.unwrap();
        let text = |entry: &redis::streams::StreamId, field| entry.get::<String>(field).unwrap();
        let received = |entry: &redis::streams::StreamId| {
            let event = text(entry, "event");
            let received = Received::new(&text(entry, "id"), event.as_bytes());
            assert_eq!(received.event["type"], text(entry, "type"));
            assert_eq!(received.item(), text(entry, "subject"));
            received
        };
        all.ids.iter().map(received).collect()
    }

    faults!(server);
}

#[cfg(feature = "nats")]
pub struct JetStream {
    server: testbed::Nats,
}

#[cfg(feature = "nats")]
impl Broker for JetStream {
    async fn start() -> Self {
        Self {
            server: testbed::Nats::start().await.unwrap(),
        }
    }

    fn sink(&self) -> SinkSettings {
        SinkSettings::Nats {
            urls: vec![self.server.url()],
            tls: None,
            credentials: None,
            stream: "SHOP".into(),
            subject: "shop".into(),
            keep: std::time::Duration::from_secs(86_400),
        }
    }

    async fn received(&mut self) -> Vec<Received> {
        let client = async_nats::connect(self.server.url()).await.unwrap();
        let context = async_nats::jetstream::new(client);
        let Ok(mut stream) = context.get_stream("SHOP").await else {
            return Vec::new();
        };
        let last = stream.info().await.unwrap().state.last_sequence;
        let mut received = Vec::new();
        for sequence in 1..=last {
            let message = stream.get_raw_message(sequence).await.unwrap();
            let id = message.headers.get("Nats-Msg-Id").unwrap().as_str();
            let one = Received::new(id, &message.payload);
            let kind = one.event["type"].as_str().unwrap();
            let kind = kind.strip_prefix("stockade.").unwrap();
            assert_eq!(*message.subject, format!("shop.{kind}.{}", one.item()));
            received.push(one);
        }
        received
    }

    faults!(server);
}

#[cfg(feature = "amqp")]
pub use self::amqp::Exchange;

#[cfg(feature = "amqp")]
mod amqp {
    use std::sync::atomic::{AtomicU32, Ordering};

    use lapin::{
        Channel, Connection, ConnectionProperties, ExchangeKind,
        message::BasicGetMessage,
        options::{BasicGetOptions, ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions},
        types::FieldTable,
    };
    use publisher::SinkSettings;
    use testbed::{RabbitMq, eventually_some};
    use tokio::sync::{Mutex, MutexGuard, OnceCell};

    use super::{Broker, Received};

    /// An exchange of the server that the tests of this binary use one after the other.
    pub struct Exchange {
        server: MutexGuard<'static, RabbitMq>,
        name: String,
        received: Vec<Received>,
    }

    impl Exchange {
        /// An exchange to which no queue is bound.
        pub async fn without_queue() -> Self {
            static SERVER: OnceCell<Mutex<RabbitMq>> = OnceCell::const_new();
            static EXCHANGES: AtomicU32 = AtomicU32::new(0);
            let server = SERVER.get_or_init(async || Mutex::new(RabbitMq::start().await.unwrap()));
            Self {
                server: server.await.lock().await,
                name: format!("shop-{}", EXCHANGES.fetch_add(1, Ordering::Relaxed)),
                received: Vec::new(),
            }
        }

        /// A server that has just started greets its clients, and may refuse the first of them.
        async fn channel(&self) -> (Connection, Channel) {
            eventually_some("a channel of the broker", async || {
                let properties = ConnectionProperties::default();
                let connection = Connection::connect(&self.server.url(), properties).await;
                let connection = connection.ok()?;
                let channel = connection.create_channel().await.ok()?;
                Some((connection, channel))
            })
            .await
        }

        async fn next(&self, channel: &Channel) -> lapin::Result<Option<BasicGetMessage>> {
            let options = BasicGetOptions { no_ack: true };
            channel.basic_get(self.name.as_str().into(), options).await
        }

        pub async fn bind(&self) {
            let (_connection, channel) = self.channel().await;
            let name = || self.name.as_str().into();
            let durable = ExchangeDeclareOptions {
                durable: true,
                ..ExchangeDeclareOptions::default()
            };
            let none = FieldTable::default;
            channel
                .exchange_declare(name(), ExchangeKind::Topic, durable, none())
                .await
                .unwrap();
            channel
                .queue_declare(name(), QueueDeclareOptions::durable(), none())
                .await
                .unwrap();
            channel
                .queue_bind(
                    name(),
                    name(),
                    "#".into(),
                    QueueBindOptions::default(),
                    none(),
                )
                .await
                .unwrap();
        }
    }

    impl Broker for Exchange {
        async fn start() -> Self {
            let exchange = Self::without_queue().await;
            exchange.bind().await;
            exchange
        }

        fn sink(&self) -> SinkSettings {
            SinkSettings::Amqp {
                url: self.server.url(),
                tls: None,
                exchange: self.name.clone(),
            }
        }

        async fn received(&mut self) -> Vec<Received> {
            let (_connection, channel) = self.channel().await;
            // An error ends this look: the queue may not have recovered yet. The next look goes on.
            while let Some(message) = self.next(&channel).await.unwrap_or_else(|error| {
                eprintln!("the queue {}: {error}", self.name);
                None
            }) {
                let properties = &message.delivery.properties;
                let id = properties.message_id().clone().unwrap();
                assert_eq!(*properties.delivery_mode(), Some(2));
                let one = Received::new(id.as_str(), &message.delivery.data);
                let kind = one.event["type"].as_str().unwrap();
                let kind = kind.strip_prefix("stockade.").unwrap();
                let key = message.delivery.routing_key.as_str();
                assert_eq!(key, format!("{kind}.{}", one.item()));
                self.received.push(one);
            }
            self.received.clone()
        }

        faults!(server);
    }
}
