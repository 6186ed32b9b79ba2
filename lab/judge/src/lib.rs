//! The rules by which chaos and load tests judge Stockade.
//!
//! Each rule follows from what the API promises, so this crate depends on the client alone. It
//! reads nothing: its callers bring what they have observed. Chaos reads the ledger's tables, load
//! tests list orders and carts over HTTP, and each words its own findings.
//!
//! | module | decides |
//! |---|---|
//! | [`life`] | which states and refusals a step may have, and what holds that end leave behind |
//! | [`sold_out`] | how many units were free while a buyer was refused |

pub mod life;
pub mod sold_out;
