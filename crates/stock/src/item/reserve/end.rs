//! What follows when every segment has declined an order: "sold out", another round, or waiting.
//!
//! The order is sold out only if the item had too few free units at some instant since it was
//! requested, which two snapshots prove (`survey.rs`), and if home agrees: another attempt may have
//! begun a later round, and taken. If a segment has enough units by now, another round finds them.
//! If units are on their way, or lie in fragments, the order waits.

use std::time::{Duration, Instant};

use domain::SafetyCheck;

use super::{super::survey::Survey, Attempt, ItemStock, Segment, unknown};
use crate::{
    StockError,
    admission::Permit,
    decision::Decision,
    request::{Gate, Reply, SpilloverEnd},
};

/// Pause before the second round that an attempt begins; each further one waits so much longer.
const ROUND_PAUSE: Duration = Duration::from_millis(5);

/// The longest pause before a round, in [`ROUND_PAUSE`]s.
const ROUND_PAUSES_MAX: u32 = 16;

/// First pause before the next snapshot; it doubles with each one.
const WAIT_MIN: Duration = Duration::from_millis(5);

/// The longest pause between two snapshots.
const WAIT_MAX: Duration = Duration::from_millis(80);

/// Snapshots after which an order that no caller waits for is given up: two may agree.
const SNAPSHOTS_WITHOUT_CALLER: u32 = 3;

/// What a snapshot means for an order that every segment has declined.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    SoldOut,
    NotOpen(Gate),
    /// One segment has enough units.
    NextRound,
    /// All segments together have enough units.
    Fragments,
    /// Units may be on their way, or have come and gone between two snapshots.
    Unknown,
}

impl ItemStock {
    /// Ends a spillover that every segment has declined in the attempt's round. `None`: home has
    /// declined a later round, so the other segments are to be asked.
    pub(super) async fn end_round(
        &self,
        attempt: &mut Attempt<'_>,
        home: &Segment,
    ) -> Result<Option<Reply>, StockError> {
        let (mut since, mut pause) = (attempt.begun.into_std(), WAIT_MIN);
        let all_declined = Instant::now();
        for snapshots in 1.. {
            let survey = self.survey(since).await?;
            since = Instant::now();
            let gives_up = !attempt.waits && snapshots >= SNAPSHOTS_WITHOUT_CALLER;
            let round = attempt.round;
            match self.verdict(attempt, &survey) {
                Verdict::SoldOut => {
                    return attempt.end(home, SpilloverEnd::SoldOut { round }).await;
                }
                Verdict::NotOpen(gate) => {
                    let end = attempt.end(home, SpilloverEnd::GivenUp { round }).await?;
                    return Ok(end.map(|reply| told_not_open(reply, gate)));
                }
                _ if gives_up => {
                    return attempt.end(home, SpilloverEnd::GivenUp { round }).await;
                }
                // A snapshot of before the last segment declined shows units that are gone by now.
                Verdict::NextRound if attempt.waits && survey.begun >= all_declined => {
                    let pauses = attempt.rounds_begun.min(ROUND_PAUSES_MAX);
                    tokio::time::sleep(ROUND_PAUSE * pauses).await;
                    metrics::counter!("stockade_spillover_rounds_total").increment(1);
                    attempt.round += 1;
                    attempt.rounds_begun += 1;
                    return attempt.begin_round(home).await;
                }
                Verdict::Fragments if attempt.waits => {
                    // It can take nothing now, and must not keep smaller orders waiting. A permit
                    // without units keeps none, and bounds how many begin another round at a time.
                    if attempt.permit.as_ref().is_some_and(Permit::keeps_units) {
                        attempt.permit = None;
                    }
                    self.request_consolidation(attempt.order.quantity).await;
                }
                Verdict::NextRound | Verdict::Fragments | Verdict::Unknown => {}
            }
            // Two snapshots in a row agree on an item that rests.
            if snapshots > 1 {
                let _ = tokio::time::timeout(pause, self.admission.more_units()).await;
                pause = (pause * 2).min(WAIT_MAX);
            }
        }
        Err(unknown())
    }

    fn verdict(&self, attempt: &Attempt<'_>, survey: &Survey) -> Verdict {
        let units = u64::from(attempt.order.quantity.get());
        if !SafetyCheck::SoldOutProof.is_enabled() {
            return Verdict::SoldOut;
        }
        if let Some(gate) = survey.closed_gate(self.shared.clock.now_ms()) {
            return Verdict::NotOpen(gate);
        }
        if survey.free_at_most.is_some_and(|free| free < units) {
            Verdict::SoldOut
        } else if survey.has_together(units) {
            Verdict::NextRound
        } else if survey.has_in_fragments(units) {
            Verdict::Fragments
        } else {
            Verdict::Unknown
        }
    }
}

impl Attempt<'_> {
    /// Asks home in the next round.
    async fn begin_round(&mut self, home: &Segment) -> Result<Option<Reply>, StockError> {
        match self.reserve(&home.again, true).await? {
            // Another attempt has given the order up meanwhile: the next one reopens it.
            Some(Reply::Decided(Decision::GivenUp { quantity, .. }))
                if quantity == self.order.quantity =>
            {
                Err(unknown())
            }
            reply => Ok(reply),
        }
    }
}

fn told_not_open(reply: Reply, gate: Gate) -> Reply {
    match reply {
        Reply::Decided(Decision::GivenUp { .. }) => Reply::NotOpen(gate),
        reply => reply,
    }
}

impl Attempt<'_> {
    /// Makes the spillover final at home, and returns what home says: another attempt may have
    /// ended it otherwise. `None`: home has declined a later round.
    async fn end(
        &mut self,
        home: &Segment,
        end: SpilloverEnd,
    ) -> Result<Option<Reply>, StockError> {
        let is_sold_out = matches!(end, SpilloverEnd::SoldOut { .. });
        let said = self.finish(home, end).await.map_err(|_| unknown())?;
        match said {
            Some(Decision::Declined { round, .. }) if round > self.round => {
                self.round = round;
                Ok(None)
            }
            // Home was too busy to answer, or has forgotten the order: the next attempt asks again.
            Some(Decision::Declined { .. }) | None => Err(unknown()),
            // Another attempt has given it up. The next one reopens it.
            Some(Decision::GivenUp { .. }) if self.waits && is_sold_out => Err(unknown()),
            Some(decision) => Ok(Some(Reply::Decided(decision))),
        }
    }
}
