//! A named point in an actor's work, such as "after the stock was read", at which the schedule can
//! hold it.
//!
//! Schedules consist of points instead of sleeps. An event between two lines of an actor's code
//! therefore happens exactly there, on a fast machine and on a slow one.

use std::time::Duration;

use tokio::sync::watch;

/// Actors pass the point, or wait there until it is opened.
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
    /// Creates a point that holds all actors until it is opened.
    pub fn closed() -> Self {
        Self::default()
    }

    /// Waits until the point is open.
    pub async fn pass(&self) {
        self.arrived.send_modify(|arrived| *arrived += 1);
        let _ = self.open.subscribe().wait_for(|open| *open).await;
    }

    /// Waits until this many actors have arrived in total.
    pub async fn reached_by(&self, actors: usize) {
        let _ = self
            .arrived
            .subscribe()
            .wait_for(|arrived| *arrived >= actors)
            .await;
    }

    /// As [`reached_by`](Self::reached_by), for a limited time. Returns whether they arrived: where
    /// a remedy holds, the second actor never does.
    pub async fn reached_within(&self, actors: usize, real: Duration) -> bool {
        tokio::time::timeout(real, self.reached_by(actors))
            .await
            .is_ok()
    }

    /// Lets all waiting and later actors pass.
    pub fn open(&self) {
        self.open.send_replace(true);
    }

    /// Returns the number of actors that have arrived.
    pub fn arrived(&self) -> usize {
        *self.arrived.borrow()
    }
}
