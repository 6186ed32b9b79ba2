//! The walk: ask home, then each next segment of the ring, until one has taken or all have passed.
//!
//! The simple way ("empty? try the next one") gives one order two units as soon as a client retries and a unit comes back in between.
//! Here every segment that was asked *remembers its answer for good*, and segment k+1 is asked only after segment k has
//! answered `passed`. Whoever holds a later segment's answer holds `passed` from all earlier ones, and `passed` never changes; so at
//! most one segment ever takes for an order, and repeating a walk, from any instance and at any time, ends in the same place. That
//! is why a timeout is never a failure here: the walk is simply repeated. `tests/it/model.rs` checks it exhaustively.

use std::{sync::Arc, time::Duration};

use domain::{BuyerId, OrderId, Quantity};
use jiff::Timestamp;
use tokio::{sync::oneshot, time::Instant};

use crate::{
    Answer, StockError,
    admission::Permit,
    item::{ItemStock, Segment},
    lane::{Batch, Lane},
    script::{Asked, Gate, WalkEnd},
};

/// An order that wants units.
#[derive(Debug, Clone)]
pub struct Ask {
    /// Its name.
    pub order: OrderId,
    /// Who wants them.
    pub buyer: BuyerId,
    /// How many.
    pub quantity: Quantity,
    /// When to answer.
    pub acknowledge: Acknowledge,
    /// How long to try before the outcome is given up as unknown.
    pub within: Duration,
}

/// When an order that took its units is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Acknowledge {
    /// When the ledger has it.
    Recorded,
    /// When the script has run.
    Accepted,
}

/// What became of an order, in order of precedence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// This order id was answered before for another quantity. Nothing was changed.
    KeyReused {
        /// The quantity of the first request.
        quantity: Quantity,
    },
    /// The item does not sell now.
    NotOpen {
        /// `open` outside its window, `paused` or `closed`.
        state: String,
        /// From when on it sells.
        opens_at: Option<Timestamp>,
        /// Until when it sells.
        closes_at: Option<Timestamp>,
    },
    /// The buyer would hold more than one may.
    BuyerLimitReached,
    /// The units are the order's.
    Held {
        /// When the hold is over.
        expires_at: Timestamp,
        /// It had been answered before, if only by an attempt of this request whose reply was lost: the ledger may know more of it by now.
        replayed: bool,
        /// The ledger has it.
        recorded: bool,
    },
    /// The units were the order's and were given back: the ledger knows why. They are not taken again under this id.
    Released,
    /// Every segment passed.
    SoldOut,
    /// The item is known to be empty, and this buyer to have nothing: refused at the door, and nobody was asked.
    TurnedAway,
    /// A segment gave units, but the ledger could not cover them. Nothing was taken.
    Rejected,
}

/// What a segment said to a request.
#[derive(Debug)]
pub(crate) enum Answered {
    Taken {
        expires_ms: i64,
        recorded: bool,
    },
    Rejected,
    Known(Answer),
    Passed {
        permit: Option<Permit>,
        deadline_ms: i64,
    },
    SoldOut,
    LimitReached,
    NotOpen(Gate),
}

pub(crate) type AnswerSender = oneshot::Sender<Result<Answered, StockError>>;

/// A request to a segment.
pub(crate) struct AskRequest {
    pub asked: Arc<Asked>,
    pub acknowledge: Acknowledge,
    /// Redis milliseconds until which a segment may obey it. At home the latest of a batch goes for all of it, later on the earliest.
    pub deadline_ms: i64,
    /// Given back with `passed`, dropped with any other answer.
    pub permit: Option<Permit>,
    pub sender: AnswerSender,
}

/// A walk that ended, to be made final at home.
pub(crate) struct FinishRequest {
    pub asked: Arc<Asked>,
    pub deadline_ms: i64,
    pub end: WalkEnd,
    pub done: oneshot::Sender<()>,
}

async fn within<T>(
    time: Duration,
    trying: impl Future<Output = Result<T, StockError>>,
) -> Result<T, StockError> {
    tokio::time::timeout(time, trying)
        .await
        .unwrap_or(Err(StockError::OutcomeUnknown(time)))
}

