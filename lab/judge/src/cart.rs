//! A cart and the orders of its lines: no cart is half sold.

use client::{CartState, OrderState};

/// What is known of the order of a line.
#[derive(Clone, Copy, Debug)]
pub struct LineOrder {
    /// Its state.
    pub state: OrderState,
    /// Whether it is the cart's, by the names that it has.
    pub is_of_cart: bool,
    /// Whether quantity, item and payment are those of the line and the cart, as far as they are
    /// known.
    pub has_its_terms: bool,
}

/// The state of every line of a cart in this state; `None`: each line has its own.
pub fn lines_state(state: CartState) -> Option<OrderState> {
    match state {
        CartState::Placing | CartState::Failed => None,
        CartState::Held => Some(OrderState::Held),
        CartState::Confirmed => Some(OrderState::Confirmed),
        CartState::Cancelled => Some(OrderState::Cancelled),
        CartState::Expired => Some(OrderState::Expired),
        CartState::RefundDue => Some(OrderState::RefundDue),
        CartState::Refunded => Some(OrderState::Refunded),
    }
}

/// Whether a line of a cart in this state may have this order. `None`: the ledger has none.
pub fn line_agrees(cart: CartState, order: Option<LineOrder>) -> bool {
    match (order, lines_state(cart)) {
        // A cart that has failed need not have taken all of its lines.
        (None, expected) => expected.is_none(),
        (Some(order), None) => !order.state.has_units() && order.is_of_cart,
        (Some(order), Some(state)) => {
            order.state == state && order.is_of_cart && order.has_its_terms
        }
    }
}

#[cfg(test)]
mod tests {
    use client::{CartState, OrderState};

    use super::{LineOrder, line_agrees};

    fn order(state: OrderState) -> LineOrder {
        LineOrder {
            state,
            is_of_cart: true,
            has_its_terms: true,
        }
    }

    #[test]
    fn a_line_has_the_state_of_its_cart() {
        use CartState::{Cancelled, Confirmed, Expired, Failed, Held, RefundDue, Refunded};
        let table = [
            (Held, Some(OrderState::Held), true),
            (Confirmed, Some(OrderState::Confirmed), true),
            (Cancelled, Some(OrderState::Cancelled), true),
            (Expired, Some(OrderState::Expired), true),
            (RefundDue, Some(OrderState::RefundDue), true),
            (Refunded, Some(OrderState::Refunded), true),
            (Confirmed, Some(OrderState::Held), false),
            (Confirmed, Some(OrderState::Cancelled), false),
            (Expired, Some(OrderState::Confirmed), false),
            (Held, Some(OrderState::Expired), false),
            (Confirmed, None, false),
            (Failed, None, true),
            (Failed, Some(OrderState::Cancelled), true),
            (Failed, Some(OrderState::Expired), true),
            (Failed, Some(OrderState::Rejected), true),
            (Failed, Some(OrderState::Held), false),
            (Failed, Some(OrderState::Confirmed), false),
        ];
        for (cart, state, agrees) in table {
            let found = line_agrees(cart, state.map(order));
            assert_eq!(found, agrees, "{cart:?} {state:?}");
        }
    }

    #[test]
    fn an_order_of_another_cart_or_with_other_terms_is_not_the_lines() {
        let expired = order(OrderState::Expired);
        let of_another = LineOrder {
            is_of_cart: false,
            ..expired
        };
        let with_others = LineOrder {
            has_its_terms: false,
            ..expired
        };
        assert!(!line_agrees(CartState::Expired, Some(of_another)));
        assert!(!line_agrees(CartState::Expired, Some(with_others)));
        assert!(!line_agrees(CartState::Failed, Some(of_another)));
        assert!(line_agrees(CartState::Failed, Some(with_others)));
    }
}
