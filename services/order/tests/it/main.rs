//! The order service over HTTP, on real servers.
//!
//! Every test runs in [`shop::open`], which audits every item of the test when it is over: each test is also a test of the identity.

mod api;
mod durability;
mod faults;
mod limits;
mod sale;
mod shop;
