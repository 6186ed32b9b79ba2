//! The service journal: what admins do that belongs to no item.

use jiff::Timestamp;
use serde_json::Value;

/// An entry of the service journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Act {
    /// Number of the entry; later entries have higher numbers.
    pub id: u64,
    /// When it was done.
    pub at: Timestamp,
    /// The content of the entry.
    pub act: NewAct,
}

/// An entry to add to the service journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewAct {
    /// Who did it: the name of an admin, or `cli:` and the name of an account.
    pub actor: String,
    /// What was done: `create_webhook`, `remove_webhook`, `enable_webhook`, `test_webhook`,
    /// `erase_buyer`.
    pub action: String,
    /// What it was done to: the id of a webhook. `None`: an erasure, which names no buyer.
    pub subject: Option<String>,
    /// The values before, as JSON.
    pub before: Value,
    /// The values after, as JSON.
    pub after: Value,
}
