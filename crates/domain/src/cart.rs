//! Carts: orders of several items that a buyer gets all or none of.
//!
//! A cart is a saga and not one atomic step: its lines take their units one after the other, and a
//! line that took units for a cart that fails gives them back. What is atomic is every change of
//! the cart after that: one transaction for all of its lines.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use sha2::Digest;
use uuid::Uuid;

use crate::{
    BuyerId, IdempotencyKey, ItemId, OrderId, OrderState, PaymentId, Quantity,
    id::{hash_of, uuid_id},
    item::named_enum,
};

/// A cart as the ledger has recorded it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cart {
    /// Id of the cart.
    pub id: CartId,
    /// The buyer.
    pub buyer: BuyerId,
    /// State of the cart.
    pub state: CartState,
    /// Its orders, as the buyer listed them. No item occurs twice.
    pub lines: Vec<CartLine>,
    /// What it costs, in the currency's smallest unit: the price of all lines, or the total of the
    /// shop if it has stated one. Of a cart that is paid and unchecked: what the payment paid.
    pub amount: u64,
    /// Whether only a payment of this amount pays the cart. Otherwise the shop checks what was
    /// paid.
    pub is_checked: bool,
    /// What its lines cost together when it was placed. `None`: the first price of their items.
    pub price: Option<u64>,
    /// ISO 4217.
    pub currency: String,
    /// When placing it has to be done. Later it fails.
    pub deadline: Timestamp,
    /// The earliest deadline of its holds; that of placing it while it is `placing`.
    pub expires_at: Timestamp,
    /// The payment that confirmed it, or that must be refunded (`refund_due`).
    pub payment: Option<PaymentId>,
    /// Why it has failed.
    pub refusal: Option<CartRefusal>,
    /// Rises with every change.
    pub version: u64,
}

impl Cart {
    /// The largest amount of a cart: a report of a payment can name no larger one.
    pub const AMOUNT_MAX: u64 = 1_000_000_000_000_000_000;
}

/// A line of a cart: the order for one item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CartLine {
    /// Id of the order.
    pub order: OrderId,
    /// The item.
    pub item: ItemId,
    /// Number of units.
    pub quantity: Quantity,
}

/// Why a cart has failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CartRefusal {
    /// The reason.
    pub reason: RefusalReason,
    /// The item whose line was refused. `None`: the time was over.
    pub item: Option<ItemId>,
}

named_enum! {
    /// State of a cart.
    CartState {
        /// Its lines are taking their units. None can be paid.
        Placing = "placing",
        /// All units are reserved for the buyer until the deadline.
        Held = "held",
        /// The cart is paid; all units belong to the buyer.
        Confirmed = "confirmed",
        /// The buyer has cancelled. All units went back.
        Cancelled = "cancelled",
        /// The deadline passed without a payment. All units went back.
        Expired = "expired",
        /// The payment came after the deadline, and not all lines could take units again: the money
        /// must be refunded.
        RefundDue = "refund_due",
        /// The money was refunded, and all units went back.
        Refunded = "refunded",
        /// A line was refused, or placing it took too long. What other lines took goes back.
        Failed = "failed",
    }
}

named_enum! {
    /// Why a line, and with it its cart, was refused.
    RefusalReason {
        /// No unit was left for the line.
        SoldOut = "sold_out",
        /// The line would have raised the buyer's units above the item's limit.
        BuyerLimitReached = "buyer_limit_reached",
        /// The item did not sell.
        NotOpen = "not_open",
        /// Placing the cart was not done at its deadline.
        TimedOut = "timed_out",
    }
}

impl CartState {
    /// The state of every line of a cart in this state. `None`: each line has its own, and none is
    /// confirmed. While a late payment of an expired cart is under way, lines that have taken units
    /// again are `held`, and expire at the end of their own holds if the cart does not become
    /// theirs.
    pub const fn lines(self) -> Option<OrderState> {
        match self {
            Self::Placing | Self::Failed => None,
            Self::Held => Some(OrderState::Held),
            Self::Confirmed => Some(OrderState::Confirmed),
            Self::Cancelled => Some(OrderState::Cancelled),
            Self::Expired => Some(OrderState::Expired),
            Self::RefundDue => Some(OrderState::RefundDue),
            Self::Refunded => Some(OrderState::Refunded),
        }
    }

    /// Whether the state machine allows this transition. An expired cart becomes `confirmed` only
    /// if all of its lines have taken units again.
    pub const fn may_become(self, next: Self) -> bool {
        matches!(
            (self, next),
            (Self::Placing, Self::Held | Self::Failed)
                | (
                    Self::Held,
                    Self::Confirmed | Self::Cancelled | Self::Expired
                )
                | (Self::Confirmed | Self::RefundDue, Self::Refunded)
                | (Self::Expired, Self::Confirmed | Self::RefundDue)
        )
    }
}

