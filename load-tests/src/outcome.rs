//! What a response says, judged by the API alone.

use client::{Cart, CartState, Order, OrderState, Response};
use jiff::Timestamp;
use serde::Deserialize;
use uuid::Uuid;

use crate::{
    action::{Action, OrderRef},
    cart::{CartCall, CartRef, CartRefusal},
};

/// The outcome of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The order is held.
    Held {
        /// The name of the order.
        id: Uuid,
        /// Whether an earlier request had placed it.
        replayed: bool,
    },
    /// An earlier request had placed the order, which is no longer held.
    MovedOn {
        /// The name of the order.
        id: Uuid,
        /// Its state now.
        state: OrderState,
    },
    /// The order was refused because too few units are left.
    SoldOut,
    /// The order was refused because of the buyer's limit.
    Limited,
    /// The order that the request is about is in this state.
    InState(OrderState),
    /// All lines of the cart are held.
    CartHeld {
        /// The cart.
        cart: CartRef,
        /// Whether an earlier request had placed it.
        replayed: bool,
    },
    /// An earlier request had placed the cart, which is no longer held.
    CartMovedOn {
        /// The name of the cart.
        id: Uuid,
        /// Its state now.
        state: CartState,
    },
    /// The cart was refused, and no line has units.
    CartRefused(CartRefusal),
    /// The cart that the request is about is in this state.
    CartInState {
        /// The state.
        state: CartState,
        /// When its holds end.
        expires_at: Timestamp,
    },
    /// The item was shown, with consistent numbers.
    Item,
    /// The request about an order was refused with a code that the API declares.
    Refused(&'static str),
    /// The client did not wait for the response.
    GivenUp,
    /// The request may or may not have taken effect. The same request resolves it.
    Unknown(String),
    /// The response violates the API.
    Wrong(String),
}

/// What a response must match.
#[derive(Debug, Clone, Copy)]
pub struct Expected<'a> {
    /// What was requested.
    pub action: &'a Action,
    /// The status of an acknowledged order.
    pub status: u16,
    /// The name of the item.
    pub item: &'a str,
    /// Units of the item that exist.
    pub stock: u64,
}

#[derive(Deserialize)]
struct ShownItem<'a> {
    id: &'a str,
    stock: u64,
    available: u64,
    sold_out: bool,
}

impl Outcome {
    /// Reads a response.
    pub fn read(response: &Response, expected: Expected<'_>) -> Self {
        match (response.status, expected.action) {
            (200..=299, Action::Order(order)) => {
                Self::acknowledged(response, expected, order.quantity())
            }
            (201, Action::Cart(cart)) => Self::placed_cart(response, cart),
            (200, Action::Step(cart, _)) => Self::cart_in_state(response, cart),
            (200, Action::Browse) => Self::item(response, expected),
            (200, action) => action.order().map_or_else(
                || wrong_status(200),
                |order| Self::in_state(response, expected, order),
            ),
            _ => Self::refused(response, expected.action),
        }
    }

    fn acknowledged(response: &Response, expected: Expected<'_>, quantity: u32) -> Self {
        let (status, replayed) = (response.status, response.replayed);
        let Some(order) = order(response) else {
            return Self::Wrong(format!("{status} without an order"));
        };
        // A repeat of a recorded order gets 201 at every durability.
        if status != expected.status && !(replayed && status == 201) {
            return Self::Wrong(format!("{status} instead of {}", expected.status));
        }
        let id = order.id;
        let is_same = order.item == expected.item && order.quantity == quantity;
        match order.state {
            OrderState::Held if is_same => Self::Held { id, replayed },
            state if is_same && replayed => Self::MovedOn { id, state },
            _ => Self::Wrong(format!("{status} with another order than was placed")),
        }
    }

    fn in_state(response: &Response, expected: Expected<'_>, requested: OrderRef) -> Self {
        match order(response) {
            Some(order)
                if order.id == requested.id
                    && order.item == expected.item
                    && order.quantity == requested.quantity =>
            {
                Self::InState(order.state)
            }
            Some(_) => Self::Wrong("200 with another order than was requested".into()),
            None => Self::Wrong("200 without an order".into()),
        }
    }

