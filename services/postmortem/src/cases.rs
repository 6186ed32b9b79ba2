//! The cases. Each is its story, its ways, and the code that failed, as it was written.

pub mod blind_repair;
pub mod db_lock_forever;
pub mod db_lock_pool;
pub mod late_payment;
pub mod maotai;
pub mod negative_counter;
pub mod release_after_timeout;
pub mod retry_double_take;
pub mod sticky_sold_out;
