//! Carts, for every database: one transaction changes a cart and all of its lines.
//!
//! The cart's row is locked first, before any lock of the orders' transitions. A line changes only
//! under this lock, so the lines of a cart cannot part: the holder of the row sees all of them in
//! the cart's state, or the transaction fails.
//!
//! The lines of an expired cart are the exception. They take units again by the outbox of their
//! segments, and lose them at the end of their own holds, whatever the cart's row says. So a step
//! that moves them checks the version of each.

pub(crate) mod expiry;
pub(crate) mod extension;
pub(crate) mod line;

use std::sync::Arc;

use async_trait::async_trait;
use domain::{Cart, CartId, CartRefusal, CartState, Order, OrderId, OrderState, PaymentId, Units};
use jiff::{SignedDuration, Timestamp};

use crate::{
    Actors, LedgerError, Transition, events,
    life::transition,
    refunds,
    transaction::{Outcome, end_as},
};

/// How long after the deadline of a cart a request may still be on its way to a segment, because
/// clocks differ.
const LATE_LINES: SignedDuration = SignedDuration::from_secs(10);
/// Pause between two looks at a cart that has failed and may still get lines.
const LOOK_INTERVAL: SignedDuration = SignedDuration::from_millis(500);

/// A transition of a cart, decided on the cart as it was read.
#[derive(Debug, Clone)]
pub struct CartStep {
    /// The cart as it was read. The step applies only to this version; a cart that is `placing`
    /// only has to be so still.
    pub cart: Cart,
    /// The state that it shall have. From `failed` to `failed`: release the lines that were
    /// recorded since.
    pub to: CartState,
    /// The payment that comes with the step. It applies only if nothing else has it.
    pub payment: Option<PaymentId>,
    /// What the payment paid, if the amount of the cart is unchecked: from then on it is this.
    pub paid: Option<u64>,
    /// Why the cart fails.
    pub refusal: Option<CartRefusal>,
    /// The cart fails, and none of its lines can be recorded any more. It counts only if no other
    /// request has taken the cart over since it was read.
    pub is_settled: bool,
    /// The admin who makes the step, for the journal of each line's item. `None`: no admin does.
    pub actor: Option<Arc<str>>,
    /// An admin has returned the money of the cart: its payment pays nothing more, and the refunds
    /// of it that are known to have failed are settled.
    pub returns_money: bool,
}

impl CartStep {
    /// A step without payment or refusal.
    pub fn to(cart: &Cart, to: CartState) -> Self {
        Self {
            cart: cart.clone(),
            to,
            payment: None,
            paid: None,
            refusal: None,
            is_settled: false,
            actor: None,
            returns_money: false,
        }
    }

    /// Whether a line of the cart may still take units at `now`.
    pub fn may_take(cart: &Cart, now: Timestamp) -> bool {
        now.duration_since(cart.deadline) < LATE_LINES
    }

    fn is_allowed(&self) -> bool {
        let looks_again = self.cart.state == CartState::Failed && self.to == CartState::Failed;
        looks_again || self.cart.state.may_become(self.to)
    }
}

/// A cart after a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SteppedCart {
    /// The cart as it is now.
    pub cart: Cart,
    /// The lines whose units are to return to their segments.
    pub freed: Vec<Order>,
    /// Number of lines that the ledger has recorded.
    pub recorded: usize,
}

/// Result of [`crate::Carts::create_cart`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CreatedCart {
    /// The cart is new.
    New(Cart),
    /// A cart with this id existed: this is how it is now. It may have other lines.
    Known(Cart),
}

/// SQL statements of a transaction that changes a cart, besides those of its lines' transitions.
#[async_trait]
pub(crate) trait Statements: transition::Statements {
    /// Locks the cart's row, and returns its state and version.
    async fn lock_cart(&mut self, id: CartId) -> Result<Option<(CartState, u64)>, LedgerError>;

