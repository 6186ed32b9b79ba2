//! The cases. Each is its story, its ways, and the code that failed, as it was written.

pub mod blind_repair;
pub mod counter_token;
pub mod db_lock_forever;
pub mod db_lock_pool;
pub mod immortal_lock;
pub mod in_order_tokens;
pub mod late_payment;
pub mod maotai;
pub mod negative_counter;
pub mod pause;
pub mod release_after_timeout;
pub mod retry_double_take;
pub mod short_lease;
pub mod sticky_sold_out;
pub mod wrong_release;

// What several of them break or use.
pub(crate) mod keeper;
pub(crate) mod till;
