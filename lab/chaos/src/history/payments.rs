//! The history of a payment: what was reported of it, and what an admin noted.

use client::OrderState;
use uuid::Uuid;

/// What is known of one payment from outside.
#[derive(Clone, Debug)]
pub struct PaymentHistory {
    /// The provider's id of the payment.
    pub payment: String,
    /// The reports of it. It may be reported for several orders.
    pub reports: Vec<Report>,
    /// What an admin has noted of it as returned, or has refunded, and what the provider has
    /// returned.
    pub notes: Vec<Note>,
    /// Responses that contradict the API or an earlier response.
    pub contradictions: Vec<String>,
}

/// A report of the payment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The order that it names.
    pub order: Uuid,
    /// The answer.
    pub answer: Answer,
}

/// The answer to a report, after repeats.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The payment has paid the order, which was in this state.
    Paid(OrderState),
    /// It was refused with this code.
    Refused(String),
    /// No attempt got a response that settles the outcome.
    Unknown,
}

/// An admin's request to note that the money was returned, or the provider's report of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// The row, or the order that was refunded. `None`: the provider has reported the return.
    pub row: Option<String>,
    /// The payment.
    pub payment: String,
    /// The order of the row.
    pub order: Uuid,
    /// Whether it was acknowledged. `None`: the outcome is unknown.
    pub is_noted: Option<bool>,
}

impl PaymentHistory {
    /// The history of a payment that was not reported yet.
    pub fn new(payment: String) -> Self {
        Self {
            payment,
            reports: Vec::new(),
            notes: Vec::new(),
            contradictions: Vec::new(),
        }
    }

    /// Whether a report of it was answered.
    pub fn is_answered(&self) -> bool {
        let mut reports = self.reports.iter();
        reports.any(|report| report.answer != Answer::Unknown)
    }

    /// Whether its money was returned: a note of it was acknowledged.
    pub fn is_returned(&self) -> bool {
        self.notes.iter().any(|note| note.is_noted == Some(true))
    }

    /// Whether a note was acknowledged, or may have been made.
    pub fn may_be_returned(&self) -> bool {
        self.notes.iter().any(|note| note.is_noted != Some(false))
    }

    /// Whether the provider's report of the return was acknowledged.
    pub fn is_returned_by_provider(&self) -> bool {
        let mut notes = self.notes.iter();
        notes.any(|note| note.row.is_none() && note.is_noted == Some(true))
    }

    /// The orders that it was reported for.
    pub fn orders(&self) -> Vec<Uuid> {
        let mut orders: Vec<_> = self.reports.iter().map(|report| report.order).collect();
        orders.sort_unstable();
        orders.dedup();
        orders
    }
}
