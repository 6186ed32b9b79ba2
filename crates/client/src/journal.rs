//! The journal: who changed what of an item.

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

/// An entry of an item's journal: a manual change, a repair, or money that must be returned.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct JournalEntry {
    /// The number of the entry. Later entries have higher numbers.
    pub id: u64,
    /// When the change was made.
    pub at: Timestamp,
    /// Who made the change.
    pub actor: String,
    /// The kind of change.
    pub action: String,
    /// The fencing token under which the change was made, if there was one.
    pub token: Option<u64>,
    /// The changed fields before the change.
    pub before: Value,
    /// The changed fields after it.
    pub after: Value,
}

/// An entry of the service journal: what an admin has done that belongs to no item.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct ServiceJournalEntry {
    /// The number of the entry. Later entries have higher numbers.
    pub id: u64,
    /// When it was done.
    pub at: Timestamp,
    /// Who did it.
    pub actor: String,
    /// What was done, such as `create_webhook`.
    pub action: String,
    /// What it was done to: the id of a webhook.
    pub subject: Option<String>,
    /// The values before.
    pub before: Value,
    /// The values after.
    pub after: Value,
}
