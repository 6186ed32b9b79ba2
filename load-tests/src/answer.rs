//! What an answer says.

use serde::Deserialize;
use uuid::Uuid;

use crate::wish::{Placed, State, Wish};

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// To an order request: the units are the buyer's.
    Held {
        /// The order.
        id: Uuid,
        /// It had been placed before this request.
        replayed: bool,
    },
    /// To an order request: it had been placed before, and has gone on since.
    MovedOn {
        /// The order.
        id: Uuid,
        /// Where it stands.
        state: State,
    },
    /// Nothing is left.
    SoldOut,
    /// The buyer would hold more than one may.
    Limited,
    /// To a request about an order: where it stands now.
    Stands(State),
    /// The item, with numbers that agree.
    Item,
    /// To a request about an order: a refusal that the API declares.
    Refused(&'static str),
    /// The client did not wait for it.
    GivenUp,
    /// What was asked for may or may not have been done. The same request tells.
    Unknown(String),
    /// Nothing that the API promises.
    Wrong(String),
}

/// What an answer must look like.
#[derive(Debug, Clone, Copy)]
pub struct Expected<'a> {
    /// What was asked for.
    pub wish: &'a Wish,
    /// The status of an acknowledged order.
    pub status: u16,
    /// Which item.
    pub item: &'a str,
    /// Units of it that exist.
    pub stock: u64,
}

#[derive(Deserialize)]
struct Order<'a> {
    id: Uuid,
    item: &'a str,
    quantity: u32,
    state: State,
}

#[derive(Deserialize)]
struct Item<'a> {
    id: &'a str,
    stock: u64,
    available: u64,
    sold_out: bool,
}

#[derive(Deserialize)]
struct Problem<'a> {
    code: &'a str,
}

impl Answer {
    /// Reads an answer.
    pub fn read(status: u16, replayed: bool, body: &[u8], expected: Expected<'_>) -> Self {
        match (status, expected.wish) {
            (200..=299, Wish::Order { quantity, .. }) => {
                Self::acknowledged(status, replayed, body, expected, *quantity)
            }
            (200, Wish::Browse) => Self::item(body, expected),
            (200, wish) => wish.order().map_or_else(
                || wrong(status),
                |order| Self::stands(body, expected, order),
            ),
            _ => Self::refused(status, body, expected.wish),
        }
    }

    fn acknowledged(
        status: u16,
        replayed: bool,
        body: &[u8],
        expected: Expected<'_>,
        quantity: u32,
    ) -> Self {
        let Ok(order) = serde_json::from_slice::<Order<'_>>(body) else {
            return Self::Wrong(format!("{status} without an order"));
        };
        // A repeat of what the ledger has by now is 201 at every durability.
        if status != expected.status && !(replayed && status == 201) {
            return Self::Wrong(format!("{status} instead of {}", expected.status));
        }
        if order.item != expected.item || order.quantity != quantity {
            return Self::Wrong(format!("{status} with another order than was placed"));
        }
        match order.state {
            State::Held => Self::Held {
                id: order.id,
                replayed,
            },
            state if replayed => Self::MovedOn {
                id: order.id,
                state,
            },
            _ => Self::Wrong(format!("{status} with another order than was placed")),
        }
    }

    fn stands(body: &[u8], expected: Expected<'_>, asked: Placed) -> Self {
        match serde_json::from_slice::<Order<'_>>(body) {
            Ok(order)
                if order.id == asked.id
                    && order.item == expected.item
                    && order.quantity == asked.quantity =>
            {
                Self::Stands(order.state)
            }
            Ok(_) => Self::Wrong("200 with another order than was asked about".into()),
            Err(_) => Self::Wrong("200 without an order".into()),
        }
    }

    fn item(body: &[u8], expected: Expected<'_>) -> Self {
        let Ok(item) = serde_json::from_slice::<Item<'_>>(body) else {
            return Self::Wrong("200 without an item".into());
        };
        if item.id != expected.item || item.stock != expected.stock {
            return Self::Wrong("200 with another item than was asked for".into());
        }
        if item.available > item.stock || item.sold_out != (item.available == 0) {
            return Self::Wrong("200 with an item whose numbers contradict each other".into());
        }
        Self::Item
    }

    fn refused(status: u16, body: &[u8], wish: &Wish) -> Self {
        let code = serde_json::from_slice::<Problem<'_>>(body)
            .map_or("no problem+json", |problem| problem.code);
        let declared = wish.refusals().iter().find(|declared| **declared == code);
        match (status, code, wish) {
            (409, "sold_out", Wish::Order { .. }) => Self::SoldOut,
            (409, "buyer_limit_reached", Wish::Order { .. }) => Self::Limited,
            (404 | 409, _, _) if declared.is_some() => {
                declared.map_or_else(|| wrong(status), |code| Self::Refused(code))
            }
            // Of these the API says, or a proxy leaves open, that it may have been done.
            (408 | 500..=599, _, _) => Self::Unknown(format!("{status} {code}")),
            _ => Self::Wrong(format!("{status} {code}")),
        }
    }

    /// What is wrong with it, whatever was answered before.
    pub fn error(&self) -> Option<&str> {
        match self {
            Self::Unknown(what) | Self::Wrong(what) => Some(what),
            _ => None,
        }
    }
}

