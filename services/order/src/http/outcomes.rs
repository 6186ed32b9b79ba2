//! What payments and ends of orders and carts come to: the order or cart, or a problem.

use domain::{Cart, CartState, Order, OrderState};

use super::Problem;
use crate::engine::{Ended, Paid, Payable, Purchase};

/// An order or a cart, as answers name it.
pub(super) trait Named: Purchase {
    /// What it is.
    const WORD: &'static str;

    fn payable(&self) -> Payable;

    fn state(&self) -> &'static str;

    fn not_found() -> Problem;

    fn not_payable(state: Self::State) -> Problem;
}

impl Named for Order {
    const WORD: &'static str = "order";

    fn payable(&self) -> Payable {
        Payable::Order(self.id)
    }

    fn state(&self) -> &'static str {
        self.state.as_str()
    }

    fn not_found() -> Problem {
        Problem::order_not_found()
    }

    fn not_payable(state: OrderState) -> Problem {
        Problem::not_payable(state)
    }
}

impl Named for Cart {
    const WORD: &'static str = "cart";

    fn payable(&self) -> Payable {
        Payable::Cart(self.id)
    }

    fn state(&self) -> &'static str {
        self.state.as_str()
    }

    fn not_found() -> Problem {
        Problem::cart_not_found()
    }

    fn not_payable(state: CartState) -> Problem {
        Problem::cart_not_payable(state)
    }
}

/// What was paid, or why the payment did not pay it.
pub(super) fn paid<T: Named>(paid: Paid<T>) -> Result<T, Problem> {
    Err(match paid {
        Paid::Done(paid) => return Ok(paid),
        Paid::NotFound => T::not_found(),
        Paid::NotPayable(state) => T::not_payable(state),
        Paid::Already => Problem::already_paid(),
        Paid::InCart(cart) => Problem::order_in_cart(cart),
        Paid::OtherOrder => Problem::payment_of_another_order(),
        Paid::Returned => Problem::payment_returned(),
        Paid::OtherAmount { expected } => Problem::other_amount(T::WORD, expected),
        Paid::OtherCurrency { expected } => Problem::other_currency(&expected),
        Paid::NoAmount {
            expected: Some(expected),
        } => Problem::no_amount(T::WORD, expected),
        Paid::NoAmount { expected: None } => Problem::no_amount_of_unchecked(),
    })
}

/// What has ended, or why it has not. `refused`: because of its state.
pub(super) fn ended<T: Named>(
    ended: Ended<T>,
    refused: impl FnOnce(T::State) -> Problem,
) -> Result<T, Problem> {
    Err(match ended {
        Ended::Done(ended) => return Ok(ended),
        Ended::NotFound => T::not_found(),
        Ended::InCart(cart) => Problem::order_in_cart(cart),
        Ended::Refused(state) => refused(state),
    })
}
