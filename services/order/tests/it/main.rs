//! The order service over HTTP, on real servers.
//!
//! Every test runs in [`shop::open`], which audits every item of the test when it is over: each test is also a test of the identity.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod api;
mod durability;
mod faults;
mod levels;
mod limits;
mod sale;
mod shop;
