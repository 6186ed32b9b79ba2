//! The order service: HTTP in front of `stock` and `ledger`.
//!
//! It authenticates and validates each request before it takes units, and translates the results of
//! the engine into HTTP in one place. It contains no key name and no table name. Any number of
//! instances may run: none keeps state that another one needs.

mod auth;
pub mod engine;
mod http;
pub mod metrics;
mod rate;
mod serve;
mod store_watch;
mod timer;
mod watchdog;

pub use auth::{
    Admin, BuyerKey, Credentials, Scope, TokenHash, TokenPolicy, UnknownScope, mint_buyer_token,
};
pub use engine::{Engine, EngineSettings};
pub use http::{
    Api, CorsOrigins, InvalidOrigins, PaymentKey, PaymentKeys, api_router, operators_router,
    router, with_cors,
};
pub use rate::{ClientAddress, ForwardedHeader, Rate, RateLimits};
pub use serve::{Limits, listen, processors, serve};
pub use store_watch::watch_stores;
pub use watchdog::watch_overdue;