/// Pauses between attempts after a fault, doubling.
const RETRY_FIRST: Duration = Duration::from_millis(2);
const RETRY_MOST: Duration = Duration::from_millis(100);

impl ItemStock {
    /// Takes the units, or says why not. Every repeat, from any process, has the same outcome, but for refusals that left no record
    /// (not open, limit, sold-out hint): those may turn out otherwise later.
    ///
    /// Cancelling it leaves at most an unfinished walk, which [`crate::walks`] settles.
    pub async fn order(&self, ask: Ask) -> Result<Outcome, StockError> {
        within(ask.within, async {
            match self.admit(&ask).await {
                Some(permit) => self.walk_until_answered(&ask, Some(permit)).await,
                None => Ok(Outcome::TurnedAway),
            }
        })
        .await
    }

    /// The same for an order that has been let in before.
    pub(crate) async fn repeat_order(&self, ask: Ask) -> Result<Outcome, StockError> {
        within(ask.within, self.walk_until_answered(&ask, None)).await
    }

    async fn walk_until_answered(
        &self,
        ask: &Ask,
        mut permit: Option<Permit>,
    ) -> Result<Outcome, StockError> {
        let until = Instant::now() + ask.within;
        let asked = Arc::new(Asked::new(ask.order, ask.buyer.clone(), ask.quantity));
        let mut pause = RETRY_FIRST;
        loop {
            let left_ms =
                i64::try_from((until - Instant::now()).as_millis()).unwrap_or(i64::MAX / 2);
            let deadline_ms = self.shared.clock.now_ms() + left_ms;
            match self
                .walk(&asked, ask.acknowledge, deadline_ms, permit.take())
                .await
            {
                Ok(walked) => return Ok(walked.into_outcome()),
                Err(error) if error.is_passing() => self.note_failed_attempt(&error),
                Err(error) => return Err(error),
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(RETRY_MOST);
        }
    }

    fn note_failed_attempt(&self, error: &StockError) {
        metrics::counter!("stockade_walk_retries_total").increment(1);
        tracing::debug!(item = %self.id, %error, "asking again");
        if let StockError::Late { now_ms } = error {
            self.shared.clock.observe(*now_ms);
        }
    }

    /// One attempt. Where it ends does not depend on who makes it, or how often.
    async fn walk(
        &self,
        asked: &Arc<Asked>,
        acknowledge: Acknowledge,
        deadline_ms: i64,
        permit: Option<Permit>,
    ) -> Result<Walked, StockError> {
        let mut ring = self.ring(&asked.buyer);
        let Some(home) = ring.next() else {
            return Ok(Walked::SoldOut);
        };
        let mut attempt = Attempt {
            asked,
            acknowledge,
            deadline_ms,
            permit,
        };
        if let Some(walked) = attempt.ask(&home.home).await? {
            return Ok(walked);
        }
        for segment in ring {
            if let Some(walked) = attempt.ask(&segment.next).await? {
                attempt.finish_elsewhere(home, segment, &walked);
                return Ok(walked);
            }
        }
        attempt.finish_sold_out(home).await;
        Ok(Walked::SoldOut)
    }
}

/// One attempt on its way around the ring.
struct Attempt<'a> {
    asked: &'a Arc<Asked>,
    acknowledge: Acknowledge,
    deadline_ms: i64,
    permit: Option<Permit>,
}

