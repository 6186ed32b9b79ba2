//! Returning one line of a confirmed cart, and what it has of the cart's money.

use std::sync::Arc;

use domain::{CartId, CartState, OrderId, OrderState};

use super::super::{Engine, EngineError, OrderView};

/// Result of returning a line of a cart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LineReturned {
    /// The line is `refunded`, by this or an earlier request. Its amount is its share of what the
    /// cart costs.
    Line(Box<OrderView>),
    /// There is no such cart.
    NotFound,
    /// The cart has no such line, or its order went with a drop of the item.
    NoLine,
    /// No line of a cart in this state can be returned.
    Refused(CartState),
}

impl Engine {
    /// Records that `admin` has returned the money of one line of a confirmed cart, and releases
    /// its units. The other lines stay the buyer's. With the last line the cart is `refunded`.
    pub async fn return_cart_line(
        &self,
        id: CartId,
        line: OrderId,
        admin: &Arc<str>,
    ) -> Result<LineReturned, EngineError> {
        self.in_rounds(|_| self.return_cart_line_once(id, line, admin))
            .await
    }

    /// `None`: a concurrent change was faster.
    async fn return_cart_line_once(
        &self,
        id: CartId,
        line: OrderId,
        admin: &Arc<str>,
    ) -> Result<Option<LineReturned>, EngineError> {
        let Some(cart) = self.ledger.cart(id).await? else {
            return Ok(Some(LineReturned::NotFound));
        };
        if !cart.lines.iter().any(|of| of.order == line) {
            return Ok(Some(LineReturned::NoLine));
        }
        let Some(order) = self.ledger.order(line).await? else {
            return Ok(Some(LineReturned::NoLine));
        };
        if order.state == OrderState::Refunded {
            let shared = self.with_share(order).await?;
            return Ok(Some(LineReturned::Line(Box::new(shared))));
        }
        if cart.state != CartState::Confirmed {
            return Ok(Some(LineReturned::Refused(cart.state)));
        }
        let returned = self.ledger.return_cart_line(&cart, line, admin).await;
        let Some(returned) = returned.map_err(EngineError::of_change)? else {
            return Ok(None);
        };
        if returned.cart.state != cart.state {
            let to = returned.cart.state.as_str();
            metrics::counter!("stockade_carts_total", "to" => to).increment(1);
        }
        self.stepped(&order, OrderState::Refunded).await;
        let shared = self.with_share(returned.line).await;
        let shared = shared.map_err(EngineError::after_change)?;
        Ok(Some(LineReturned::Line(Box::new(shared))))
    }

    async fn with_share(&self, order: domain::Order) -> Result<OrderView, EngineError> {
        let mut rows = [self.view_order(order).await?];
        self.share_amounts(&mut rows).await?;
        let [row] = rows;
        Ok(row)
    }
}
