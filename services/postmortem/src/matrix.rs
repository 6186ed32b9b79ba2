//! The lock matrix: every lock under the same faults and the same load. `stockade locks compare` prints it.
//!
//! | file | is |
//! |---|---|
//! | `contestant` | who takes part |
//! | `client` | a lock as its users see it, whoever made it |
//! | `fault` | what is done to a lock |
//! | `site` | the servers of a lock, and how they are broken |
//! | `contender` | who wants the lock, in a process of its own |
//! | `store` | what the lock protects: two rows of PostgreSQL, one that takes every write and one that checks token and version |
//! | `trial` | one lock and one fault: the schedule, and what was counted |
//! | `verdict` | what was promised, held against what was counted |
//! | `load` | latencies, rates, messages, wake-ups |
//! | `world` | what all trials share |
//! | `run` | all of it, in order |
//! | `report` | the tables, the page, the JSON |
//! | `cli` | `stockade locks compare` |

pub mod cli;
mod client;
pub(crate) mod contender;
pub mod contestant;
pub mod fault;
pub mod load;
pub mod report;
pub mod run;
mod site;
pub mod store;
pub mod trial;
pub mod verdict;
mod world;

pub use contender::Promises;
