//! The cases. Each module has the code that failed, as it was written, and its remedies; the TOML
//! file beside it has the texts.

pub mod blind_repair;
pub mod counter_token;
pub mod db_lock_forever;
pub mod db_lock_pool;
pub mod etcd_lease;
pub mod failover;
pub mod herd;
pub mod immortal_lock;
pub mod in_order_tokens;
pub mod late_payment;
pub mod maotai;
pub mod negative_counter;
pub mod pause;
pub mod real_shop;
pub mod redlock_clock;
pub mod redlock_restart;
pub mod redlock_tie;
pub mod release_after_timeout;
pub mod retry_double_take;
pub mod short_lease;
pub mod split_brain;
pub mod sticky_sold_out;
pub mod wrong_release;
pub mod zookeeper_session;

// Shared by several cases.
mod admission;
mod coordination;
mod counter_sale;
mod etcd_lock;
pub(crate) mod holder;
pub(crate) mod keeper;
mod last_unit;
mod plain_lock;
mod redlock_nodes;
pub(crate) mod till;
mod zookeeper_recipe;
