//! Orders for more units than any one segment has, while all of them together have enough.
//!
//! A walk would pass every segment and end sold out, for good, with units left. So before it sets out the order waits a moment and asks whoever may move
//! units to gather them. If nobody does it walks as any other.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use domain::ItemId;
use tokio::sync::mpsc;

use crate::{ItemStock, Stock, keys::GATHER_CHANNEL, message};

/// How long an order waits for units to be gathered, if its buyer has as much patience twice: it has to walk afterwards.
const WITHIN: Duration = Duration::from_millis(750);
/// How often it is asked for, however many wait.
const ASK_EVERY: Duration = Duration::from_millis(50);

/// When it was last asked for.
#[derive(Default)]
pub(crate) struct Gathering(Mutex<Option<Instant>>);

impl Gathering {
    fn is_turn(&self) -> bool {
        let mut asked = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let turn = asked.is_none_or(|asked| asked.elapsed() >= ASK_EVERY);
        if turn {
            *asked = Some(Instant::now());
        }
        turn
    }
}

/// Waits until some segment has so many units, or until they are not there any more, or long enough.
pub(crate) async fn wait(item: &ItemStock, units: u64, patience: Duration) {
    let _ = tokio::time::timeout(WITHIN.min(patience / 2), async {
        while item.admission.is_fragmented(units) {
            if item.gathering.is_turn() {
                ask(item, units).await;
            }
            let _ = tokio::time::timeout(ASK_EVERY, item.admission.more_came()).await;
        }
    })
    .await;
}

async fn ask(item: &ItemStock, units: u64) {
    let mut cmd = redis::cmd("PUBLISH");
    cmd.arg(GATHER_CHANNEL).arg(format!("{} {units}", item.id));
    if let Err(error) = cmd.exec_async(&mut item.shared.connection.clone()).await {
        tracing::debug!(item = %item.id, %error, "nobody was asked to gather units");
    }
}

impl Stock {
    /// Items of which somebody wants so many units at once, and no segment has as many.
    pub fn gather_wishes(&self) -> mpsc::Receiver<(ItemId, u64)> {
        let mut messages = message::subscribe(self.nodes(), GATHER_CHANNEL, self.stopping());
        let (sender, receiver) = mpsc::channel(1024);
        tokio::spawn(async move {
            while let Some(text) = messages.recv().await {
                let wish = text
                    .split_once(' ')
                    .and_then(|(item, units)| Some((item.parse().ok()?, units.parse().ok()?)));
                if let Some(wish) = wish
                    && sender.send(wish).await.is_err()
                {
                    return;
                }
            }
        });
        receiver
    }
}
