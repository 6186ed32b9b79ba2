//! A named point in an actor's work, such as "after the stock was read", where the schedule can hold it.
//!
//! Schedules are made of these and not of sleeps: what is to happen while a buyer stands between two lines of its code happens exactly there,
//! on a fast machine and on a slow one.

use std::time::Duration;

use tokio::sync::watch;

/// Actors pass it, or stand there until it is opened.
#[derive(Debug)]
pub struct Point {
    arrived: watch::Sender<usize>,
    open: watch::Sender<bool>,
}

impl Default for Point {
    fn default() -> Self {
        Self {
            arrived: watch::Sender::new(0),
            open: watch::Sender::new(false),
        }
    }
}

impl Point {
    /// One that holds everybody until it is opened.
    pub fn closed() -> Self {
        Self::default()
    }

    /// An actor comes here, and goes on when the point is open.
    pub async fn pass(&self) {
        self.arrived.send_modify(|arrived| *arrived += 1);
        let _ = self.open.subscribe().wait_for(|open| *open).await;
    }

    /// Waits until so many have come, ever.
    pub async fn reached_by(&self, actors: usize) {
        let _ = self
            .arrived
            .subscribe()
            .wait_for(|arrived| *arrived >= actors)
            .await;
    }

    /// The same, but not for longer than this. Whether they came: where a remedy holds, the second one never does.
    pub async fn reached_within(&self, actors: usize, real: Duration) -> bool {
        tokio::time::timeout(real, self.reached_by(actors))
            .await
            .is_ok()
    }

    /// Lets everybody go who stands here or will come.
    pub fn open(&self) {
        self.open.send_replace(true);
    }

    /// How many have come.
    pub fn arrived(&self) -> usize {
        *self.arrived.borrow()
    }
}
