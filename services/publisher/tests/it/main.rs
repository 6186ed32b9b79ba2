//! The publisher against real receivers, on both ledgers.

#![allow(missing_docs, clippy::unwrap_used)]

mod delivery;
mod receiver;
