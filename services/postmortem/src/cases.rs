//! The cases. Each is its story, its ways, and the code that failed, as it was written.

pub mod maotai;

pub mod etcd_lease;
pub mod failover;
pub mod herd;
pub mod redlock_clock;
pub mod redlock_restart;
pub mod redlock_tie;
pub mod split_brain;
pub mod zookeeper_session;

// Of several cases.
pub(crate) mod holder;
mod last_unit;
mod redlock_nodes;
mod till;
