//! What every backend on Redis needs: keys, scripts, connections, and notifications of releases.

mod address;
mod connection;
mod keys;
pub(crate) mod script;
mod server;
mod wakeup;

#[cfg(feature = "redis")]
pub(crate) use keys::COUNTER;
pub(crate) use keys::Keys;
#[cfg(feature = "redlock")]
pub(crate) use keys::{GENERATION, HIGH_WATER, WATCH};
pub(crate) use script::{Reply, Script};
pub(crate) use server::{Server, Timeouts};
pub(crate) use wakeup::{Listener, Wakeups};