    /// Locks the carts' rows, but those that another transaction has locked, and returns their states and
    /// versions.
    async fn lock_free_carts(
        &mut self,
        ids: &[CartId],
    ) -> Result<Vec<(CartId, (CartState, u64))>, LedgerError>;

    /// The recorded orders of the carts' lines.
    async fn lines_of(&mut self, ids: &[CartId]) -> Result<Vec<Order>, LedgerError>;

    /// Number of the cart's lines whose orders went with a drop of their item.
    async fn dropped_lines(&mut self, id: CartId) -> Result<usize, LedgerError>;

    /// Writes state, end, payment, amount, refusal and version of the cart, and when a reconciler
    /// has to look at it again.
    async fn write_cart(
        &mut self,
        cart: &Cart,
        due_at: Option<Timestamp>,
    ) -> Result<(), LedgerError>;

    /// Makes the carts, whose rows are locked, `expired`, and raises their versions. No reconciler has
    /// to look at them again.
    async fn expire_carts(&mut self, ids: &[CartId]) -> Result<(), LedgerError>;
}

/// Makes the step in the transaction.
pub(crate) async fn step(
    mut transaction: impl Statements + refunds::Statements,
    step: &CartStep,
) -> Result<Option<SteppedCart>, LedgerError> {
    let stepped = apply(&mut transaction, step).await;
    end_as(transaction, stepped).await
}

async fn apply(
    transaction: &mut (impl Statements + refunds::Statements),
    step: &CartStep,
) -> Result<Outcome<Option<SteppedCart>>, LedgerError> {
    let id = step.cart.id;
    let Some((state, version)) = transaction.lock_cart(id).await? else {
        return Ok(Outcome::Unchanged(None));
    };
    // Requests for the same cart place it together: whichever has all lines, or is refused one,
    // decides for all of them.
    let is_current = match step.cart.state {
        CartState::Placing => state == CartState::Placing,
        _ => version == step.cart.version,
    };
    if !is_current || !step.is_allowed() || !bind(transaction, step).await? {
        return Ok(Outcome::Unchanged(None));
    }
    let is_settled = step.is_settled && version == step.cart.version;
    let lines = transaction.lines_of(&[id]).await?;
    if let Some(payment) = step.cart.payment.as_ref().filter(|_| step.returns_money) {
        // A refund that has failed may be that of a line that was returned before.
        match lines.iter().any(|line| line.state == OrderState::Refunded) {
            true => refunds::spend_only(transaction, payment).await.map(drop)?,
            false => refunds::spend(transaction, payment).await?,
        }
    }
    if needs_held_lines(step) && !all_are(&step.cart, &lines, OrderState::Held) {
        return Ok(Outcome::Unchanged(None));
    }
    let dropped = if lines.len() < step.cart.lines.len() {
        transaction.dropped_lines(id).await?
    } else {
        0
    };
    let after = stepped(step, version, &lines);
    let moves = moves(step, &lines, dropped)?;
    let events = match step.cart.state == step.to {
        true => None,
        false => events::of_cart(&after)?,
    };
    let moved = transition::make(
        transaction,
        moves.iter().collect(),
        &actors(step, &moves),
        events.into_iter().collect(),
    )
    .await?;
    if moved.len() != moves.len() {
        return Err(LedgerError::CartSuperseded(id));
    }
    transaction
        .write_cart(&after, due_at(&after, is_settled))
        .await?;
    Ok(Outcome::Done(Some(SteppedCart {
        cart: after,
        freed: freed(moves),
        recorded: lines.len(),
    })))
}

/// Notes that the payment is the cart's. `false`: something else has it, or it was returned.
async fn bind(transaction: &mut impl Statements, step: &CartStep) -> Result<bool, LedgerError> {
    let Some(payment) = &step.payment else {
        return Ok(true);
    };
    let payer = OrderId::from(step.cart.id.as_uuid());
    let wanted = [(payment.as_str(), payer)].into();
    let others = transition::bind(transaction, &wanted).await?;
    Ok(others.is_empty())
}

