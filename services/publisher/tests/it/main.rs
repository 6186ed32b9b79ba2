//! The publisher against real receivers and brokers, on both ledgers.

#![allow(missing_docs, clippy::unwrap_used)]

mod access;
mod brokers;
mod delivery;
mod env;
mod receiver;
mod sinks;
