//! The end of carts whose holds have expired, for every database: many carts in one transaction.
//!
//! Each cart ends as by a step of its own. One with lines that are not as they should be is left to
//! that step, which knows what becomes of it.

use std::collections::BTreeMap;

use domain::{Cart, CartId, CartState, Order, OrderState};

use super::{CartStep, Statements, SteppedCart, all_are, freed, moves, stepped};
use crate::{
    Actors, LedgerError, Transition,
    events::{self, NewEvent},
    life::transition,
    transaction::{Outcome, end_as},
};

/// Result of [`crate::Carts::expire_carts`]. Carts that are not named had changed before, or another
/// transaction is changing them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExpiredCarts {
    /// The carts that have ended.
    pub ended: Vec<SteppedCart>,
    /// Held carts of which a line is missing or not held. They have not changed.
    pub left: Vec<CartId>,
}

/// Ends these carts in the transaction, as far as each is still held in this version.
pub(crate) async fn expire(
    mut transaction: impl Statements,
    carts: &[Cart],
) -> Result<ExpiredCarts, LedgerError> {
    let expired = apply(&mut transaction, carts).await;
    let outcome = expired.map(|expired| match expired.ended.is_empty() {
        true => Outcome::Unchanged(expired),
        false => Outcome::Done(expired),
    });
    end_as(transaction, outcome).await
}

async fn apply(
    transaction: &mut impl Statements,
    carts: &[Cart],
) -> Result<ExpiredCarts, LedgerError> {
    let ids: Vec<_> = carts.iter().map(|cart| cart.id).collect();
    let locked: BTreeMap<_, _> = transaction
        .lock_free_carts(&ids)
        .await?
        .into_iter()
        .collect();
    let is_held = |cart: &&Cart| locked.get(&cart.id) == Some(&(CartState::Held, cart.version));
    let held: Vec<_> = carts.iter().filter(is_held).collect();
    if held.is_empty() {
        return Ok(ExpiredCarts::default());
    }
    let ids: Vec<_> = held.iter().map(|cart| cart.id).collect();
    let mut lines = by_cart(transaction.lines_of(&ids).await?);
    let mut expiry = Expiry::default();
    for cart in held {
        expiry.add(cart, lines.remove(&cart.id).unwrap_or_default())?;
    }
    expiry.write(transaction).await
}

fn by_cart(orders: Vec<Order>) -> BTreeMap<CartId, Vec<Order>> {
    let mut by_cart = BTreeMap::<_, Vec<_>>::new();
    for order in orders {
        if let Some(cart) = order.cart {
            by_cart.entry(cart).or_default().push(order);
        }
    }
    by_cart
}

/// Carts that end, with what follows from it.
#[derive(Default)]
struct Expiry {
    carts: ExpiredCarts,
    moves: Vec<Transition>,
    events: Vec<NewEvent>,
}

impl Expiry {
    fn add(&mut self, cart: &Cart, lines: Vec<Order>) -> Result<(), LedgerError> {
        if !all_are(cart, &lines, OrderState::Held) {
            self.carts.left.push(cart.id);
            return Ok(());
        }
        let step = CartStep::to(cart, CartState::Expired);
        let after = stepped(&step, cart.version, &lines);
        let moves = moves(&step, &lines, 0)?;
        self.events.extend(events::of_cart(&after)?);
        self.moves.extend_from_slice(&moves);
        self.carts.ended.push(SteppedCart {
            cart: after,
            freed: freed(moves),
            recorded: lines.len(),
        });
        Ok(())
    }

    async fn write(
        mut self,
        transaction: &mut impl Statements,
    ) -> Result<ExpiredCarts, LedgerError> {
        let ended = self.carts.ended.iter();
        let ids: Vec<_> = ended.map(|ended| ended.cart.id).collect();
        if ids.is_empty() {
            return Ok(self.carts);
        }
        let items = self.moves.iter().map(|moved| &moved.order.item).collect();
        transition::spare_other_sales(transaction, items).await?;
        self.moves.sort_unstable_by_key(|moved| moved.order.id);
        let moves = self.moves.iter().collect();
        let moved = transition::make(transaction, moves, &Actors::default(), self.events).await?;
        let missing = |order: &&Order| !moved.contains_key(&order.id);
        let mut orders = self.moves.iter().map(|moved| &moved.order);
        if let Some(cart) = orders.find(missing).and_then(|order| order.cart) {
            return Err(LedgerError::CartSuperseded(cart));
        }
        transaction.expire_carts(&ids).await?;
        Ok(self.carts)
    }
}
