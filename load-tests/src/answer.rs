//! What an answer to an order request says.

use serde::Deserialize;
use uuid::Uuid;

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The units are the buyer's.
    Held {
        /// The order.
        id: Uuid,
        /// It had been placed before this request.
        replayed: bool,
    },
    /// Nothing is left.
    SoldOut,
    /// The buyer would hold more than one may.
    Limited,
    /// The order may or may not have been placed. The same key tells.
    Unknown(String),
    /// Nothing that the API promises.
    Wrong(String),
}

/// What an acknowledgement must look like.
#[derive(Debug, Clone, Copy)]
pub struct Expected<'a> {
    /// The status.
    pub status: u16,
    /// What was ordered.
    pub item: &'a str,
    /// How many units.
    pub quantity: u32,
}

#[derive(Deserialize)]
struct Order<'a> {
    id: Uuid,
    item: &'a str,
    quantity: u32,
    state: &'a str,
}

#[derive(Deserialize)]
struct Problem<'a> {
    code: &'a str,
}

impl Answer {
    /// Reads an answer.
    pub fn read(status: u16, replayed: bool, body: &[u8], expected: Expected<'_>) -> Self {
        match status {
            200..=299 => Self::acknowledged(status, replayed, body, expected),
            _ => Self::refused(status, body),
        }
    }

    fn acknowledged(status: u16, replayed: bool, body: &[u8], expected: Expected<'_>) -> Self {
        let Ok(order) = serde_json::from_slice::<Order<'_>>(body) else { return Self::Wrong(format!("{status} without an order")) };
        if status != expected.status {
            return Self::Wrong(format!("{status} instead of {}", expected.status));
        }
        if order.item != expected.item || order.quantity != expected.quantity || order.state != "held" {
            return Self::Wrong(format!("{status} with another order than was placed"));
        }
        Self::Held { id: order.id, replayed }
    }

    fn refused(status: u16, body: &[u8]) -> Self {
        let code = serde_json::from_slice::<Problem<'_>>(body).map_or("no problem+json", |problem| problem.code);
        match (status, code) {
            (409, "sold_out") => Self::SoldOut,
            (409, "buyer_limit_reached") => Self::Limited,
            // Of these the API says, or a proxy leaves open, that the order may have been placed.
            (408 | 500..=599, _) => Self::Unknown(format!("{status} {code}")),
            _ => Self::Wrong(format!("{status} {code}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::{Answer, Expected};

    const HELD: &str =
        r#"{"id":"0190a0b0-0000-8000-8000-000000000001","item":"vase","quantity":2,"state":"held","expires_at":"2026-01-01T00:00:00Z"}"#;

    fn read(status: u16, body: &str) -> Answer {
        Answer::read(status, false, body.as_bytes(), Expected { status: 201, item: "vase", quantity: 2 })
    }

    #[test]
    fn an_order_is_held_only_if_it_is_the_one_that_was_placed() {
        let id = Uuid::parse_str("0190a0b0-0000-8000-8000-000000000001").unwrap();
        assert_eq!(read(201, HELD), Answer::Held { id, replayed: false });
        let wrong = [
            (202, HELD.to_owned()),
            (201, HELD.replace("vase", "jar")),
            (201, HELD.replace(":2", ":1")),
            (201, HELD.replace("held", "rejected")),
            (201, "{}".into()),
            (201, String::new()),
        ];
        for (status, body) in wrong {
            assert!(matches!(read(status, &body), Answer::Wrong(_)), "{status} {body}");
        }
    }

    #[test]
    fn only_the_declared_refusals_are_expected() {
        let problem = |code: &str| format!(r#"{{"type":"about:blank","code":"{code}","detail":"..."}}"#);
        assert_eq!(read(409, &problem("sold_out")), Answer::SoldOut);
        assert_eq!(read(409, &problem("buyer_limit_reached")), Answer::Limited);
        assert_eq!(read(409, &problem("not_open")), Answer::Wrong("409 not_open".into()));
        assert_eq!(read(422, &problem("idempotency_key_reused")), Answer::Wrong("422 idempotency_key_reused".into()));
        assert_eq!(read(503, &problem("outcome_unknown")), Answer::Unknown("503 outcome_unknown".into()));
        assert_eq!(read(502, "<html>"), Answer::Unknown("502 no problem+json".into()));
        assert_eq!(read(404, ""), Answer::Wrong("404 no problem+json".into()));
    }
}
