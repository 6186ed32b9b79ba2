//! A broker that gets every event, behind a proxy, and what it has got.

use std::{fmt, path::Path, process::Command, time::Duration};

use anyhow::{Context, Result};
use futures::{StreamExt, stream};
use lapin::{
    Channel, Connection, ConnectionProperties, ExchangeKind,
    options::{
        BasicAckOptions, BasicConsumeOptions, BasicQosOptions, ExchangeDeclareOptions,
        QueueBindOptions, QueueDeclareOptions,
    },
    types::FieldTable,
};
use testbed::{Nats, Proxy, RabbitMq, Redis};
use tokio::time::timeout;

use super::{Delivery, Inbox, Subscription};

/// The name of the stream, the exchange and the queue: the default of the settings.
const NAME: &str = "stockade";
/// The key of the Redis stream: the default of the setting.
const REDIS_STREAM: &str = "stockade:events";
const READ_TIMEOUT: Duration = Duration::from_secs(60);
/// Messages that are asked of NATS at a time.
const CONCURRENT_READS: usize = 64;
/// Messages that RabbitMQ sends ahead of the acknowledgements.
const PREFETCHED_MAX: u16 = 500;
/// Time without a message after which the queue counts as empty.
const QUIET: Duration = Duration::from_millis(300);

/// A kind of broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BrokerKind {
    /// A Redis stream.
    Redis,
    /// NATS JetStream.
    Nats,
    /// AMQP 0.9.1: RabbitMQ.
    Amqp,
}

impl BrokerKind {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::Redis, Self::Nats, Self::Amqp];

    fn variable(self) -> &'static str {
        match self {
            Self::Redis => "STOCKADE_EVENTS_REDIS",
            Self::Nats => "STOCKADE_EVENTS_NATS",
            Self::Amqp => "STOCKADE_EVENTS_AMQP",
        }
    }

    fn url(self, port: u16) -> String {
        match self {
            Self::Redis => format!("redis://127.0.0.1:{port}"),
            Self::Nats => format!("nats://127.0.0.1:{port}"),
            Self::Amqp => format!("amqp://guest:guest@127.0.0.1:{port}"),
        }
    }

    /// The kinds that the program was built with. It refuses the setting of any other.
    pub(crate) fn supported_by(program: &Path) -> Vec<Self> {
        let is_supported = |kind: &Self| {
            Command::new(program)
                .args(["--dir", "/nonexistent", "config"])
                .env(kind.variable(), kind.url(1))
                .output()
                .is_ok_and(|output| output.status.success())
        };
        Self::ALL.into_iter().filter(is_supported).collect()
    }
}

impl fmt::Display for BrokerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Redis => "redis",
            Self::Nats => "nats",
            Self::Amqp => "amqp",
        })
    }
}

/// A broker.
pub struct Broker {
    /// Its kind.
    pub kind: BrokerKind,
    /// The proxy between the publishers and the broker.
    pub proxy: Proxy,
    server: Server,
    inbox: Inbox,
}

/// The server, and how far it was read.
enum Server {
    Redis { server: Redis, last: String },
    Nats { server: Nats, last: u64 },
    Amqp(RabbitMq),
}

impl Broker {
    pub(super) async fn start(kind: BrokerKind) -> Result<Self> {
        let server = match kind {
            BrokerKind::Redis => Server::Redis {
                server: Redis::start().await?,
                last: "-".into(),
            },
            BrokerKind::Nats => Server::Nats {
                server: Nats::start().await?,
                last: 0,
            },
            BrokerKind::Amqp => {
                let server = RabbitMq::start().await?;
                bind_queue(&server).await?;
                Server::Amqp(server)
            }
        };
        let port = match &server {
            Server::Redis { server, .. } => server.port(),
            Server::Nats { server, .. } => server.port(),
            Server::Amqp(server) => server.port(),
        };
        Ok(Self {
            kind,
            proxy: Proxy::start(port).await?,
            server,
            inbox: Inbox::default(),
        })
    }

    /// The setting of a publisher that names it.
    pub(super) fn setting(&self) -> (&'static str, String) {
        (self.kind.variable(), self.kind.url(self.proxy.port()))
    }

    /// kill -9.
    pub(crate) async fn kill(&mut self) -> Result<()> {
        match &mut self.server {
            Server::Redis { server, .. } => server.kill().await?,
            Server::Nats { server, .. } => server.kill().await?,
            Server::Amqp(server) => server.kill().await?,
        }
        Ok(())
    }

