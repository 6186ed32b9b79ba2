//! Counts what something costs, for tests that fail when a design gets slower, on any machine: no clock is read here.
//!
//! This crate must not know anything of Stockade. It is for tests only, and never more than a dev-dependency: whoever links it has the
//! allocator that counts.
//!
//! | module | counts |
//! |---|---|
//! | `allocations` | what one thread takes from the heap |
//! | `commands` | what a Redis server runs, commands of scripts included |
//! | `statements` | what is sent to an SQL database |

mod allocations;
mod commands;
mod statements;

pub use allocations::{Bound, fewest_allocations};
pub use commands::commands;
pub use statements::statements;
