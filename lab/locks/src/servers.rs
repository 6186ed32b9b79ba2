//! The servers that keep a lock, and how faults break them.
//!
//! A replica that lags is real for Redis: the replica leaves in its socket what the master sends.
//! For PostgreSQL and MariaDB it is a copy of the data folder from before the lock was acquired.
//! An asynchronous standby that has received nothing since is in the same state.

mod api;
mod coordination;
mod database;
mod redis;
mod shared;

pub(crate) use api::{Servers, urls};
pub(crate) use shared::SharedServers;
