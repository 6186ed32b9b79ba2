//! The binary as its users see it: the tests start, call, stop and kill its processes.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod alerts;
mod archive;
mod browser;
mod chaos;
mod clients;
mod commands;
mod crashes;
mod encrypted;
mod erasure;
mod events;
mod identity;
mod idle;
mod item_locks;
mod lock;
mod operators;
mod pages;
mod payments;
mod preflight;
mod process;
mod reconcile;
mod restore;
mod secrets;
mod shop;
mod test_env;
mod up;
mod upgrade;
