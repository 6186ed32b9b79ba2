//! What a key belongs to that holds no units any more.

use std::fmt;

use uuid::Uuid;

use crate::{Cart, Order};

/// An order or a cart that has ended. Its key stays its own for good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The order as it is now.
    Order(Order),
    /// The cart as it is now.
    Cart(Cart),
}

impl Ended {
    /// The name of the order or the cart.
    pub fn id(&self) -> Uuid {
        match self {
            Self::Order(order) => order.id,
            Self::Cart(cart) => cart.id,
        }
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Order(order) => write!(
                f,
                "the order {} of this key is {}: a new order needs a new key",
                order.id, order.state
            ),
            Self::Cart(cart) => write!(
                f,
                "the cart {} of this key is {}: a new cart needs a new key",
                cart.id, cart.state
            ),
        }
    }
}
