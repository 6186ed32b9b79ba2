//! The protocols of Stockade, checked in every interleaving at a small size.
//!
//! The tests are the models: `tests/it/stock` has reservations, spillovers and their rounds, proofs
//! of `sold_out`, limits, transfers, recovery, the home check, carts, and two designs that are not
//! built (resharding and a recorder that records from memory); `tests/it/payment` has a payment,
//! its refunds and the list of money that is due; `tests/it/lock` has the ballot of the Redlock. A
//! change of a protocol goes into its model first, and each rule is left out once: the checker must
//! then find the violation.
//!
//! They are a crate of their own because they need nothing but the checker, and because they are
//! built optimized: the checker visits millions of states.
