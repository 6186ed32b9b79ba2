//! The cases. Each is its story, its ways, and the code that failed, as it was written.

pub mod counter_token;
pub mod immortal_lock;
pub mod in_order_tokens;
pub mod maotai;
pub mod pause;
pub mod short_lease;
pub mod wrong_release;

// What several of them break.
pub(crate) mod keeper;
pub(crate) mod till;