    /// Starts it again with its data.
    pub(crate) async fn restart(&mut self) -> Result<()> {
        match &mut self.server {
            Server::Redis { server, .. } => server.restart().await?,
            Server::Nats { server, .. } => server.restart().await?,
            Server::Amqp(server) => server.restart().await?,
        }
        Ok(())
    }

    /// Reads what it has got since the last call, as a consumer of the broker does.
    pub(super) async fn read(&mut self) -> Result<()> {
        let inbox = &mut self.inbox;
        let read = async {
            match &mut self.server {
                Server::Redis { server, last } => read_stream(server, last, inbox).await,
                Server::Nats { server, last } => read_jetstream(server, last, inbox).await,
                Server::Amqp(server) => read_queue(server, inbox).await,
            }
        };
        timeout(READ_TIMEOUT, read).await.context("no answer")?
    }

    pub(super) fn subscription(&self) -> Subscription {
        Subscription {
            name: format!("the broker {}", self.kind),
            kinds: Vec::new(),
            first: 0,
            inbox: self.inbox.clone(),
        }
    }
}

async fn read_stream(server: &Redis, last: &mut String, inbox: &mut Inbox) -> Result<()> {
    let mut connection = testbed::patient_connection(&server.url()).await?;
    let mut command = redis::cmd("XRANGE");
    command.arg(&[REDIS_STREAM, last.as_str(), "+"]);
    let range: redis::streams::StreamRangeReply = command.query_async(&mut connection).await?;
    for entry in range.ids {
        let text = |field| entry.get::<String>(field).unwrap_or_default();
        inbox.add(Delivery::new(&text("id"), text("event").as_bytes()), true);
        *last = format!("({}", entry.id);
    }
    Ok(())
}

async fn read_jetstream(server: &Nats, last: &mut u64, inbox: &mut Inbox) -> Result<()> {
    let client = async_nats::connect(server.url()).await?;
    let context = async_nats::jetstream::new(client);
    // A publisher creates it.
    let Ok(mut jetstream) = context.get_stream(NAME).await else {
        return Ok(());
    };
    let end = jetstream.info().await?.state.last_sequence;
    let messages = stream::iter(*last + 1..=end).map(|number| jetstream.get_raw_message(number));
    let mut messages = messages.buffered(CONCURRENT_READS);
    while let Some(message) = messages.next().await {
        let message = message?;
        let id = message.headers.get("Nats-Msg-Id");
        let id = id.map(ToString::to_string).unwrap_or_default();
        inbox.add(Delivery::new(&id, &message.payload), true);
        *last += 1;
    }
    Ok(())
}

/// Takes the messages out of the queue, until none has come for a while. The broker hands out again
/// what was not acknowledged.
async fn read_queue(server: &RabbitMq, inbox: &mut Inbox) -> Result<()> {
    let (connection, channel) = channel(server).await?;
    channel
        .basic_qos(PREFETCHED_MAX, BasicQosOptions::default())
        .await?;
    let (tag, options) = ("chaos".into(), BasicConsumeOptions::default());
    let mut messages = channel
        .basic_consume(NAME.into(), tag, options, FieldTable::default())
        .await?;
    while let Ok(Some(message)) = timeout(QUIET, messages.next()).await {
        let message = message?;
        let id = message.properties.message_id().clone();
        let id = id.map(|id| id.to_string()).unwrap_or_default();
        inbox.add(Delivery::new(&id, &message.data), true);
        message.ack(BasicAckOptions::default()).await?;
    }
    // The connection must not end before the acknowledgements are out.
    connection.close(200, "done".into()).await?;
    Ok(())
}

async fn channel(server: &RabbitMq) -> Result<(Connection, Channel)> {
    let connection = Connection::connect(&server.url(), ConnectionProperties::default()).await?;
    let channel = connection.create_channel().await?;
    Ok((connection, channel))
}

/// A durable queue for every event. Without one, the exchange would return them.
async fn bind_queue(server: &RabbitMq) -> Result<()> {
    let (_connection, channel) = channel(server).await?;
    let durable = ExchangeDeclareOptions {
        durable: true,
        ..ExchangeDeclareOptions::default()
    };
    let none = FieldTable::default;
    channel
        .exchange_declare(NAME.into(), ExchangeKind::Topic, durable, none())
        .await?;
    channel
        .queue_declare(NAME.into(), QueueDeclareOptions::durable(), none())
        .await?;
    let options = QueueBindOptions::default();
    channel
        .queue_bind(NAME.into(), NAME.into(), "#".into(), options, none())
        .await?;
    Ok(())
}
