//! What a statement may read without a condition of an index, on either database.
//!
//! Any other statement would cost more with each order, item or cart of the past.

/// Tables that stay small, and their keys: what operators set up, what processes tell, and rows of
/// which there is one.
const SMALL_TABLES: [&str; 9] = [
    "erasure_keys",
    "events_removed",
    "events_seq_seq",
    "processes",
    "sinks",
    "sinks_pkey",
    "sqlite_sequence",
    "webhooks",
    "webhooks_pkey",
];

/// Indexes of what is still to be done. Reading all of it is the work.
const INDEXES_OF_WORK: [&str; 6] = [
    "carts_due",
    "items_to_drop",
    "orders_due",
    "orders_refund_due",
    "payments_due",
    "transfers_open",
];

/// Statements that begin at one end of a table or index, or read all of it, and why.
const BY_DESIGN: [(&str, &str, &str); 6] = [
    (
        "drops::LAST_EVENT",
        "events_pkey",
        "ends with the newest one",
    ),
    (
        "event_rows::REMOVE",
        "events_pkey",
        "ends with the oldest ones",
    ),
    ("recording::AT_WORK", "items_live", "an operator who asks"),
    (
        "recording::CHECKPOINTS",
        "segments_live",
        "a test that asks",
    ),
    ("recording::LIVE", "items_live", "a worker that starts"),
    (
        "recording::UNRECORDED",
        "segments_live",
        "an order service that starts",
    ),
];

/// Whether the statement may read all of this table or index.
pub(crate) fn may_read_all(statement: &str, what: &str) -> bool {
    SMALL_TABLES.contains(&what)
        || INDEXES_OF_WORK.contains(&what)
        || BY_DESIGN
            .iter()
            .any(|(name, index, _)| (*name, *index) == (statement, what))
}
