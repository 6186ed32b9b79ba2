//! Reserving the units of an order: home first, then each next segment of the ring, until one has
//! taken or all have declined.
//!
//! The simple way ("empty? try the next one") gives one order two units as soon as a client retries
//! and a unit comes back in between. Here every segment *stores its decision permanently*, and
//! segment k+1 is tried only after segment k has declined. An order that has a decision of a later
//! segment was declined by all earlier ones, and `declined` does not change. So at most one segment
//! ever takes for an order, and repeating the attempt, from any instance and at any time, has the
//! same end. That is why a timeout is never a failure here: the attempt is simply repeated.
//!
//! That all segments have declined does not mean that the item is sold out: units may come back
//! behind the order, or be on their way. So `end.rs` decides what follows. It may begin another
//! *round*, in which a segment that declined the round before decides once more, home first. A
//! round begins only after all have declined the last one, so still at most one segment takes.
//! `lab/models/tests/it/stock.rs` checks all of it exhaustively.

mod end;
mod refused;
mod reopen;

use std::{sync::Arc, time::Duration};

use tokio::{sync::oneshot, time::Instant};

use refused::Refused;

use super::{ItemStock, Segment, batches::Reservations};
use crate::{
    StockError,
    admission::Permit,
    batcher::Batcher,
    checked::Checked,
    decision::Decision,
    replies::ReplySender,
    request::{
        Acknowledge, FinishRequest, Gate, Outcome, PackedOrder, Reply, Reservation, ReserveRequest,
        SpilloverEnd,
    },
};

/// Pause after the first failed attempt; it doubles with each one.
const RETRY_PAUSE_MIN: Duration = Duration::from_millis(2);

/// The longest pause between two attempts.
const RETRY_PAUSE_MAX: Duration = Duration::from_millis(100);

/// Pause before the snapshot that proves that home has not lost an order of an item that does not
/// sell. Without it, each refusal at a paused item would cost a snapshot of all segments.
const CHECK_PAUSE: Duration = Duration::from_millis(10);

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

    /// The same for a caller who ends it after [`Reservation::within`], by dropping it. A caller
    /// with a timer at hand saves one for each order.
    pub async fn order_without_timer(
        &self,
        reservation: &Reservation,
    ) -> Result<Outcome, StockError> {
        let begun = Instant::now();
        if let Some(gate) = self.refused_early(&reservation.buyer) {
            return Ok(Reply::NotOpen(gate).into_outcome(reservation.quantity));
        }
        let permit = match self.admit(reservation).await {
            Ok(permit) => permit,
            Err(refused) => return Ok(refused),
        };
        let checked = self.surveys.checked();
        let caller = Caller::Waits(Some(permit));
        match self.reserve(reservation, begun, caller).await? {
            // Boxed: this is rare, and would enlarge the future of every order.
            Reply::NotOpen(gate) => Box::pin(self.not_open(reservation, gate, checked)).await,
            reply => Ok(reply.into_outcome(reservation.quantity)),
        }
    }

    /// What home's reply means that the item does not sell, and that home does not know the order.
    /// Home may have lost it, unless it was checked, as now, `before` it was asked.
    async fn not_open(
        &self,
        reservation: &Reservation,
        mut gate: Gate,
        mut before: Option<Arc<Checked>>,
    ) -> Result<Outcome, StockError> {
        let replied = std::time::Instant::now();
        self.shared.runtime.host(self.note_early(&gate)).await;
        let refused = |gate| Reply::NotOpen(gate).into_outcome(reservation.quantity);
        if self.segments.len() == 1 {
            return Ok(refused(gate));
        }
        if before.is_none() {
            before = self.checked_since(replied).await;
            if before.is_none() {
                return Ok(refused(gate).maybe_lost());
            }
            let caller = Caller::Waits(None);
            match self.reserve(reservation, Instant::now(), caller).await? {
                Reply::NotOpen(again) => gate = again,
                reply => return Ok(reply.into_outcome(reservation.quantity)),
            }
        }
        let replied = std::time::Instant::now();
        // A crowd at a paused item shares the snapshots that began meanwhile.
        tokio::time::sleep(CHECK_PAUSE).await;
        match self.checked_since(replied).await {
            after if after == before => Ok(refused(gate)),
            _ => Ok(refused(gate).maybe_lost()),
        }
    }

    /// What the homes are checked in by now. `None`: one is not, or could not be read.
    pub(super) async fn checked_now(&self) -> Option<Arc<Checked>> {
        self.checked_since(std::time::Instant::now()).await
    }

    /// The same by a snapshot that began at `since` or later, possibly that of another order.
    async fn checked_since(&self, since: std::time::Instant) -> Option<Arc<Checked>> {
        let survey = self.survey(since).await.ok()?;
        survey.checked.clone()
    }

    /// The same for an order that has been admitted before, and that no caller waits for. It begins
    /// no further round: no unit goes to a buyer who has left.
    pub(super) async fn repeat_order(&self, reservation: Reservation) -> Result<(), StockError> {
        let attempts = self.reserve(&reservation, Instant::now(), Caller::HasLeft);
        within(reservation.within, attempts).await.map(drop)
    }

    async fn reserve(
        &self,
        reservation: &Reservation,
        begun: Instant,
        mut caller: Caller,
    ) -> Result<Reply, StockError> {
        let until = begun + reservation.within;
        let order = Arc::new(PackedOrder::new(
            reservation.order,
            reservation.buyer.clone(),
            reservation.quantity,
        ));
        let mut pause = RETRY_PAUSE_MIN;
        let mut refused = Refused::default();
        loop {
            let mut home_replied = false;
            let left = (until - Instant::now()).as_millis();
            let left_ms = i64::try_from(left).unwrap_or(i64::MAX / 2);
            let attempt = Attempt {
                order: &order,
                acknowledge: reservation.acknowledge,
                deadline_ms: self.shared.clock.now_ms() + left_ms,
                begun,
                waits: matches!(caller, Caller::Waits(_)),
                round: 0,
                rounds_begun: 0,
                permit: caller.permit(),
                home_replied: &mut home_replied,
            };
            match self.attempt(attempt).await {
                Ok(reply) => return Ok(reply),
                Err(error) => {
                    self.note_failed_attempt(&error);
                    let now = Instant::now();
                    refused.note(&error, home_replied, now);
                    if !error.is_transient() {
                        return Err(refused.end(error, begun.elapsed()));
                    }
                    let another = refused.time_for_another(&error, pause, reservation.within);
                    if refused.is_final(&error, now, until - another) {
                        return Err(error);
                    }
                }
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(RETRY_PAUSE_MAX);
        }
    }

    fn note_failed_attempt(&self, error: &StockError) {
        if error.is_transient() {
            metrics::counter!("stockade_spillover_retries_total").increment(1);
        }
        tracing::debug!(item = %self.id, %error, "an attempt to reserve failed");
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
        let reply = attempt.reserve(&home.home, true).await?;
        *attempt.home_replied = true;
        if let Some(reply) = reply
            && let Some(reply) = self.unless_reopened(&mut attempt, home, reply).await?
        {
            return Ok(reply);
        }
        loop {
            for segment in ring.clone() {
                if let Some(reply) = attempt.reserve_at(segment).await? {
                    attempt.finish_elsewhere(home, segment, &reply);
                    return Ok(reply);
                }
            }
            if let Some(reply) = self.end_round(&mut attempt, home).await? {
                return Ok(reply);
            }
        }
    }
}

