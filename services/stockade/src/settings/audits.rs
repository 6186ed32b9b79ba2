//! How reconcilers audit items in the background.

use std::time::Duration;

use super::{
    declaration::settings,
    kinds::{ms, number},
};

settings! {
    /// How reconcilers audit items in the background.
    Audits {
        /// milliseconds between two [audits](operations.md#when-something-is-wrong-with-an-item) of an item
        /// that changes, at least; a reconciler looks as often for refunds that are due, begins at most
        /// 600 full audits in this time, and audits an item without orders within ninety times as long
        audit_interval_ms: Duration = 60000, ms(100..=3_600_000);
        /// most orders of an item that reconcilers read again whenever it has changed; of a larger one
        /// they read only what has changed, and all orders once a day
        audit_walked_max: u64 = 100000, number(0..=100_000_000);
    }
}