/// The id of a cart: a function of buyer and idempotency key, so that every instance derives the
/// same id without coordination.
///
/// It is a UUID of version 8 (RFC 9562): 32 bits of the buyer's hash, and SHA-256 over the names. A
/// buyer's carts are therefore one short range of the primary key.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CartId(Uuid);

/// What the hash of a cart begins with. An order's begins with an item, which has no such name.
const CART: &str = "a cart:";

impl CartId {
    /// The most lines of a cart.
    pub const LINES_MAX: usize = 20;

    /// The id of the cart that `buyer` identifies by `key`.
    pub fn derive(buyer: &BuyerId, key: &IdempotencyKey) -> Self {
        let digest = hash_of(&[CART, buyer.as_str(), key.as_str()]).finalize();
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&Self::prefix(buyer));
        bytes[4..].copy_from_slice(&digest[..12]);
        Self(uuid::Builder::from_custom_bytes(bytes).into_uuid())
    }

    fn prefix(buyer: &BuyerId) -> [u8; 4] {
        let hash = buyer.stable_hash().to_be_bytes();
        [hash[0], hash[1], hash[2], hash[3]]
    }

    /// The lowest and the highest id that a cart of this buyer can have. Carts of other buyers may
    /// lie between them.
    pub fn range_of(buyer: &BuyerId) -> [Self; 2] {
        [0x00, 0xff].map(|filling| {
            let mut bytes = [filling; 16];
            bytes[..4].copy_from_slice(&Self::prefix(buyer));
            Self(Uuid::from_bytes(bytes))
        })
    }
}

impl OrderId {
    /// The id of the cart's order for `item`. No order that is placed by itself has such an id,
    /// whatever its key.
    pub fn of_line(item: &ItemId, buyer: &BuyerId, key: &IdempotencyKey) -> Self {
        let hash = hash_of(&[CART, item.as_str(), buyer.as_str(), key.as_str()]);
        Self::with_digest(item.tag(), buyer, &hash.finalize())
    }
}

uuid_id!(CartId, "cart");

impl fmt::Debug for CartId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::{CartId, CartState};
    use crate::{BuyerId, IdempotencyKey, ItemId, OrderId};

    fn names(buyer: &str, key: &str) -> (BuyerId, IdempotencyKey) {
        let key = IdempotencyKey::new(key).unwrap();
        (BuyerId::new(buyer).unwrap(), key)
    }

    fn cart(buyer: &str, key: &str) -> CartId {
        let (buyer, key) = names(buyer, key);
        CartId::derive(&buyer, &key)
    }

    #[test]
    fn a_cart_id_is_a_function_of_buyer_and_key_and_the_same_in_every_release() {
        let id = cart("ann", "k1");
        assert_eq!(id, cart("ann", "k1"));
        assert_ne!(id, cart("ann", "k2"));
        assert_ne!(id, cart("bob", "k1"));
        assert_eq!(id.as_uuid().get_version_num(), 8);
        assert_eq!(id.to_string().parse(), Ok(id));
    }

    #[test]
    fn the_cart_ids_of_one_buyer_are_in_one_range() {
        let [first, last] = CartId::range_of(&BuyerId::new("ann").unwrap());
        for key in 0..1000 {
            let id = cart("ann", &format!("k{key}"));
            assert!(first < id && id < last, "{id}");
        }
    }

    /// A buyer who chose such a key could otherwise pay a line of a cart as an order of its own.
    #[test]
    fn the_order_of_a_line_is_no_order_that_any_key_names() {
        let (item, (ann, key)) = (ItemId::new("vase").unwrap(), names("ann", "k1"));
        let line = OrderId::of_line(&item, &ann, &key);
        let [first, last] = OrderId::range_of(item.tag(), &ann);
        assert!(first < line && line < last, "{line}");
        assert_eq!((line.attempt(), line.tag()), (0, item.tag()));
        for key in ["k1", "a-cart:", "a-cart:k1"] {
            let (_, key) = names("ann", key);
            assert_ne!(line, OrderId::derive(&item, item.tag(), &ann, &key));
        }
    }

    /// The lines follow their cart: a transition of the cart is one of each line. The lines of an
    /// expired cart that is confirmed are held again before.
    #[test]
    fn a_transition_of_a_cart_is_a_transition_of_its_lines() {
        for from in CartState::ALL {
            for to in CartState::ALL {
                if let (Some(before), Some(after)) = (from.lines(), to.lines()) {
                    let is_late = (*from, *to) == (CartState::Expired, CartState::Confirmed);
                    let both = before.may_become(after) || is_late;
                    assert_eq!(from.may_become(*to), both, "{from} to {to}");
                }
            }
        }
    }
}
