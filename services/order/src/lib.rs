//! The order service: HTTP in front of `stock` and `ledger`.
//!
//! It checks who asks and what for before anything is taken, and turns what the engine says into HTTP, in one place. It must not know a key
//! name or a table name. Any number of instances may run; none keeps anything that another would need.

mod auth;
pub mod engine;
mod http;
pub mod metrics;
mod serve;
mod watchdog;

pub use auth::{BuyerKey, Credentials, mint_buyer_token};
pub use engine::{Engine, EngineSettings};
pub use http::{PaymentKey, operators_router, router};
pub use serve::{Limits, listen, serve};
pub use watchdog::watch_overdue;