fn wrong(status: u16) -> Answer {
    Answer::Wrong(format!("{status} where the API promises another status"))
}

#[cfg(test)]
mod tests {
    use reqwest::header::HeaderValue;
    use uuid::Uuid;

    use super::{Answer, Expected};
    use crate::wish::{Placed, State, Wish};

    const HELD: &str = r#"{"id":"0190a0b0-0000-8000-8000-000000000001","item":"vase","quantity":2,"state":"held","expires_at":"2026-01-01T00:00:00Z"}"#;

    fn id() -> Uuid {
        Uuid::parse_str("0190a0b0-0000-8000-8000-000000000001").unwrap()
    }

    fn order() -> Placed {
        Placed {
            id: id(),
            quantity: 2,
        }
    }

    fn answer(wish: &Wish, status: u16, replayed: bool, body: &str) -> Answer {
        Answer::read(
            status,
            replayed,
            body.as_bytes(),
            Expected {
                wish,
                status: 201,
                item: "vase",
                stock: 9,
            },
        )
    }

    fn read(status: u16, body: &str) -> Answer {
        answer(
            &Wish::Order {
                key: HeaderValue::from_static("k"),
                quantity: 2,
            },
            status,
            false,
            body,
        )
    }

    fn problem(code: &str) -> String {
        format!(r#"{{"type":"about:blank","code":"{code}","detail":"..."}}"#)
    }

    #[test]
    fn an_order_is_held_only_if_it_is_the_one_that_was_placed() {
        assert_eq!(
            read(201, HELD),
            Answer::Held {
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
                matches!(read(status, &body), Answer::Wrong(_)),
                "{status} {body}"
            );
        }
    }

    #[test]
    fn a_repeat_may_say_that_the_order_has_gone_on() {
        let wish = Wish::Order {
            key: HeaderValue::from_static("k"),
            quantity: 2,
        };
        let again = answer(&wish, 201, true, &HELD.replace("held", "confirmed"));
        assert_eq!(
            again,
            Answer::MovedOn {
                id: id(),
                state: State::Confirmed
            }
        );
    }

    #[test]
    fn only_the_declared_refusals_are_expected() {
        assert_eq!(read(409, &problem("sold_out")), Answer::SoldOut);
        assert_eq!(read(409, &problem("buyer_limit_reached")), Answer::Limited);
        assert_eq!(
            read(409, &problem("not_open")),
            Answer::Wrong("409 not_open".into())
        );
        assert_eq!(
            read(422, &problem("idempotency_key_reused")),
            Answer::Wrong("422 idempotency_key_reused".into())
        );
        assert_eq!(
            read(503, &problem("outcome_unknown")),
            Answer::Unknown("503 outcome_unknown".into())
        );
        assert_eq!(
            read(502, "<html>"),
            Answer::Unknown("502 no problem+json".into())
        );
        assert_eq!(read(404, ""), Answer::Wrong("404 no problem+json".into()));
    }

    #[test]
    fn a_refusal_belongs_to_what_was_asked_for() {
        let pay = Wish::Pay {
            order: order(),
            payment: "pay_1".into(),
        };
        assert_eq!(
            answer(&pay, 409, false, &problem("already_paid")),
            Answer::Refused("already_paid")
        );
        assert_eq!(
            answer(&pay, 409, false, &problem("order_not_cancellable")),
            Answer::Wrong("409 order_not_cancellable".into())
        );
        assert_eq!(
            answer(&pay, 401, false, &problem("invalid_signature")),
            Answer::Wrong("401 invalid_signature".into())
        );
        assert_eq!(
            answer(
                &Wish::Show(order()),
                404,
                false,
                &problem("order_not_found")
            ),
            Answer::Refused("order_not_found")
        );
        assert_eq!(
            answer(&Wish::Cancel(order()), 409, false, &problem("sold_out")),
            Answer::Wrong("409 sold_out".into())
        );
    }

    #[test]
    fn an_order_is_shown_only_if_it_is_the_one_that_was_asked_about() {
        let show = Wish::Show(order());
        assert_eq!(answer(&show, 200, false, HELD), Answer::Stands(State::Held));
        assert_eq!(
            answer(&show, 200, false, &HELD.replace("held", "refund_due")),
            Answer::Stands(State::RefundDue)
        );
        for body in [
            HELD.replace("0001", "0002"),
            HELD.replace(":2", ":1"),
            HELD.replace("vase", "jar"),
            "{}".into(),
        ] {
            assert!(
                matches!(answer(&show, 200, false, &body), Answer::Wrong(_)),
                "{body}"
            );
        }
    }

    #[test]
    fn an_item_is_shown_with_numbers_that_agree() {
        let item = r#"{"id":"vase","stock":9,"available":4,"held":5,"sold_out":false}"#;
        assert_eq!(answer(&Wish::Browse, 200, false, item), Answer::Item);
        for body in [
            item.replace("vase", "jar"),
            item.replace(":9", ":8"),
            item.replace(":4", ":10"),
            item.replace(":4", ":0"),
            "{}".into(),
        ] {
            assert!(
                matches!(answer(&Wish::Browse, 200, false, &body), Answer::Wrong(_)),
                "{body}"
            );
        }
    }
}
