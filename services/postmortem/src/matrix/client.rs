//! A lock as its users see it, whoever made it: what the trials and the load ask of each alike.

mod broken;
mod naive;
mod of_rslock;
mod ours;

use std::time::Duration;

use anyhow::{Result, bail};
use async_trait::async_trait;
use lock::{Capabilities, FencingToken};
use serde::{Deserialize, Serialize};

use super::contestant::Contestant;
use crate::actor::Host;

/// Which lock, and where.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Opening {
    pub contestant: Contestant,
    pub urls: Vec<String>,
    pub lease_ms: u64,
}

impl Opening {
    pub(super) fn new(contestant: Contestant, urls: Vec<String>, lease: Duration) -> Self {
        Self {
            contestant,
            urls,
            lease_ms: u64::try_from(lease.as_millis()).unwrap_or(u64::MAX),
        }
    }

    fn lease(&self) -> Duration {
        Duration::from_millis(self.lease_ms)
    }
}

/// Somebody who takes locks.
#[async_trait]
pub(super) trait Client: Send + Sync {
    /// What the lock promises; none if it promises nothing.
    fn capabilities(&self) -> Option<Capabilities> {
        None
    }

    /// Asks once, or as close to it as the lock allows.
    async fn try_take(&self, name: &str) -> Result<Option<Box<dyn Held>>>;

    /// Waits for so long.
    async fn take(&self, name: &str, patience: Duration) -> Result<Option<Box<dyn Held>>>;

    /// Later tokens shall be above this one.
    fn note_token(&self, _name: &str, _token: FencingToken) {}
}

/// A lock that somebody has, or believes to have.
#[async_trait]
pub(super) trait Held: Send {
    /// To show to a store.
    fn token(&self) -> Option<FencingToken> {
        None
    }

    /// Keeps it for as long as that is possible, and returns when it is lost; never, if nobody would say so.
    async fn is_lost(&mut self) {
        std::future::pending().await
    }

    /// Gives it back. That it was lost is no news here.
    async fn give_back(self: Box<Self>);
}

/// Gets ready to take locks. `host` is for those that can be killed between two steps of their own.
pub(super) async fn open<'a>(
    opening: &Opening,
    host: Option<&'a Host>,
) -> Result<Box<dyn Client + 'a>> {
    use Contestant::{
        AlwaysGranted, Consul, Rslock, SameToken, SetNxCompare, SetNxDel, SetnxExpire,
    };
    Ok(match opening.contestant {
        Rslock => Box::new(of_rslock::Theirs::open(opening)),
        SetNxCompare | SetNxDel | SetnxExpire => Box::new(naive::Naive::open(opening, host)?),
        AlwaysGranted | SameToken => Box::new(broken::Broken::open(opening)?),
        Consul => bail!("there is no Consul"),
        _ => Box::new(ours::Ours::open(opening).await?),
    })
}

/// Makes the tables of a lock that is in a database. Several who make the same at once would be in each other's way.
pub(super) async fn prepare(opening: &Opening) -> Result<()> {
    ours::create_table(opening).await
}

pub(super) use naive::BETWEEN;
