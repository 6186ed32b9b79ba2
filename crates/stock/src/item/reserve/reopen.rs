//! Placing an order again that was given up.
//!
//! Its last attempt found the item closed, or no caller waited for it any more. Every segment had
//! declined its last round, so the next round may begin at once. It would be wrong to repeat the
//! last one: the other segments may be forgetting it, and could take in it while home takes in the
//! next.

use std::pin::Pin;

use super::{Attempt, ItemStock, Segment, unknown};
use crate::{StockError, decision::Decision, request::Reply, script};

impl ItemStock {
    /// What home replied, unless it has given the order up, a caller waits for it, and the item
    /// sells. `None`: home has reopened the order, and the other segments are to be asked.
    pub(super) async fn unless_reopened(
        &self,
        attempt: &mut Attempt<'_>,
        home: &Segment,
        reply: Reply,
    ) -> Result<Option<Reply>, StockError> {
        let given_up = matches!(
            reply,
            Reply::Decided(Decision::GivenUp { quantity, .. }) if quantity == attempt.order.quantity
        );
        if !given_up || !attempt.waits {
            return Ok(Some(reply));
        }
        // Seldom: in a box, it does not enlarge what every order waits in.
        let runtime = &self.shared.runtime;
        let reopened: Pin<Box<dyn Future<Output = _> + Send + '_>> =
            Box::pin(runtime.host(self.reopen(attempt, home)));
        reopened.await
    }

    async fn reopen(
        &self,
        attempt: &mut Attempt<'_>,
        home: &Segment,
    ) -> Result<Option<Reply>, StockError> {
        let survey = self.survey(attempt.begun.into_std()).await?;
        match survey.closed_gate(self.shared.clock.now_ms()) {
            Some(gate) => Ok(Some(Reply::NotOpen(gate))),
            None => attempt.reopen(home).await,
        }
    }
}

impl Attempt<'_> {
    async fn reopen(&mut self, home: &Segment) -> Result<Option<Reply>, StockError> {
        let (transport, keys) = (&home.transport, &home.keys);
        let decision =
            script::reopen_spillover(transport, keys, self.order, self.deadline_ms).await?;
        match decision {
            // Home keeps this deadline, or a later one.
            Some(Decision::Declined {
                quantity,
                until_ms,
                round,
            }) if quantity == self.order.quantity && until_ms >= self.deadline_ms => {
                self.round = self.round.max(round);
                Ok(None)
            }
            // Another attempt has reopened it with an earlier deadline. The next attempt first has
            // home keep its own.
            Some(Decision::Declined { .. }) | None => Err(unknown()),
            Some(Decision::GivenUp { .. }) => Ok(Some(Reply::LimitReached)),
            Some(decision) => Ok(Some(Reply::Decided(decision))),
        }
    }
}
