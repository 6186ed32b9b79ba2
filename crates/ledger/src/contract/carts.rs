//! Carts: orders of several items that change together.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use domain::{BuyerId, Cart, CartId, ItemId, SessionId};
use jiff::Timestamp;

use crate::{CartStep, CreatedCart, ExpiredCarts, LedgerError, Page, ReturnedLine, SteppedCart};

/// What the order service and the reconciler need for carts.
#[async_trait]
pub trait Carts: Send + Sync + 'static {
    /// Writes the cart, which is `placing`, and its lines, or returns the cart that already has
    /// this id. To be called before a line takes units: from then on the ledger knows whose line it
    /// is.
    async fn create_cart(&self, cart: &Cart) -> Result<CreatedCart, LedgerError>;

    /// The cart with this id, if it exists.
    async fn cart(&self, id: CartId) -> Result<Option<Cart>, LedgerError>;

    /// [`Carts::cart`] for a reader who takes no step on it, over connections of their own.
    async fn look_up_cart(&self, id: CartId) -> Result<Option<Cart>, LedgerError>;

    /// Those of these carts that exist, with their lines, in no order, over the connections of
    /// lists.
    async fn list_carts(&self, ids: &[CartId]) -> Result<Vec<Cart>, LedgerError>;

    /// Those of these carts that exist, by one statement on the connections of readers. The answer
    /// is as new as that of [`Carts::cart`].
    async fn known_carts(&self, ids: &[CartId]) -> Result<Vec<CartId>, LedgerError>;

    /// The cart of the line with this order id.
    async fn cart_of_line(&self, order: domain::OrderId) -> Result<Option<CartId>, LedgerError>;

    /// Raises the version of a cart that is `placing`, because another request places it too: no
    /// request can then say any more what all of its lines have taken. `false`: it
    /// is not `placing`.
    async fn take_over_cart(&self, id: CartId) -> Result<bool, LedgerError>;

    /// Changes the cart and all of its lines in one transaction, if the cart still has the version
    /// of the step.
    ///
    /// `None`, and nothing is changed: the cart has another version, the payment belongs to another
    /// order or cart, or the cart is to be `held`, or `confirmed` after it had expired, and the
    /// ledger has not recorded all lines as held.
    ///
    /// # Errors
    ///
    /// `LedgerError::BrokenCart` if the lines are not in the state of their cart, and
    /// `LedgerError::CartSuperseded` if one of them has changed meanwhile. Nothing is changed.
    async fn step_cart(&self, step: &CartStep) -> Result<Option<SteppedCart>, LedgerError>;

    /// Ends the holds of these held carts in one transaction, each that still has this version, that
    /// no other transaction is changing, and whose lines are all recorded as held.
    /// [`Carts::step_cart`] knows what becomes of those with other lines.
    ///
    /// # Errors
    ///
    /// `LedgerError::CartSuperseded` if a line has changed meanwhile, and `LedgerError::TimedOut` as
    /// [`OrderLife::expire_orders`](crate::OrderLife::expire_orders). Nothing is changed.
    async fn expire_carts(&self, carts: &[Cart]) -> Result<ExpiredCarts, LedgerError>;

    /// Notes that `actor` has returned the money of one line of a confirmed cart, if the cart still
    /// has this version. With the last line the cart is refunded and its payment spent.
    ///
    /// `None`, and nothing is changed: a concurrent change came first, or the line is not
    /// confirmed.
    async fn return_cart_line(
        &self,
        cart: &Cart,
        line: domain::OrderId,
        actor: &Arc<str>,
    ) -> Result<Option<ReturnedLine>, LedgerError>;

    /// Makes the holds of all lines of a held cart last `hold`, counted from when the first of them
    /// took its units, if the cart still has this version. Returns the cart as it is then: a hold
    /// never gets shorter.
    ///
    /// `None`, and nothing is changed: a concurrent change came first, or the cart is not held.
    async fn extend_cart(&self, cart: &Cart, hold: Duration) -> Result<Option<Cart>, LedgerError> {
        self.extend_cart_by(cart, Some(hold), None, None).await
    }

    /// Names the checkout session in which the cart is being paid, if the cart still has this
    /// version and is held, and makes its holds last `hold` as [`Carts::extend_cart`] does. Every
    /// naming raises the version of the cart, and that of no line.
    async fn name_cart_session(
        &self,
        cart: &Cart,
        session: &SessionId,
        hold: Option<Duration>,
    ) -> Result<Option<Cart>, LedgerError> {
        self.extend_cart_by(cart, hold, Some(session), None).await
    }

    /// [`Carts::extend_cart`], or [`Carts::name_cart_session`] where there is a session. The
    /// journal of each line's item gets an entry if an admin, `actor`, does it.
    async fn extend_cart_by(
        &self,
        cart: &Cart,
        hold: Option<Duration>,
        session: Option<&SessionId>,
        actor: Option<&str>,
    ) -> Result<Option<Cart>, LedgerError>;

    /// Held carts whose holds have expired at `now`, earliest deadline first, without those that have
    /// a line of one of the items in `except`.
    async fn due_carts(
        &self,
        except: &[ItemId],
        now: Timestamp,
        at_most: usize,
    ) -> Result<Vec<Cart>, LedgerError>;

    /// Carts of which a reconciler has to look at the placing by `now`: its deadline has passed, or it
    /// has failed and is not settled. The longest due first, without those that have a line of one of
    /// the items in `except`.
    async fn abandoned_carts(
        &self,
        except: &[ItemId],
        now: Timestamp,
        at_most: usize,
    ) -> Result<Vec<Cart>, LedgerError>;

    /// The carts of a buyer, in all states, by id.
    async fn list_buyer_carts(
        &self,
        buyer: &BuyerId,
        after: Option<CartId>,
        at_most: usize,
    ) -> Result<Page<Cart, CartId>, LedgerError>;
}