impl Attempt<'_> {
    /// Asks one segment. `None`: it has passed.
    async fn ask<B: Batch<Request = AskRequest>>(
        &mut self,
        lane: &Lane<B>,
    ) -> Result<Option<Walked>, StockError> {
        let (sender, answer) = oneshot::channel();
        lane.push(AskRequest {
            asked: Arc::clone(self.asked),
            acknowledge: self.acknowledge,
            deadline_ms: self.deadline_ms,
            permit: self.permit.take(),
            sender,
        });
        // A lane answers every request; if its task died, the outcome is as unknown as after a lost reply.
        match answer
            .await
            .unwrap_or(Err(StockError::OutcomeUnknown(Duration::ZERO)))?
        {
            Answered::Passed {
                permit,
                deadline_ms,
            } => {
                // Home's is never earlier than ours, and home remembers it: later segments are asked under that one and under no later
                // one, or they might obey after they have forgotten. Theirs is never later than ours and concerns nobody else.
                self.deadline_ms = self.deadline_ms.max(deadline_ms);
                self.permit = permit;
                Ok(None)
            }
            Answered::Known(answer) => Ok(Some(self.known(answer))),
            Answered::Taken {
                expires_ms,
                recorded,
            } => Ok(Some(Walked::Taken {
                expires_ms,
                recorded,
            })),
            Answered::Rejected => Ok(Some(Walked::Rejected)),
            Answered::SoldOut => Ok(Some(Walked::SoldOut)),
            Answered::LimitReached => Ok(Some(Walked::LimitReached)),
            Answered::NotOpen(gate) => Ok(Some(Walked::NotOpen(gate))),
        }
    }

    fn known(&self, answer: Answer) -> Walked {
        match answer {
            answer if answer.quantity() != self.asked.quantity => Walked::KeyReused {
                quantity: answer.quantity(),
            },
            Answer::Taken { expires_ms, .. } | Answer::Elsewhere { expires_ms, .. } => {
                Walked::Known { expires_ms }
            }
            // Home knew it before the segment did, so home need not be told.
            Answer::Released { .. } => Walked::Released,
            // Passed comes as such; what a segment has passed and home calls sold out has the same end.
            Answer::SoldOut { .. } | Answer::Passed { .. } => Walked::SoldOut,
        }
    }

    /// Tells home, without waiting: a repeat before that walks once more and ends in the same place.
    fn finish_elsewhere(&self, home: &Segment, segment: &Segment, walked: &Walked) {
        if let Walked::Taken { expires_ms, .. } | Walked::Known { expires_ms } = *walked {
            drop(self.finish(
                home,
                WalkEnd::Elsewhere {
                    expires_ms,
                    segment: segment.number(),
                },
            ));
        }
    }

    /// Tells home and waits, so that the buyer's count is back before the buyer hears. If it fails, the order is in `walks`.
    async fn finish_sold_out(&self, home: &Segment) {
        let _ = self.finish(home, WalkEnd::SoldOut).await;
    }

    fn finish(&self, home: &Segment, end: WalkEnd) -> oneshot::Receiver<()> {
        let (done, finished) = oneshot::channel();
        home.finish.push(FinishRequest {
            asked: Arc::clone(self.asked),
            deadline_ms: self.deadline_ms,
            end,
            done,
        });
        finished
    }
}

/// Where a walk ended.
enum Walked {
    KeyReused { quantity: Quantity },
    NotOpen(Gate),
    LimitReached,
    Taken { expires_ms: i64, recorded: bool },
    Known { expires_ms: i64 },
    Released,
    SoldOut,
    Rejected,
}

impl Outcome {
    /// Nothing is left for this order, whoever said so.
    pub fn is_sold_out(&self) -> bool {
        matches!(self, Self::SoldOut | Self::TurnedAway)
    }
}

impl Walked {
    fn into_outcome(self) -> Outcome {
        let time = |ms: i64| {
            (ms != 0)
                .then(|| Timestamp::from_millisecond(ms).ok())
                .flatten()
        };
        let held = |ms, replayed, recorded| Outcome::Held {
            expires_at: time(ms).unwrap_or(Timestamp::MAX),
            replayed,
            recorded,
        };
        match self {
            Self::KeyReused { quantity } => Outcome::KeyReused { quantity },
            Self::NotOpen(gate) => Outcome::NotOpen {
                state: gate.state,
                opens_at: time(gate.opens_ms),
                closes_at: time(gate.closes_ms),
            },
            Self::LimitReached => Outcome::BuyerLimitReached,
            Self::Taken {
                expires_ms,
                recorded,
            } => held(expires_ms, false, recorded),
            Self::Known { expires_ms } => held(expires_ms, true, false),
            Self::Released => Outcome::Released,
            Self::SoldOut => Outcome::SoldOut,
            Self::Rejected => Outcome::Rejected,
        }
    }
}
