//! Wakes those who wait for a lock when servers say that it was given back.
//!
//! A message is a hint and nothing more: it may be lost or late, or another client may be quicker.
//! A client that waits also asks at intervals. A server that has just been subscribed
//! to counts as one that said so, because what it said before was not heard.

use std::{
    collections::HashMap,
    future::pending,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use redis::{PushInfo, PushKind, Value};
use tokio::sync::{mpsc, watch};

use super::Server;

/// Who waits for which channel.
#[derive(Default)]
pub(crate) struct Wakeups(Mutex<State>);

#[derive(Default)]
struct State {
    /// What came, of the channels that have listeners.
    heard: HashMap<String, watch::Sender<Heard>>,
    /// To the task of every server that keeps its subscriptions.
    servers: Vec<mpsc::UnboundedSender<Change>>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Heard {
    messages: u64,
    /// How many listened to the last of them: so many will ask for the lock now.
    crowd: u32,
}

#[derive(Debug, Clone)]
enum Change {
    Subscribe(String),
    Unsubscribe(String),
}

/// One client that waits for a channel.
pub(crate) struct Listener {
    wakeups: Arc<Wakeups>,
    channel: String,
    heard: watch::Receiver<Heard>,
    seen: u64,
}

impl Wakeups {
    /// Keeps the subscriptions of a server, until this is dropped.
    pub(crate) fn attach(self: &Arc<Self>, server: Arc<Server>) {
        let (sender, changes) = mpsc::unbounded_channel();
        self.state().servers.push(sender);
        tokio::spawn(keep_subscriptions(server, changes, Arc::downgrade(self)));
    }

    /// Subscribes to every channel again: a server has a new connection. Where a subscription
    /// exists, that changes nothing.
    pub(super) fn subscribe_anew(&self) {
        let state = self.state();
        for channel in state.heard.keys() {
            state.tell(&Change::Subscribe(channel.clone()));
        }
    }

    /// What a server pushed.
    pub(crate) fn heard(&self, push: PushInfo) {
        if push.kind == PushKind::Message
            && let Some(channel) = push.data.first().and_then(text)
        {
            let crowd = push
                .data
                .get(1)
                .and_then(text)
                .and_then(|crowd| crowd.parse().ok());
            self.count(channel, crowd.unwrap_or(1));
        }
    }

    pub(crate) fn listen(self: &Arc<Self>, channel: &str) -> Listener {
        let mut state = self.state();
        if !state.heard.contains_key(channel) {
            state
                .heard
                .insert(channel.to_owned(), watch::Sender::new(Heard::default()));
            state.tell(&Change::Subscribe(channel.to_owned()));
        }
        let heard = state.heard[channel].subscribe();
        drop(state);
        let seen = heard.borrow().messages;
        Listener {
            wakeups: Arc::clone(self),
            channel: channel.to_owned(),
            heard,
            seen,
        }
    }

    fn count(&self, channel: &str, crowd: u32) {
        if let Some(heard) = self.state().heard.get(channel) {
            heard.send_modify(|heard| {
                *heard = Heard {
                    messages: heard.messages + 1,
                    crowd,
                }
            });
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Every server's task gets the changes in the same order, because this is only called under
    /// the lock.
    fn tell(&self, change: &Change) {
        for server in &self.servers {
            // Without a runtime there is no task and no listener left.
            let _ = server.send(change.clone());
        }
    }
}

impl Listener {
    /// Waits until so many servers have said since the last time that the lock was given back, and
    /// returns the number of subscribers.
    pub(crate) async fn woken(&mut self, by: usize) -> u32 {
        let wanted = self.seen + by as u64;
        let woken = self
            .heard
            .wait_for(|heard| heard.messages >= wanted)
            .await
            .map(|heard| *heard);
        let Ok(heard) = woken else {
            return pending().await;
        };
        self.seen = heard.messages;
        heard.crowd
    }

    /// What was said before an attempt is of no use after it.
    pub(crate) fn forget(&mut self) {
        self.seen = self.heard.borrow().messages;
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let mut state = self.wakeups.state();
        // Ours goes here and not after this, or each of two that stop concurrently would take the
        // other for one who still listens.
        self.heard = watch::Sender::default().subscribe();
        if state
            .heard
            .get(&self.channel)
            .is_some_and(watch::Sender::is_closed)
        {
            state.heard.remove(&self.channel);
            state.tell(&Change::Unsubscribe(self.channel.clone()));
        }
    }
}

async fn keep_subscriptions(
    server: Arc<Server>,
    mut changes: mpsc::UnboundedReceiver<Change>,
    wakeups: Weak<Wakeups>,
) {
    while let Some(change) = changes.recv().await {
        let result = match &change {
            Change::Subscribe(channel) => server.subscribe(channel).await,
            Change::Unsubscribe(channel) => server.unsubscribe(channel).await,
        };
        match (result, change) {
            (Ok(()), Change::Subscribe(channel)) => {
                if let Some(wakeups) = wakeups.upgrade() {
                    wakeups.count(&channel, 1);
                }
            }
            (Ok(()), Change::Unsubscribe(_)) => {}
            (Err(answer), _) => {
                tracing::debug!(server = server.label, %answer, "subscription failed, waiting clients poll")
            }
        }
    }
}

fn text(value: &Value) -> Option<&str> {
    match value {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        Value::SimpleString(text) => Some(text),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Barrier, thread};

    use super::*;

    #[test]
    fn the_last_who_stop_listening_at_once_leave_no_subscription_behind() {
        let wakeups = Arc::new(Wakeups::default());
        for _ in 0..20_000 {
            let (listeners, barrier) =
                ([wakeups.listen("a"), wakeups.listen("a")], Barrier::new(2));
            thread::scope(|scope| {
                for listener in listeners {
                    scope.spawn(|| {
                        barrier.wait();
                        drop(listener);
                    });
                }
            });
            assert!(wakeups.state().heard.is_empty(), "no listener is left");
        }
    }
}
