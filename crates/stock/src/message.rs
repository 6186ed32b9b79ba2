//! Messages between processes by Redis pub/sub. A lost message may cost time, never truth.

use std::time::Duration;

use futures::StreamExt;
use redis::Client;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::connection::Nodes;

/// Pause before a lost subscription is tried again.
const RETRY: Duration = Duration::from_millis(200);

/// Payloads of one channel, for as long as the receiver lives. Subscribes again, at the next of `nodes`, when a connection is lost or the
/// node is the wrong one from now on. An empty payload says that messages may have been missed.
pub(crate) fn subscribe(
    nodes: Nodes,
    channel: &'static str,
    stop: CancellationToken,
) -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel(4096);
    tokio::spawn(async move {
        for attempt in 0.. {
            let Some((node, wrong)) = nodes.pick(attempt) else {
                return;
            };
            tokio::select! {
                () = stop.cancelled() => return,
                () = sender.closed() => return,
                // The master is another one, and the pause is for nodes that do not answer.
                () = wrong.cancelled() => continue,
                result = listen(&node, channel, &sender) => {
                    if let Err(error) = result {
                        tracing::warn!(%error, channel, "subscription lost, trying again");
                    }
                }
            }
            tokio::time::sleep(RETRY).await;
        }
    });
    receiver
}

async fn listen(
    node: &Client,
    channel: &str,
    sender: &mpsc::Sender<String>,
) -> redis::RedisResult<()> {
    let mut subscription = node.get_async_pubsub().await?;
    subscription.subscribe(channel).await?;
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
