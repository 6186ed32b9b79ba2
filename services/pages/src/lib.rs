//! Pages for people: the operators' console, and the sale page of `stockade up`.
//!
//! Pages are rendered on the server and work without JavaScript as far as reading goes. One small
//! script replaces their live parts with those that an event stream brings each second. The console
//! works on the engine in this process; the sale page is a client of the API. This crate contains
//! no key name and no table name, and decides nothing about stock or orders.

mod charts;
mod console;
mod cookies;
mod layout;
mod live;
mod origin;
mod sale;
mod text;

pub use console::console_router;
pub use sale::{Shop, sale_router};