/// Who waits for an order.
enum Caller {
    /// A caller, with the permit for the first attempt.
    Waits(Option<Permit>),
    HasLeft,
}

impl Caller {
    fn permit(&mut self) -> Option<Permit> {
        match self {
            Self::Waits(permit) => permit.take(),
            Self::HasLeft => None,
        }
    }
}

/// One attempt on its way around the ring.
struct Attempt<'a> {
    order: &'a Arc<PackedOrder>,
    acknowledge: Acknowledge,
    deadline_ms: i64,
    /// When the caller requested the order.
    begun: Instant,
    /// Whether a caller waits for it.
    waits: bool,
    /// The round that the segments are asked in. Home has declined it.
    round: u32,
    /// Rounds that this attempt has begun.
    rounds_begun: u32,
    permit: Option<Permit>,
    /// Whether home has decided something, which others may act on.
    home_replied: &'a mut bool,
}

impl Attempt<'_> {
    /// Tries a segment other than home.
    async fn reserve_at(&mut self, segment: &Segment) -> Result<Option<Reply>, StockError> {
        let batcher = if self.round == 0 {
            &segment.next
        } else {
            &segment.again
        };
        self.reserve(batcher, false).await
    }

    /// Tries one segment. `None`: it declined.
    async fn reserve(
        &mut self,
        batcher: &Batcher<Reservations>,
        is_home: bool,
    ) -> Result<Option<Reply>, StockError> {
        let (sender, reply) = ReplySender::new();
        batcher.push(ReserveRequest {
            order: Arc::clone(self.order),
            acknowledge: self.acknowledge,
            deadline_ms: self.deadline_ms,
            round: self.round,
            is_home,
            permit: self.permit.take(),
            sender,
        });
        // A batcher replies to every request. If its task died, the outcome is as unknown as after
        // a lost reply.
        match reply.await.unwrap_or_else(|_| Err(unknown()))? {
            Reply::Declined {
                permit,
                deadline_ms,
                round,
            } => {
                // Home's deadline is never earlier than ours, and home has stored it. Later
                // segments are tried under that one and under no later one: they might take after
                // home has forgotten the order. Their own deadline is never later than ours and
                // matters to no other segment.
                self.deadline_ms = self.deadline_ms.max(deadline_ms);
                // Another attempt is in a later round. All segments up to this one have declined
                // it.
                self.round = self.round.max(round);
                self.permit = permit;
                Ok(None)
            }
            // Home has forgotten the order, or lost it. The next attempt begins anew.
            Reply::Unknown => Err(unknown()),
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

    /// If it fails, the order is still in `spillovers`.
    fn finish(&self, home: &Segment, end: SpilloverEnd) -> oneshot::Receiver<Option<Decision>> {
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

/// What a task that has died leaves. The next attempt resolves it.
pub(super) fn unknown() -> StockError {
    StockError::OutcomeUnknown(Duration::ZERO)
}
