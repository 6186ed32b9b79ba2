//! One interface for all locks, so that experiments and load treat every backend alike.

mod api;
mod broken;
mod crate_lock;
mod hand_written;
mod rslock;

use anyhow::{Result, bail};
use postmortem::actor::Host;

pub(crate) use api::{Client, HeldLock, LockSettings};
pub(crate) use hand_written::BETWEEN_STEPS;

use crate::backend::Backend;

/// Opens a client of the lock. `host` lets an experiment stop or kill a process between two steps
/// of a hand-written lock.
pub(crate) async fn open<'a>(
    settings: &LockSettings,
    host: Option<&'a Host>,
) -> Result<Box<dyn Client + 'a>> {
    use Backend::{AlwaysGranted, Consul, Rslock, SameToken, SetNxCompare, SetNxDel, SetnxExpire};
    Ok(match settings.backend {
        Rslock => Box::new(rslock::Rslock::open(settings)),
        SetNxCompare | SetNxDel | SetnxExpire => {
            Box::new(hand_written::HandWritten::open(settings, host)?)
        }
        AlwaysGranted | SameToken => Box::new(broken::Broken::open(settings)?),
        Consul => bail!("the comparison has no Consul server"),
        _ => Box::new(crate_lock::CrateLock::open(settings).await?),
    })
}

/// Creates the tables that a lock in a database needs. Call it before any client opens the lock:
/// concurrent `CREATE TABLE` statements for the same table can fail.
pub(crate) async fn create_tables(settings: &LockSettings) -> Result<()> {
    crate_lock::create_table(settings).await
}
