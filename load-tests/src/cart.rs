//! Carts, as virtual users place them: several items that a buyer gets all or none of.

pub mod judge;
pub mod ledger;

use std::{collections::BTreeMap, sync::Arc};

use client::{Cart, CartState, IdempotencyKey, NewCart, Problem, ProblemCode, Response};
use jiff::Timestamp;
use uuid::Uuid;

/// A cart that is placed.
#[derive(Debug, Clone)]
pub struct CartCall {
    /// What is sent.
    pub cart: NewCart,
    /// Its lines. No item occurs twice.
    pub lines: Arc<[WantedLine]>,
}

/// A line of a cart before it has an order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WantedLine {
    /// The number of the item.
    pub item: usize,
    /// The name of the item.
    pub id: String,
    /// Number of units.
    pub quantity: u32,
}

/// A cart that was placed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CartRef {
    /// The name of the cart.
    pub id: Uuid,
    /// Its orders.
    pub lines: Arc<[LineRef]>,
    /// When its holds end, as far as is known.
    pub expires_at: Timestamp,
}

/// The order of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LineRef {
    /// The name of the order.
    pub order: Uuid,
    /// The number of the item.
    pub item: usize,
    /// Number of units.
    pub quantity: u32,
}

/// What is requested of a cart that was placed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CartStep {
    /// Shows it.
    Show,
    /// Extends its holds to this many seconds.
    Extend(u32),
    /// Reports a payment, as the provider does.
    Pay(String),
    /// Cancels it.
    Cancel,
    /// Notes, as an admin, that the money was returned.
    Refund,
}

/// Why a cart was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CartRefusal {
    /// The reason.
    pub reason: RefusalReason,
    /// The index of the line that was refused; `None` if the time was over.
    pub line: Option<usize>,
    /// Whether every repeat is refused, too. A refusal of the sold-out cache is not final.
    pub is_final: bool,
}

/// Why a cart, or the line of one, was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusalReason {
    /// Too few units are left.
    SoldOut,
    /// The buyer's limit.
    Limited,
    /// Placing it took too long.
    TimedOut,
}

impl CartCall {
    /// A cart of these lines.
    pub fn new(lines: Vec<WantedLine>, key: IdempotencyKey) -> Self {
        let cart = lines.iter().fold(NewCart::new(), |cart, line| {
            cart.with(&line.id, line.quantity)
        });
        Self {
            cart: cart.with_key(key),
            lines: lines.into(),
        }
    }

    /// Reads an acknowledgement: the placed cart and its state. An error names what violates the
    /// API.
    pub fn read(&self, response: &Response) -> Result<(CartRef, CartState), String> {
        let placed = self
            .cart
            .read(response)
            .map_err(|error| error.to_string())?;
        let orders: BTreeMap<_, _> = placed
            .cart
            .lines
            .iter()
            .map(|line| (&*line.item, line.order))
            .collect();
        // `NewCart::read` has compared items and quantities.
        let lines = self.lines.iter().filter_map(|line| {
            orders.get(&*line.id).map(|order| LineRef {
                order: *order,
                item: line.item,
                quantity: line.quantity,
            })
        });
        let cart = CartRef {
            id: placed.cart.id,
            lines: lines.collect(),
            expires_at: placed.cart.expires_at,
        };
        Ok((cart, placed.cart.state))
    }

    /// Reads a refusal with status 409; `None` if the API declares none such.
    pub fn read_refusal(&self, problem: &Problem) -> Option<CartRefusal> {
        let line = |item: &String| self.lines.iter().position(|line| line.id == *item);
        let line = problem.item.as_ref().and_then(line);
        let reason = match problem.code {
            ProblemCode::SoldOut => RefusalReason::SoldOut,
            ProblemCode::BuyerLimitReached => RefusalReason::Limited,
            ProblemCode::CartTimedOut => RefusalReason::TimedOut,
            _ => return None,
        };
        let names_its_line = line.is_some() || reason == RefusalReason::TimedOut;
        names_its_line.then(|| CartRefusal {
            reason,
            line,
            is_final: problem.is_final != Some(false),
        })
    }
}

impl CartRef {
    /// Whether this is the cart that the service shows.
    pub fn is_shown_by(&self, cart: &Cart) -> bool {
        let known = self.lines.iter().map(|line| (line.order, line.quantity));
        let shown = cart.lines.iter().map(|line| (line.order, line.quantity));
        let (known, shown): (BTreeMap<_, _>, BTreeMap<_, _>) = (known.collect(), shown.collect());
        cart.id == self.id && known == shown
    }
}

impl CartStep {
    /// The HTTP method, for the report.
    pub fn method(&self) -> &'static str {
        match self {
            Self::Show => "GET",
            Self::Cancel => "DELETE",
            Self::Extend(_) | Self::Pay(_) | Self::Refund => "POST",
        }
    }

    /// The refusals that the API declares for the step.
    pub fn refusals(&self) -> &'static [&'static str] {
        match self {
            Self::Show => &["cart_not_found"],
            Self::Extend(_) => &["cart_not_extendable"],
            Self::Pay(_) => &["cart_not_payable", "already_paid"],
            Self::Cancel => &["cart_not_cancellable"],
            Self::Refund => &["cart_not_refundable"],
        }
    }
}
