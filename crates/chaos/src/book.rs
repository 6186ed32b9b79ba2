//! What was acknowledged: the client's side of every order, against which the ledger is held.

use std::{collections::BTreeSet, sync::Arc};

use serde::Serialize;
use uuid::Uuid;

use crate::shop::State;

/// What an acknowledgement of an order rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// The ledger has it.
    Recorded,
    /// Replicas of Redis have it.
    Replicated,
    /// Redis has it.
    Accepted,
}

impl Level {
    /// As the API calls it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Recorded => "recorded",
            Self::Replicated => "replicated",
            Self::Accepted => "accepted",
        }
    }
}

/// An item that the crowd wants.
#[derive(Clone, Debug)]
pub struct Offer {
    /// Its name.
    pub item: String,
    /// What its acknowledgements rest on.
    pub level: Level,
    /// Units that there are at first.
    pub stock: u64,
    /// Units that a buyer may hold.
    pub limit: u32,
    /// Stock counters.
    pub segments: u32,
    /// Seconds for which an order holds its units.
    pub hold_seconds: u32,
}

/// What came of placing an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Placed {
    /// The buyer was told that it is there, and its name.
    Acknowledged(Uuid),
    /// The buyer was told why it is not.
    Refused(String),
    /// Nobody answered.
    Unknown,
}

/// An order, as its buyer knows it.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Of what.
    pub offer: Arc<Offer>,
    /// Whose.
    pub buyer: String,
    /// The key.
    pub key: String,
    /// How many units.
    pub quantity: u32,
    /// How often it was asked for under this key. The answer to one of several requests does not say what came of the others.
    pub requests: u32,
    /// What came of placing it.
    pub placed: Placed,
    /// The payment that was acknowledged as its own.
    pub payment: Option<String>,
    /// Every state that was acknowledged, in order.
    pub acknowledged: Vec<State>,
    /// Every state that was asked for, perhaps without an answer.
    pub wanted: BTreeSet<State>,
    /// Answers that cannot be.
    pub contradictions: Vec<String>,
}

impl Entry {
    /// The states that the ledger may have it in, once every hold is over.
    pub fn allowed(&self) -> BTreeSet<State> {
        let refunded = self
            .wanted
            .contains(&State::Refunded)
            .then_some(State::Refunded);
        let mut allowed = match self
            .acknowledged
            .iter()
            .rev()
            .find(|state| **state != State::Held)
        {
            Some(State::Refunded) => BTreeSet::from([State::Refunded]),
            Some(State::Cancelled) => BTreeSet::from([State::Cancelled]),
            Some(State::Confirmed) => BTreeSet::from([State::Confirmed]),
            Some(State::RefundDue) => BTreeSet::from([State::RefundDue]),
            _ => self.allowed_if_only_held(),
        };
        if allowed
            .iter()
            .any(|state| matches!(state, State::Confirmed | State::RefundDue))
        {
            allowed.extend(refunded);
        }
        allowed
    }

    /// Nothing but the hold was acknowledged: it is over, unless something that was asked for happened without an answer.
    fn allowed_if_only_held(&self) -> BTreeSet<State> {
        let mut allowed = BTreeSet::from([State::Expired]);
        if self.wanted.contains(&State::Confirmed) {
            allowed.extend([State::Confirmed, State::RefundDue]);
        }
        if self.wanted.contains(&State::Cancelled) {
            allowed.insert(State::Cancelled);
        }
        if self.acknowledged.is_empty() || self.offer.level != Level::Recorded {
            allowed.insert(State::Rejected);
        }
        allowed
    }

    /// Whether its buyer cannot know if there is an order: nobody answered, or one of several requests was refused. A refusal by the sold-out hint
    /// leaves no record, so another request with the same key may still have been served.
    pub fn may_be_there_unseen(&self) -> bool {
        match self.placed {
            Placed::Acknowledged(_) => false,
            Placed::Refused(_) => self.requests > 1,
            Placed::Unknown => true,
        }
    }

    /// How many times somebody was told that something is so.
    pub fn acknowledgements(&self) -> usize {
        self.acknowledged.len()
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, sync::Arc};

    use uuid::Uuid;

    use super::{Entry, Level, Offer, Placed};
    use crate::shop::State::{self, *};

    fn entry(level: Level, acknowledged: &[State], wanted: &[State]) -> Entry {
        let offer = Offer {
            item: "vase".into(),
            level,
            stock: 1,
            limit: 1,
            segments: 1,
            hold_seconds: 2,
        };
        Entry {
            offer: Arc::new(offer),
            buyer: "ann".into(),
            key: "k".into(),
            quantity: 1,
            requests: 1,
            payment: None,
            placed: Placed::Acknowledged(Uuid::nil()),
            acknowledged: acknowledged.into(),
            wanted: wanted.iter().copied().collect(),
            contradictions: Vec::new(),
        }
    }

    #[test]
    fn what_was_acknowledged_last_is_what_must_be() {
        let table: [(&[State], &[State], &[State]); 9] = [
            (&[Held], &[], &[Expired]),
            (&[Held], &[Confirmed], &[Expired, Confirmed, RefundDue]),
            (&[Held], &[Cancelled], &[Expired, Cancelled]),
            (&[Held, Confirmed], &[Confirmed], &[Confirmed]),
            (
                &[Held, Confirmed],
                &[Confirmed, Refunded],
                &[Confirmed, Refunded],
            ),
            (
                &[Held, Confirmed, Refunded],
                &[Confirmed, Refunded],
                &[Refunded],
            ),
            (&[Held, Cancelled], &[Cancelled], &[Cancelled]),
            (&[Held, RefundDue], &[Confirmed], &[RefundDue]),
            (&[], &[], &[Expired, Rejected]),
        ];
        for (acknowledged, wanted, allowed) in table {
            let entry = entry(Level::Recorded, acknowledged, wanted);
            assert_eq!(
                entry.allowed(),
                allowed.iter().copied().collect::<BTreeSet<_>>(),
                "{acknowledged:?} {wanted:?}"
            );
        }
    }

    #[test]
    fn only_an_order_that_was_not_recorded_when_it_was_acknowledged_may_be_rejected() {
        assert!(
            !entry(Level::Recorded, &[Held], &[])
                .allowed()
                .contains(&Rejected)
        );
        assert!(
            entry(Level::Accepted, &[Held], &[])
                .allowed()
                .contains(&Rejected)
        );
        assert!(
            !entry(Level::Accepted, &[Held, Confirmed], &[Confirmed])
                .allowed()
                .contains(&Rejected)
        );
    }
}
