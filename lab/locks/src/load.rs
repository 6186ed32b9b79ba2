//! The same load on every lock.
//!
//! Servers and clients run on this machine, so only the ratios within one run are meaningful. With
//! a single client, the locks take turns every half second, so that any disturbance of the machine
//! affects all of them. Servers write to disk as in production.

mod counting;
mod figures;
mod measure;
mod target;
mod waking;

use std::{fmt, time::Duration};

use anyhow::Result;
use futures::future::try_join_all;
use serde::{Deserialize, Serialize};

pub use figures::{LoadFigures, Timings};

use self::target::Target;
use crate::{backend::Backend, env::TestEnv};

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Load {
    /// One client without competitors.
    Alone,
    /// Sixteen clients that compete for one lock.
    Contended,
    /// Messages that one acquisition and release sends.
    Messages,
    /// Number of waiters that a release wakes.
    Wakeups,
}

impl Load {
    /// Every load, in the order of the table columns.
    pub const ALL: [Self; 4] = [Self::Alone, Self::Contended, Self::Messages, Self::Wakeups];

    /// Name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Alone => "alone",
            Self::Contended => "contended",
            Self::Messages => "messages",
            Self::Wakeups => "wakeups",
        }
    }
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Measures each backend. `duration` is the time of each measurement that takes a chosen time;
/// `announce` gets the name of each measurement before it begins.
pub(crate) async fn measure(
    env: &TestEnv,
    backends: &[Backend],
    loads: &[Load],
    duration: Duration,
    announce: impl Fn(&str),
) -> Result<Vec<LoadFigures>> {
    announce("waiting until new nodes vote");
    let targets = try_join_all(backends.iter().map(|backend| Target::open(env, *backend))).await?;
    let mut figures: Vec<_> = backends.iter().copied().map(LoadFigures::new).collect();
    if loads.contains(&Load::Alone) {
        announce("one client");
        measure::alone(&targets, duration, &mut figures).await?;
    }
    for (target, figures) in targets.iter().zip(&mut figures) {
        let announce = |what: &str| announce(&format!("{}: {what}", target.backend));
        if loads.contains(&Load::Contended) {
            announce("sixteen clients, one lock");
            measure::contended(target, duration, figures).await?;
        }
        if loads.contains(&Load::Messages) {
            announce("messages");
            figures.messages = measure::messages(target).await?;
        }
        if loads.contains(&Load::Wakeups) && !target.backend.polls() {
            announce("wake-ups");
            figures.woken = waking::woken(target).await?;
        }
    }
    Ok(figures)
}
