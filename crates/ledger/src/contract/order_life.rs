//! The life of an order after it was recorded.

use async_trait::async_trait;
use domain::{Order, OrderId, OrderState, PaymentId, SessionId};
use jiff::Timestamp;
use uuid::Uuid;

use crate::{Actors, ItemScope, LedgerError, PendingReturn, Transition};

/// What the order service and the expiry need: orders, their transitions, and pending returns.
#[async_trait]
pub trait OrderLife: Send + Sync + 'static {
    /// The order, if it has been recorded.
    async fn order(&self, id: OrderId) -> Result<Option<Order>, LedgerError>;

    /// [`OrderLife::order`] for a reader who takes no step on it. Such reads have connections of
    /// their own: however many there are, none delays a payment or a recording.
    async fn look_up_order(&self, id: OrderId) -> Result<Option<Order>, LedgerError>;

    /// Held orders of these items whose hold has expired at `now`, earliest deadline first. Lines of
    /// carts are left to their carts ([`Carts::due_carts`](crate::Carts::due_carts)),
    /// unless the cart has failed or expired.
    async fn due(
        &self,
        of: ItemScope<'_>,
        now: Timestamp,
        at_most: usize,
    ) -> Result<Vec<Order>, LedgerError>;

    /// Makes the transitions in one transaction, each only if the order still has the version that
    /// the transition names. Writes the orders, the counters of their segments, and a pending
    /// return where units go back.
    ///
    /// Returns for each transition, in order, the order afterwards, or `None` if a concurrent
    /// change came first, or the payment belongs to another order or was returned; that order is
    /// then left as it is. No order may occur twice. The journal gets an entry for each transition
    /// that is made and whose order is among `actors`.
    async fn transition_by(
        &self,
        transitions: &[Transition],
        actors: &Actors,
    ) -> Result<Vec<Option<Order>>, LedgerError>;

    /// [`OrderLife::transition_by`] where no admin makes a transition.
    async fn transition(
        &self,
        transitions: &[Transition],
    ) -> Result<Vec<Option<Order>>, LedgerError> {
        self.transition_by(transitions, &Actors::new()).await
    }

    /// Ends the holds of these orders in one transaction, each only if the order still has this
    /// version. Returns those that have ended.
    ///
    /// # Errors
    ///
    /// `LedgerError::TimedOut` if the orders are of several sales and something else locks the rows of
    /// one for half a second. The orders of the other sales wait for as long.
    async fn expire_orders(&self, orders: &[Order]) -> Result<Vec<Order>, LedgerError>;

    /// Moves the deadline of a held order, if the order still has the version of `order`. Returns
    /// the order afterwards, or `None` if a concurrent change came first.
    ///
    /// A hold ends by a transition, which is decided on a version too: of an extension and the end
    /// of the hold, one wins and the other finds another version.
    async fn extend(
        &self,
        order: &Order,
        expires_at: Timestamp,
    ) -> Result<Option<Order>, LedgerError> {
        self.extend_by(order, expires_at, None, None).await
    }

    /// [`OrderLife::extend`] that names the checkout session in which the order is being paid, too.
    /// The deadline may stay as it is.
    ///
    /// Every naming raises the version. So a transition that was decided on the session of an
    /// earlier version finds another version, and is not made. A session that was named before
    /// keeps its place among the others.
    async fn name_session(
        &self,
        order: &Order,
        session: &SessionId,
        expires_at: Timestamp,
    ) -> Result<Option<Order>, LedgerError> {
        self.extend_by(order, expires_at, Some(session), None).await
    }

    /// [`OrderLife::extend`], or [`OrderLife::name_session`] where there is a session. The journal
    /// gets an entry if an admin, `actor`, does it.
    async fn extend_by(
        &self,
        order: &Order,
        expires_at: Timestamp,
        session: Option<&SessionId>,
        actor: Option<&str>,
    ) -> Result<Option<Order>, LedgerError>;

    /// Notes what the shop states of the order, which its segment does not know. The version rises.
    /// `None`: it has another version, and nothing was changed.
    async fn set_stated(&self, order: Order) -> Result<Option<Order>, LedgerError>;

    /// The checkout session that the order or the cart with this id has named last. To be read
    /// after the order or the cart on which a transition is decided.
    async fn named_session(&self, target: Uuid) -> Result<Option<SessionId>, LedgerError>;

    /// Whether the order or the cart with this id has named this checkout session, last or before.
    async fn has_named(&self, target: Uuid, session: &SessionId) -> Result<bool, LedgerError>;

    /// The order that has this payment, or that a payment which was returned was reported for.
    async fn paid_order(&self, payment: &PaymentId) -> Result<Option<OrderId>, LedgerError>;

    /// Returns of these items that have been pending since before `before`, oldest first.
    async fn pending_returns(
        &self,
        of: ItemScope<'_>,
        before: Timestamp,
        at_most: usize,
    ) -> Result<Vec<PendingReturn>, LedgerError>;

    /// The recorded ones among these orders, with their states. A reacquisition counts as recorded
    /// once its order has reached that attempt.
    async fn recorded_among(
        &self,
        ids: &[OrderId],
    ) -> Result<Vec<(OrderId, OrderState)>, LedgerError>;
}