/// Whether the step applies only while every line is held, although the cart is not.
fn needs_held_lines(step: &CartStep) -> bool {
    matches!(
        (step.cart.state, step.to),
        (CartState::Placing, CartState::Held) | (CartState::Expired, CartState::Confirmed)
    )
}

/// Whether every line is recorded, in this state.
fn all_are(cart: &Cart, lines: &[Order], state: OrderState) -> bool {
    lines.len() == cart.lines.len() && lines.iter().all(|line| line.state == state)
}

/// The transitions of the lines, sorted by id. `dropped`: lines that do not exist any more, because
/// a sale of one of the cart's items was dropped. The others move without them.
fn moves(step: &CartStep, lines: &[Order], dropped: usize) -> Result<Vec<Transition>, LedgerError> {
    // Lines of an expired cart that have taken units again are held.
    let is_held_again =
        |line: &Order| step.cart.state == CartState::Expired && line.state == OrderState::Held;
    // A line of a confirmed cart may have been returned before the others.
    let is_returned = |line: &Order| {
        step.cart.state == CartState::Confirmed && line.state == OrderState::Refunded
    };
    let (from, to) = match (step.cart.state.lines(), step.to.lines()) {
        // It is held when its lines are.
        (None, Some(_)) => return Ok(Vec::new()),
        (Some(from), Some(to)) => {
            let is_whole = lines.len() + dropped == step.cart.lines.len();
            let mut lines = lines.iter();
            let is_of_cart =
                |line: &Order| line.state == from || is_held_again(line) || is_returned(line);
            if !is_whole || !lines.all(is_of_cart) {
                return Err(LedgerError::BrokenCart(step.cart.id));
            }
            (from, to)
        }
        (_, None) => (OrderState::Held, OrderState::Cancelled),
    };
    let mut moves: Vec<_> = lines
        .iter()
        .filter(|line| line.state == from || is_held_again(line))
        .map(|line| Transition {
            order: line.clone(),
            to,
            payment: step.payment.clone(),
        })
        .collect();
    moves.sort_unstable_by_key(|moved| moved.order.id);
    Ok(moves)
}

/// The orders that lose their units.
fn freed(moves: Vec<Transition>) -> Vec<Order> {
    let moves = moves.into_iter();
    let freed = moves.filter(|moved| {
        moved.order.state.units() != Units::None && moved.to.units() == Units::None
    });
    freed.map(|moved| moved.order).collect()
}

/// The admin of the step, for each line.
fn actors(step: &CartStep, moves: &[Transition]) -> Actors {
    let of = |actor: &Arc<str>| {
        let lines = moves
            .iter()
            .map(|moved| (moved.order.id, Arc::clone(actor)));
        lines.collect()
    };
    step.actor.as_ref().map(of).unwrap_or_default()
}

/// The cart after the step.
fn stepped(step: &CartStep, version: u64, lines: &[Order]) -> Cart {
    let cart = step.cart.clone();
    let held_until = lines.iter().map(|line| line.expires_at).min();
    Cart {
        state: step.to,
        expires_at: match (step.to, held_until) {
            (CartState::Held, Some(expires_at)) => expires_at,
            _ => cart.expires_at,
        },
        payment: step.payment.clone().or(cart.payment),
        amount: step.paid.unwrap_or(cart.amount),
        refusal: cart.refusal.or_else(|| step.refusal.clone()),
        version: version + 1,
        ..cart
    }
}

/// When a reconciler has to look at the cart after the step.
fn due_at(after: &Cart, is_settled: bool) -> Option<Timestamp> {
    match after.state {
        CartState::Placing | CartState::Held => Some(after.expires_at),
        CartState::Failed if !is_settled => Some(Timestamp::now() + LOOK_INTERVAL),
        _ => None,
    }
}
