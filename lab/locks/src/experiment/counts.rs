//! What an experiment counts.

use serde::Serialize;

use crate::{contender::Promises, store::RowHistory};

/// What was counted in an experiment. The names in JSON are those of `--json`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Counts {
    /// The largest number of holders that were inside at the same time.
    #[serde(rename = "inside_at_once")]
    pub concurrent_holders: u64,
    /// History of the row that accepts every write.
    #[serde(rename = "open")]
    pub unchecked: RowHistory,
    /// History of the row that checks token and version. `None`: the lock has no tokens.
    pub fenced: Option<RowHistory>,
    /// Whether the next contender got the lock.
    #[serde(rename = "next_got_it")]
    pub next_acquired: bool,
    /// How long the next contender waited, where the experiment measures that.
    #[serde(rename = "next_after_seconds")]
    pub next_wait_seconds: Option<f64>,
    /// Whether a holder that had lost the lock released it and so let a third contender in.
    #[serde(rename = "third_let_in")]
    pub third_acquired: bool,
    /// Whether the lock reported its loss to the holder, and the holder stopped.
    pub holder_stopped: bool,
    /// Whether a second contender got the lock while it was held and before the fault.
    #[serde(rename = "given_twice_without_a_fault")]
    pub double_grant_before_fault: bool,
    /// Tokens in the order in which they were granted.
    pub tokens: Vec<i64>,
    /// What the lock promises. `None`: nothing.
    pub promises: Option<Promises>,
}
