//! The rules by which chaos and load tests judge Stockade.
//!
//! Each rule follows from what the API promises, so this crate depends on the client alone. It
//! reads nothing: its callers bring what they have observed. Chaos reads the ledger's tables, load
//! tests list orders and carts over HTTP, and each words its own findings.
//!
//! | module | decides |
//! |---|---|
//! | [`life`] | which states and refusals a step may have, and what holds that end leave behind |
//! | [`cart`] | whether the orders of a cart agree with it: no cart is half sold |
//! | [`limit`] | which buyers have more units than one buyer may have |
//! | [`refusals`] | which orders and carts no request explains |
//! | [`sold_out`] | how many units were free while a buyer was refused |

pub mod cart;
pub mod life;
pub mod limit;
pub mod refusals;
pub mod sold_out;
