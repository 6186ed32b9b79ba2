//! Counts the cost of an operation without a clock, for tests that fail on any machine when a
//! design becomes more expensive.
//!
//! This crate must not depend on Stockade. It is for tests only and may only be a dev-dependency:
//! every program that links it gets the counting allocator.
//!
//! | module | counts |
//! |---|---|
//! | `allocations` | heap allocations of one thread, and the bytes that it keeps |
//! | `commands` | commands that a Redis server runs, commands of scripts included |
//! | `statements` | statements that are sent to an SQL database |

mod allocations;
mod commands;
mod statements;

pub use allocations::{Bound, bytes_kept, fewest_allocations};
pub use commands::commands;
pub use statements::statements;
