//! Carts: several items that a buyer gets all or none of.

use crate::{
    behaviors::{
        CART_CANCELS, CART_CHANGES_LINES, CART_EXPIRES, CART_EXTENDS, CART_OVER_THE_LIMIT,
        CART_PAYS, CART_PAYS_LATE, CART_REFUNDED, CART_REPEATS, CART_WATCHES, ONE_UNIT,
    },
    return_policy::ReturnPolicy,
    scenario::Scenario,
};

/// Finds a service that sells half a cart, or loses one. Two of the items are scarce, so many carts
/// fail after some of their lines have taken units.
pub static CARTS: Scenario = Scenario {
    name: "carts",
    policy: ReturnPolicy::InCarts,
    pays: true,
    must_resell: false,
    behaviors: &[
        (25, CART_PAYS),
        (13, CART_CANCELS),
        (13, CART_EXPIRES),
        (10, CART_REPEATS),
        (8, CART_WATCHES),
        (6, CART_CHANGES_LINES),
        (5, CART_OVER_THE_LIMIT),
        (5, CART_REFUNDED),
        (4, CART_EXTENDS),
        (3, CART_PAYS_LATE),
        (8, ONE_UNIT),
    ],
};
