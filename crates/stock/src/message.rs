//! Messages between processes by Redis pub/sub. A lost message can delay a reply but never falsify
//! it.

use std::time::Duration;

use futures::StreamExt;
use redis::Client;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::connection::Nodes;

/// Pause before a lost subscription is opened again.
const RETRY_PAUSE: Duration = Duration::from_millis(200);

/// Messages that one subscription buffers for its reader.
const BUFFER_MAX: usize = 4096;

/// Payloads of one channel, as long as the receiver lives. Subscribes again, at the next of
/// `nodes`, when a connection is lost or the node is not the master any more. An empty payload
/// means that messages may have been missed.
pub(crate) fn subscribe(
    nodes: Nodes,
    channel: &'static str,
    stop: CancellationToken,
) -> mpsc::Receiver<String> {
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
                () = replaced.cancelled() => continue,
                result = listen(&node, channel, &sender, &mut is_lost) => {
                    // One line for an outage, not one for each attempt.
                    if let Err(error) = result && !is_lost {
                        tracing::warn!(%error, channel, "subscription lost, retrying");
                        is_lost = true;
                    }
                }
            }
            tokio::time::sleep(RETRY_PAUSE).await;
        }
    });
    receiver
}

async fn listen(
    node: &Client,
    channel: &str,
    sender: &mpsc::Sender<String>,
    is_lost: &mut bool,
) -> redis::RedisResult<()> {
    let mut subscription = node.get_async_pubsub().await?;
    subscription.subscribe(channel).await?;
    if std::mem::take(is_lost) {
        tracing::info!(channel, "subscribed again");
    }
    let mut messages = subscription.into_on_message();
    let mut payload = String::new();
    while sender.send(payload).await.is_ok() {
        match messages.next().await {
            Some(message) => payload = message.get_payload()?,
            None => break,
        }
    }
    Ok(())
}
