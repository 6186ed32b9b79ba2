//! The same load on every lock.
//!
//! Everything runs on this machine, servers and clients alike, so only the ratios within one run say anything. Where one client works alone the
//! locks take turns every half second, so that whatever else the machine does hits all of them. Servers keep their promises on disk as in
//! production.

mod counting;
mod figures;
mod measure;
mod waking;

use std::{fmt, time::Duration};

use anyhow::{Context, Result};
use futures::future::try_join_all;
use serde::{Deserialize, Serialize};

pub use figures::{Figures, Timed};

use self::counting::Counter;
use super::{
    client::{self, Client, Opening},
    contestant::Contestant,
    fault::Fault,
    site::{self, Site},
    world::World,
};

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Load {
    /// One client, and nobody else who wants its locks.
    Alone,
    /// Sixteen that want one lock.
    Contended,
    /// What is sent for one acquisition and release.
    Messages,
    /// How many waiters a release wakes.
    Wakeups,
}

impl Load {
    /// All, in the order of the columns.
    pub const ALL: [Self; 4] = [Self::Alone, Self::Contended, Self::Messages, Self::Wakeups];

    /// On the command line.
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

/// Nobody's lease ends during a run.
const LEASE: Duration = Duration::from_secs(5);
/// Everybody gets the lock within this.
const PATIENCE: Duration = Duration::from_secs(60);

/// A lock and its servers.
struct Loaded<'a> {
    contestant: Contestant,
    site: Box<dyn Site + 'a>,
    /// The first client. A redlock's nodes vote since it came.
    client: Box<dyn Client>,
}

impl Loaded<'_> {
    async fn client(&self) -> Result<Box<dyn Client>> {
        open(self.contestant, site::urls(self.site.as_ref())).await
    }

    /// A client whose messages are counted; none if it sends none.
    async fn counted(&self) -> Result<Option<(Box<dyn Client>, Vec<Counter>)>> {
        let mut counters = Vec::new();
        for port in self.site.ports() {
            counters.push(Counter::start(port).await?);
        }
        if counters.is_empty() {
            return Ok(None);
        }
        let urls = counters
            .iter()
            .map(|counter| self.site.url(counter.port))
            .collect();
        Ok(Some((open(self.contestant, urls).await?, counters)))
    }
}

async fn open(contestant: Contestant, urls: Vec<String>) -> Result<Box<dyn Client>> {
    client::open(&Opening::new(contestant, urls, LEASE), None).await
}

async fn take(client: &dyn Client, name: &str) -> Result<Box<dyn client::Held>> {
    client
        .take(name, PATIENCE)
        .await?
        .context("the lock was not to be had within a minute")
}

/// Measures each of these locks, for so long each. `tell` hears what is measured next.
pub(super) async fn measure(
    world: &World,
    contestants: &[Contestant],
    loads: &[Load],
    each: Duration,
    tell: impl Fn(&str),
) -> Result<Vec<Figures>> {
    tell("waits until new nodes vote");
    let loaded = contestants.iter().map(|contestant| async {
        let site = world.shared.site(*contestant, Fault::Pause).await?;
        let client = open(*contestant, site::urls(site.as_ref())).await?;
        take(client.as_ref(), "first")
            .await
            .with_context(|| contestant.to_string())?
            .give_back()
            .await;
        anyhow::Ok(Loaded {
            contestant: *contestant,
            site,
            client,
        })
    });
    let loaded = try_join_all(loaded).await?;
    let mut figures: Vec<_> = contestants
        .iter()
        .map(|contestant| Figures::of(*contestant))
        .collect();
    if loads.contains(&Load::Alone) {
        tell("one client");
        measure::alone(&loaded, each, &mut figures).await?;
    }
    for (loaded, figures) in loaded.iter().zip(&mut figures) {
        let doing = |what: &str| format!("{}: {what}", loaded.contestant);
        if loads.contains(&Load::Contended) {
            tell(&doing("sixteen that want one lock"));
            measure::contended(loaded, each, figures).await?;
        }
        if loads.contains(&Load::Messages) {
            tell(&doing("messages"));
            figures.messages = measure::messages(loaded).await?;
        }
        if loads.contains(&Load::Wakeups) && !loaded.contestant.is_asked_again() {
            tell(&doing("who is woken"));
            figures.woken = waking::woken(loaded).await?;
        }
    }
    Ok(figures)
}
