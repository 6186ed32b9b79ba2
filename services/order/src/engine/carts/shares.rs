//! What each line of a cart has of the cart's amount.
//!
//! Money to return is listed line by line, and the sum must be what the buyer has paid. The amount
//! of a cart may be the total of the shop, which no sum of prices is.

use std::collections::{BTreeSet, HashMap};

use domain::{Cart, CartId, OrderId};

use super::super::{Engine, EngineError, OrderView};

impl Engine {
    /// Replaces the amount of each line of a cart by its share of what the cart costs.
    pub(in crate::engine) async fn share_amounts(
        &self,
        rows: &mut [OrderView],
    ) -> Result<(), EngineError> {
        let carts: BTreeSet<CartId> = rows.iter().filter_map(|row| row.cart).collect();
        if carts.is_empty() {
            return Ok(());
        }
        let carts: Vec<_> = carts.into_iter().collect();
        let mut shares = HashMap::new();
        for cart in self.ledger.list_carts(&carts).await? {
            shares.extend(self.shares_of(&cart).await?);
        }
        for row in rows {
            if let Some(share) = shares.get(&row.id) {
                row.stated.amount = Some(*share);
            }
        }
        Ok(())
    }

    async fn shares_of(&self, cart: &Cart) -> Result<Vec<(OrderId, u64)>, EngineError> {
        let mut prices = Vec::with_capacity(cart.lines.len());
        for line in &cart.lines {
            let order = self.ledger.order(line.order).await?;
            let first = self.price_of(&line.item).await?;
            let price = first.given(order.and_then(|order| order.price));
            prices.push(price.amount(line.quantity));
        }
        let orders = cart.lines.iter().map(|line| line.order);
        Ok(orders.zip(split(cart.amount, &prices)).collect())
    }
}

/// Parts of the amount in proportion to the prices. Their sum is the amount. If all prices are 0,
/// the first line has all of it.
fn split(amount: u64, prices: &[u64]) -> Vec<u64> {
    let sum: u128 = prices.iter().copied().map(u128::from).sum();
    let (mut up_to, mut given) = (0_u128, 0_u64);
    let share = |price: &u64| {
        up_to += u128::from(*price);
        // Neither factor is above 10^18.
        let part = (u128::from(amount) * up_to).checked_div(sum);
        let all = part.and_then(|part| part.try_into().ok()).unwrap_or(amount);
        let share = all - given;
        given = all;
        share
    };
    prices.iter().map(share).collect()
}

#[cfg(test)]
mod tests {
    use domain::Cart;

    use super::split;

    #[test]
    fn the_shares_are_the_prices_if_these_are_the_amount_and_always_their_sum_is() {
        let most = Cart::AMOUNT_MAX;
        let table: [(u64, &[u64], &[u64]); 8] = [
            (950, &[900, 50], &[900, 50]),
            (1000, &[900, 50], &[947, 53]),
            (10, &[1, 1, 1], &[3, 3, 4]),
            (0, &[900, 50], &[0, 0]),
            (495, &[0, 0], &[495, 0]),
            (495, &[0, 100], &[0, 495]),
            (most, &[most - 1, 1], &[most - 1, 1]),
            (1, &[most / 2, most / 2], &[0, 1]),
        ];
        for (amount, prices, shares) in table {
            assert_eq!(split(amount, prices), shares, "{amount} of {prices:?}");
            assert_eq!(shares.iter().sum::<u64>(), amount);
        }
    }
}