    fn placed_cart(response: &Response, cart: &CartCall) -> Self {
        let replayed = response.replayed;
        match cart.read(response) {
            Ok((cart, CartState::Held)) => Self::CartHeld { cart, replayed },
            Ok((CartRef { id, .. }, state)) if replayed && has_been_held(state) => {
                Self::CartMovedOn { id, state }
            }
            Ok((_, state)) => Self::Wrong(format!("201 with a cart that is {state:?}")),
            Err(error) => Self::Wrong(format!("201 with another cart than was placed: {error}")),
        }
    }

    fn cart_in_state(response: &Response, requested: &CartRef) -> Self {
        match response.json::<Cart>() {
            Ok(cart) if requested.is_shown_by(&cart) => Self::CartInState {
                state: cart.state,
                expires_at: cart.expires_at,
            },
            Ok(_) => Self::Wrong("200 with another cart than was requested".into()),
            Err(_) => Self::Wrong("200 without a cart".into()),
        }
    }

    fn item(response: &Response, expected: Expected<'_>) -> Self {
        let Ok(item) = serde_json::from_slice::<ShownItem<'_>>(&response.body) else {
            return Self::Wrong("200 without an item".into());
        };
        if item.id != expected.item || item.stock != expected.stock {
            return Self::Wrong("200 with another item than was requested".into());
        }
        if item.available > item.stock || item.sold_out != (item.available == 0) {
            return Self::Wrong("200 with an item whose numbers contradict each other".into());
        }
        Self::Item
    }

    fn refused(response: &Response, action: &Action) -> Self {
        let (status, problem) = (response.status, response.problem());
        let code = problem.code.as_str();
        if let (409, Action::Cart(cart)) = (status, action)
            && let Some(refusal) = cart.read_refusal(&problem)
        {
            return Self::CartRefused(refusal);
        }
        let declared = action.refusals().iter().find(|declared| **declared == code);
        match (status, code, action, declared) {
            (409, "sold_out", Action::Order(_), _) => Self::SoldOut,
            (409, "buyer_limit_reached", Action::Order(_), _) => Self::Limited,
            (404 | 409, _, _, Some(code)) => Self::Refused(code),
            // The API, or a proxy, leaves open whether the request took effect.
            (408 | 500..=599, ..) => Self::Unknown(format!("{status} {code}")),
            _ => Self::Wrong(format!("{status} {code}")),
        }
    }

    /// A description if the outcome is an error, whatever the earlier outcomes were.
    pub fn error(&self) -> Option<&str> {
        match self {
            Self::Unknown(error) | Self::Wrong(error) => Some(error),
            _ => None,
        }
    }
}

/// The order in the response. A rejected order must never be acknowledged, so it counts as none.
fn order(response: &Response) -> Option<Order> {
    let order: Order = response.json().ok()?;
    (order.state != OrderState::Rejected).then_some(order)
}

/// A cart that was never held must not be acknowledged.
fn has_been_held(state: CartState) -> bool {
    !matches!(state, CartState::Placing | CartState::Failed)
}

fn wrong_status(status: u16) -> Outcome {
    Outcome::Wrong(format!("{status} where the API promises another status"))
}

#[cfg(test)]
mod tests {
    use client::{Content, NewOrder, OrderState, Response};
    use uuid::Uuid;

    use super::{Expected, Outcome};
    use crate::action::{Action, OrderRef};

    const HELD: &str = r#"{"id":"0190a0b0-0000-8000-8000-000000000001","item":"vase","quantity":2,"state":"held","expires_at":"2026-01-01T00:00:00Z"}"#;

    fn id() -> Uuid {
        Uuid::parse_str("0190a0b0-0000-8000-8000-000000000001").unwrap()
    }

    fn order() -> OrderRef {
        OrderRef {
            id: id(),
            quantity: 2,
        }
    }

    fn outcome(action: &Action, status: u16, replayed: bool, body: &str) -> Outcome {
        let response = Response {
            status,
            replayed,
            retry_after: None,
            version: None,
            content: match status {
                ..400 => Content::Json,
                _ => Content::Problem,
            },
            body: body.to_owned().into(),
        };
        Outcome::read(
            &response,
            Expected {
                action,
                status: 201,
                item: "vase",
                stock: 9,
            },
        )
    }

    fn read(status: u16, body: &str) -> Outcome {
        outcome(
            &Action::Order(NewOrder::new("vase", 2)),
            status,
            false,
            body,
        )
    }

