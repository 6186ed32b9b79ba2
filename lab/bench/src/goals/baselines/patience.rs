//! How long a buyer waits before it tries again, and when it gives up.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use rand::random_range;
use tokio::time::sleep;

/// Pause of a buyer that did not get a lock.
#[derive(Debug, Clone, Copy)]
pub struct Pause {
    pub most: Duration,
}

impl Pause {
    /// Sleeps 0.5 to 1.5 times the pause, so that buyers do not stay in step.
    pub async fn around(self) {
        if self.most.is_zero() {
            tokio::task::yield_now().await;
        } else {
            sleep(self.most.mul_f64(random_range(0.5..1.5))).await;
        }
    }

    /// Sleeps up to the pause.
    pub async fn up_to(self) {
        sleep(self.most.mul_f64(random_range(0.0..1.0))).await;
    }
}

/// Flag that makes waiting buyers give up.
#[derive(Debug, Default)]
pub struct Doors(AtomicBool);

impl Doors {
    pub fn close(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub fn are_closed(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
