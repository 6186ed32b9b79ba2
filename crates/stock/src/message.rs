//! Messages between processes by Redis pub/sub. A lost message can delay a reply but never falsify
//! it.

use std::time::Duration;

use futures::{Stream, StreamExt};
use redis::{
    Client, Msg, RedisResult, Value,
    aio::{PubSub, PubSubSink},
};
use tokio::{sync::mpsc, time::timeout};
use tokio_util::sync::CancellationToken;

use crate::connection::{Nodes, no_reply};

/// Pause before a lost subscription is opened again.
const RETRY_PAUSE: Duration = Duration::from_millis(200);

/// Time limit for a subscription, and for the reply to a ping.
const REPLY_TIMEOUT: Duration = Duration::from_secs(5);

/// A subscription is silent while nothing happens, and also if its host has vanished without a
/// word. After so long without a message it is asked for a sign of life.
const PING_INTERVAL: Duration = Duration::from_secs(5);

/// Messages that one subscription buffers for its reader.
const BUFFER_MAX: usize = 4096;

/// What a subscription tells its reader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Message {
    /// It has begun. Messages of before may have been missed.
    Subscribed,
    /// It has ended, and messages are missed until it has begun again.
    Lost,
    Payload(String),
}

impl Message {
    /// The payload, for readers that need not know of a loss before it is over. It is empty if
    /// messages may have been missed.
    pub(crate) fn text(self) -> Option<String> {
        match self {
            Self::Subscribed => Some(String::new()),
            Self::Lost => None,
            Self::Payload(text) => Some(text),
        }
    }
}

/// Messages of one channel, as long as the receiver lives. Subscribes again, at the next of
/// `nodes`, when a connection is lost or the node is not the master any more.
pub(crate) fn subscribe(
    nodes: Nodes,
    channel: &'static str,
    stop: CancellationToken,
) -> mpsc::Receiver<Message> {
    let (sender, receiver) = mpsc::channel(BUFFER_MAX);
    tokio::spawn(async move {
        let mut is_lost = false;
        for attempt in 0.. {
            let Some((node, replaced)) = nodes.pick(attempt) else {
                return;
            };
            tokio::select! {
                () = stop.cancelled() => return,
                () = sender.closed() => return,
                // Another server is the master. The pause is for nodes that do not respond.
                () = replaced.cancelled() => {
                    let _ = sender.send(Message::Lost).await;
                    continue;
                }
                result = listen(&node, channel, &sender, &mut is_lost) => {
                    // One line for an outage, not one for each attempt.
                    if let Err(error) = result && !is_lost {
                        tracing::warn!(%error, channel, "subscription lost, retrying");
                        is_lost = true;
                    }
                }
            }
            let _ = sender.send(Message::Lost).await;
            tokio::time::sleep(RETRY_PAUSE).await;
        }
    });
    receiver
}

async fn listen(
    node: &Client,
    channel: &str,
    sender: &mpsc::Sender<Message>,
    is_lost: &mut bool,
) -> RedisResult<()> {
    let (mut server, mut messages) = bounded(subscribed(node, channel)).await?.split();
    if std::mem::take(is_lost) {
        tracing::info!(channel, "subscribed again");
    }
    let mut message = Message::Subscribed;
    while sender.send(message).await.is_ok() {
        let Some(next) = next(&mut server, &mut messages).await? else {
            break;
        };
        message = Message::Payload(next.get_payload()?);
    }
    Ok(())
}

async fn subscribed(node: &Client, channel: &str) -> RedisResult<PubSub> {
    let mut subscription = node.get_async_pubsub().await?;
    subscription.subscribe(channel).await?;
    Ok(subscription)
}

/// The next message, however late. `None`: the server has closed the subscription.
async fn next(
    server: &mut PubSubSink,
    messages: &mut (impl Stream<Item = Msg> + Unpin),
) -> RedisResult<Option<Msg>> {
    loop {
        match timeout(PING_INTERVAL, messages.next()).await {
            Ok(message) => return Ok(message),
            // The library buffers what comes meanwhile. Also a refusal is a sign of life.
            Err(_) => match bounded(server.ping::<Value>()).await {
                Err(error) if error.code().is_none() => return Err(error),
                _ => {}
            },
        }
    }
}

async fn bounded<T>(reply: impl Future<Output = RedisResult<T>>) -> RedisResult<T> {
    let reply = timeout(REPLY_TIMEOUT, reply).await;
    reply.unwrap_or_else(|_| Err(no_reply()))
}