    fn problem(code: &str) -> String {
        format!(r#"{{"type":"about:blank","code":"{code}","detail":"..."}}"#)
    }

    #[test]
    fn only_the_placed_order_counts_as_held() {
        assert_eq!(
            read(201, HELD),
            Outcome::Held {
                id: id(),
                replayed: false
            }
        );
        let wrong = [
            (202, HELD.to_owned()),
            (201, HELD.replace("vase", "jar")),
            (201, HELD.replace(":2", ":1")),
            (201, HELD.replace("held", "rejected")),
            (201, HELD.replace("held", "confirmed")),
            (201, "{}".into()),
            (201, String::new()),
        ];
        for (status, body) in wrong {
            assert!(
                matches!(read(status, &body), Outcome::Wrong(_)),
                "{status} {body}"
            );
        }
    }

    #[test]
    fn a_repeat_may_report_a_later_state() {
        let action = Action::Order(NewOrder::new("vase", 2));
        let again = outcome(&action, 201, true, &HELD.replace("held", "confirmed"));
        assert_eq!(
            again,
            Outcome::MovedOn {
                id: id(),
                state: OrderState::Confirmed
            }
        );
    }

    #[test]
    fn only_declared_refusals_are_expected() {
        assert_eq!(read(409, &problem("sold_out")), Outcome::SoldOut);
        assert_eq!(read(409, &problem("buyer_limit_reached")), Outcome::Limited);
        let wrong = |of: &str| Outcome::Wrong(of.into());
        let unknown = |of: &str| Outcome::Unknown(of.into());
        let reused = problem("idempotency_key_reused");
        let table = [
            (409, problem("not_open"), wrong("409 not_open")),
            (422, reused, wrong("422 idempotency_key_reused")),
            (
                503,
                problem("outcome_unknown"),
                unknown("503 outcome_unknown"),
            ),
            (502, "<html>".into(), unknown("502 no problem+json")),
            (404, String::new(), wrong("404 no problem+json")),
        ];
        for (status, body, outcome) in table {
            assert_eq!(read(status, &body), outcome, "{status} {body}");
        }
    }

    #[test]
    fn each_action_has_its_own_refusals() {
        let pay = Action::Pay {
            order: order(),
            payment: "pay_1".into(),
        };
        let (show, cancel) = (Action::Show(order()), Action::Cancel(order()));
        let wrong = |of: &str| Outcome::Wrong(of.into());
        let table = [
            (&pay, 409, "already_paid", Outcome::Refused("already_paid")),
            (
                &pay,
                409,
                "order_not_cancellable",
                wrong("409 order_not_cancellable"),
            ),
            (
                &pay,
                400,
                "invalid_signature",
                wrong("400 invalid_signature"),
            ),
            (
                &show,
                404,
                "order_not_found",
                Outcome::Refused("order_not_found"),
            ),
            (&cancel, 409, "sold_out", wrong("409 sold_out")),
        ];
        for (action, status, code, expected) in table {
            let found = outcome(action, status, false, &problem(code));
            assert_eq!(found, expected, "{status} {code}");
        }
    }

    #[test]
    fn only_the_requested_order_counts_as_shown() {
        let show = Action::Show(order());
        assert_eq!(
            outcome(&show, 200, false, HELD),
            Outcome::InState(OrderState::Held)
        );
        assert_eq!(
            outcome(&show, 200, false, &HELD.replace("held", "refund_due")),
            Outcome::InState(OrderState::RefundDue)
        );
        for body in [
            HELD.replace("0001", "0002"),
            HELD.replace(":2", ":1"),
            HELD.replace("vase", "jar"),
            "{}".into(),
        ] {
            assert!(
                matches!(outcome(&show, 200, false, &body), Outcome::Wrong(_)),
                "{body}"
            );
        }
    }

    #[test]
    fn an_item_must_be_shown_with_consistent_numbers() {
        let item = r#"{"id":"vase","stock":9,"available":4,"held":5,"sold_out":false}"#;
        assert_eq!(outcome(&Action::Browse, 200, false, item), Outcome::Item);
        for body in [
            item.replace("vase", "jar"),
            item.replace(":9", ":8"),
            item.replace(":4", ":10"),
            item.replace(":4", ":0"),
            "{}".into(),
        ] {
            assert!(
                matches!(
                    outcome(&Action::Browse, 200, false, &body),
                    Outcome::Wrong(_)
                ),
                "{body}"
            );
        }
    }
}
