//! What a cart costs: the price of its lines, or the total of the shop.
//!
//! A shop adds shipping, tax and goods of its own to the price, and takes vouchers off. It knows the total,
//! and payments are checked against it. A buyer may hold the token that places the cart, and a shop may
//! charge what the cart costs. So only an admin states less than the price, or that nothing is checked.

use std::sync::Arc;

use domain::{Cart, ItemId, Quantity};

use super::{CartPlaced, CartPlacement, KnownItem};

/// What the shop says that a cart costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Total {
    /// This, in the currency's smallest unit.
    Of(u64),
    /// The shop checks what was paid: a payment of any amount pays the cart.
    Unchecked,
}

impl CartPlacement {
    /// What the lines cost together, or why there can be no such cart.
    pub(super) fn price(&self, items: &[Arc<KnownItem>]) -> Result<u64, CartPlaced> {
        let price = price_of(&self.lines, items);
        let price = price.map_err(|line| CartPlaced::TooDear { line })?;
        let is_less = match self.total {
            None => false,
            Some(Total::Of(amount)) => amount < price,
            Some(Total::Unchecked) => true,
        };
        match is_less && self.placer.is_none() {
            true => Err(CartPlaced::TooCheap { price }),
            false => Ok(price),
        }
    }

    /// The amount of a cart whose lines have this price.
    pub(super) fn amount(&self, price: u64) -> u64 {
        match self.total {
            Some(Total::Of(amount)) => amount,
            Some(Total::Unchecked) | None => price,
        }
    }
}

/// Whether both carts cost the same. The amount of an unchecked one changes with its payment.
pub(super) fn has_same_total(known: &Cart, new: &Cart) -> bool {
    let is_same = !new.is_checked || known.amount == new.amount;
    known.is_checked == new.is_checked && is_same
}

/// What the lines cost together. An error: the index of the line at which it is more than a cart may
/// cost.
fn price_of(lines: &[(ItemId, Quantity)], items: &[Arc<KnownItem>]) -> Result<u64, usize> {
    let mut price = 0_u64;
    for (line, ((_, quantity), known)) in lines.iter().zip(items).enumerate() {
        let of_line = known.item.price.checked_mul(u64::from(quantity.get()));
        price = of_line
            .and_then(|of_line| price.checked_add(of_line))
            .filter(|price| *price <= Cart::AMOUNT_MAX)
            .ok_or(line)?;
    }
    Ok(price)
}
