//! Reserving the units of an order: home first, then each next segment of the ring, until one has
//! taken or all have declined.
//!
//! The simple way ("empty? try the next one") gives one order two units as soon as a client retries
//! and a unit comes back in between. Here every segment *stores its decision permanently*, and
//! segment k+1 is tried only after segment k has declined. An order that has a decision of a later
//! segment was declined by all earlier ones, and `declined` never changes. So at most one segment
//! ever takes for an order, and repeating the attempt, from any instance and at any time, has the
//! same end. That is why a timeout is never a failure here: the attempt is simply repeated.
//! `tests/it/model.rs` checks it exhaustively.

use std::{sync::Arc, time::Duration};

use tokio::{sync::oneshot, time::Instant};

use super::{ItemStock, Segment};
use crate::{
    StockError,
    admission::Permit,
    batcher::{Batch, Batcher},
    request::{
        Acknowledge, FinishRequest, Outcome, PackedOrder, Reply, Reservation, ReserveRequest,
        SpilloverEnd,
    },
};

/// Pause after the first failed attempt; it doubles with each one.
const RETRY_PAUSE_MIN: Duration = Duration::from_millis(2);

/// The longest pause between two attempts.
const RETRY_PAUSE_MAX: Duration = Duration::from_millis(100);

async fn within<T>(
    limit: Duration,
    attempts: impl Future<Output = Result<T, StockError>>,
) -> Result<T, StockError> {
    tokio::time::timeout(limit, attempts)
        .await
        .unwrap_or(Err(StockError::OutcomeUnknown(limit)))
}

impl ItemStock {
    /// Takes the units, or returns why not. Every repeat, from any process, has the same outcome,
    /// except for refusals that left no record (not open, limit, shed): those may end differently
    /// later.
    ///
    /// Cancelling it leaves at most a pending spillover, which [`ItemStock::settle_spillovers`]
    /// ends.
    pub async fn order(&self, reservation: Reservation) -> Result<Outcome, StockError> {
        within(reservation.within, self.order_without_timer(&reservation)).await
    }

    /// The same for a caller who ends it after [`Reservation::within`], by dropping it. A caller with
    /// a timer at hand saves one for each order.
    pub async fn order_without_timer(
        &self,
        reservation: &Reservation,
    ) -> Result<Outcome, StockError> {
        match self.admit(reservation).await {
            Some(permit) => self.reserve(reservation, Some(permit)).await,
            None => Ok(Outcome::Shed),
        }
    }

    /// The same for an order that has been admitted before.
    pub(super) async fn repeat_order(
        &self,
        reservation: Reservation,
    ) -> Result<Outcome, StockError> {
        within(reservation.within, self.reserve(&reservation, None)).await
    }

    async fn reserve(
        &self,
        reservation: &Reservation,
        mut permit: Option<Permit>,
    ) -> Result<Outcome, StockError> {
        let until = Instant::now() + reservation.within;
        let order = Arc::new(PackedOrder::new(
            reservation.order,
            reservation.buyer.clone(),
            reservation.quantity,
        ));
        let mut pause = RETRY_PAUSE_MIN;
        loop {
            let left = (until - Instant::now()).as_millis();
            let left_ms = i64::try_from(left).unwrap_or(i64::MAX / 2);
            let attempt = Attempt {
                order: &order,
                acknowledge: reservation.acknowledge,
                deadline_ms: self.shared.clock.now_ms() + left_ms,
                permit: permit.take(),
            };
            match self.attempt(attempt).await {
                Ok(reply) => return Ok(reply.into_outcome(reservation.quantity)),
                Err(error) if error.is_transient() => self.note_failed_attempt(&error),
                Err(error) => return Err(error),
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(RETRY_PAUSE_MAX);
        }
    }

    fn note_failed_attempt(&self, error: &StockError) {
        metrics::counter!("stockade_spillover_retries_total").increment(1);
        tracing::debug!(item = %self.id, %error, "reservation failed, retrying");
        if let StockError::Late { now_ms } = error {
            self.shared.clock.observe(*now_ms);
        }
    }

    /// One attempt. Its end does not depend on the process that makes it, or on how often it is
    /// made.
    async fn attempt(&self, mut attempt: Attempt<'_>) -> Result<Reply, StockError> {
        let mut ring = self.ring(&attempt.order.buyer);
        let Some(home) = ring.next() else {
            return Ok(Reply::SoldOut);
        };
        if let Some(reply) = attempt.reserve(&home.home).await? {
            return Ok(reply);
        }
        for segment in ring {
            if let Some(reply) = attempt.reserve(&segment.next).await? {
                attempt.finish_elsewhere(home, segment, &reply);
                return Ok(reply);
            }
        }
        attempt.finish_sold_out(home).await;
        Ok(Reply::SoldOut)
    }
}

/// One attempt on its way around the ring.
struct Attempt<'a> {
    order: &'a Arc<PackedOrder>,
    acknowledge: Acknowledge,
    deadline_ms: i64,
    permit: Option<Permit>,
}

impl Attempt<'_> {
    /// Tries one segment. `None`: it declined.
    async fn reserve<B: Batch<Request = ReserveRequest>>(
        &mut self,
        batcher: &Batcher<B>,
    ) -> Result<Option<Reply>, StockError> {
        let (sender, reply) = oneshot::channel();
        batcher.push(ReserveRequest {
            order: Arc::clone(self.order),
            acknowledge: self.acknowledge,
            deadline_ms: self.deadline_ms,
            permit: self.permit.take(),
            sender,
        });
        // A batcher replies to every request. If its task died, the outcome is as unknown as after
        // a lost reply.
        let died = Err(StockError::OutcomeUnknown(Duration::ZERO));
        match reply.await.unwrap_or(died)? {
            Reply::Declined {
                permit,
                deadline_ms,
            } => {
                // Home's deadline is never earlier than ours, and home has stored it. Later segments
                // are tried under that one and under no later one: they might take after home has
                // forgotten the order. Their own deadline is never later than ours and matters to no
                // other segment.
                self.deadline_ms = self.deadline_ms.max(deadline_ms);
                self.permit = permit;
                Ok(None)
            }
            reply => Ok(Some(reply)),
        }
    }

    /// Notifies home, without waiting. A repeat before that spills over once more and has the same
    /// end.
    fn finish_elsewhere(&self, home: &Segment, segment: &Segment, reply: &Reply) {
        if let Some(expires_ms) = reply.held_until_ms(self.order.quantity) {
            let segment = segment.number();
            let end = SpilloverEnd::Elsewhere {
                expires_ms,
                segment,
            };
            drop(self.finish(home, end));
        }
    }

    /// Notifies home and waits, so that the buyer's count is released before the buyer gets the
    /// outcome. If it fails, the order is still in `spillovers`.
    async fn finish_sold_out(&self, home: &Segment) {
        let _ = self.finish(home, SpilloverEnd::SoldOut).await;
    }

    fn finish(&self, home: &Segment, end: SpilloverEnd) -> oneshot::Receiver<()> {
        let (done, finished) = oneshot::channel();
        home.finish.push(FinishRequest {
            order: Arc::clone(self.order),
            deadline_ms: self.deadline_ms,
            end,
            done,
        });
        finished
    }
}
