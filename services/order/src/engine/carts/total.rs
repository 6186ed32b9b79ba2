//! What a cart costs: the price of its lines, or the total of the shop.
//!
//! A shop adds shipping, tax and goods of its own to the price, and takes vouchers off. It knows
//! the total, and payments are checked against it. A buyer may hold the token that places the cart,
//! and a shop may charge what the cart costs. So only an admin states less than the price, or that
//! nothing is checked.

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
    pub(super) fn price(&self, prices: &[u64]) -> Result<u64, CartPlaced> {
        let price = price_of(&self.lines, prices);
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

    /// Whether a repeat of this request gets the known cart. What that cost without a total is the
    /// price at its time. The amount of an unchecked one changes with its payment.
    pub(super) fn has_same_total(&self, known: &Cart, items: &[Arc<KnownItem>]) -> bool {
        let price = known.price.or_else(|| {
            let first: Vec<_> = items.iter().map(|known| known.item.price).collect();
            price_of(&self.lines, &first).ok()
        });
        match self.total {
            None => known.is_checked && Some(known.amount) == price,
            Some(Total::Of(amount)) => known.is_checked && known.amount == amount,
            Some(Total::Unchecked) => !known.is_checked,
        }
    }
}

/// What the lines cost together, at these prices of a unit. An error: the index of the line at
/// which it is more than a cart may cost.
fn price_of(lines: &[(ItemId, Quantity)], prices: &[u64]) -> Result<u64, usize> {
    let mut sum = 0_u64;
    for (line, ((_, quantity), price)) in lines.iter().zip(prices).enumerate() {
        let of_line = price.checked_mul(u64::from(quantity.get()));
        sum = of_line
            .and_then(|of_line| sum.checked_add(of_line))
            .filter(|sum| *sum <= Cart::AMOUNT_MAX)
            .ok_or(line)?;
    }
    Ok(sum)
}
