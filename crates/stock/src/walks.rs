//! Works off `walks`: finishes the walks that nobody else did, and forgets those that are over.
//!
//! Every walk that left home is in the list of its home until it has been finished and forgotten. Each step may be repeated by
//! anybody at any time, and the list entry goes last, so a crash anywhere leaves work and no harm. The order of forgetting is what
//! keeps one order from taking twice: final at home first, every deadline over (and [`MARGIN`] for clocks), then the other
//! segments, then home.

use std::{sync::Arc, time::Duration};

use domain::OrderId;
use futures::future::{join_all, try_join_all};

use crate::{
    Acknowledge, Answer, Ask, ItemStock, StockError,
    script::{self, DueWalk},
};

/// How long after its last deadline a walk is remembered.
pub const MARGIN: Duration = Duration::from_secs(60);

/// Walks to see to at once. The scripts' columns must stay below Lua's limit of unpacked values.
const AT_ONCE: usize = 512;

/// Pages to see to in one go, so that one item does not keep the others waiting.
const PAGES_MOST: usize = 64;

/// How long a repeated walk may take.
const REPEAT_WITHIN: Duration = Duration::from_secs(5);

/// What was done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Settled {
    /// Abandoned walks that were walked to their end.
    pub finished: usize,
    /// Final walks that were forgotten.
    pub forgotten: usize,
}

impl ItemStock {
    /// Sees to every walk that is due now.
    pub async fn settle_walks(self: &Arc<Self>) -> Result<Settled, StockError> {
        let homes = (0..self.segments.len()).map(|home| self.settle_walks_from(home));
        let mut all = Settled::default();
        for settled in try_join_all(homes).await? {
            all.finished += settled.finished;
            all.forgotten += settled.forgotten;
        }
        Ok(all)
    }

    /// Page by page. A page that cannot be forgotten (a segment does not answer) is skipped, so that it does not keep the walks
    /// behind it from being finished; what was wrong with it is said at the end.
    async fn settle_walks_from(&self, home: usize) -> Result<Settled, StockError> {
        let (mut settled, mut skip, mut trouble) = (Settled::default(), 0, None);
        for _ in 0..PAGES_MOST {
            let page = script::due_walks(
                &self.shared.connection,
                &self.segments[home].keys,
                AT_ONCE,
                skip,
            )
            .await?;
            if page.is_empty() {
                break;
            }
            let (finished, forgotten) = self.settle_page(home, &page).await;
            let forgotten = forgotten.unwrap_or_else(|error| {
                trouble = Some(error);
                0
            });
            settled.finished += finished;
            settled.forgotten += forgotten;
            // Those that were settled are not due any more.
            skip += page.len().saturating_sub(finished + forgotten);
        }
        trouble.map_or(Ok(settled), Err)
    }

    async fn settle_page(
        &self,
        home: usize,
        page: &[DueWalk],
    ) -> (usize, Result<usize, StockError>) {
        let (unfinished, over): (Vec<_>, Vec<_>) = page
            .iter()
            .partition(|walk| matches!(walk.answer, Some(Answer::Passed { .. })));
        let finished = join_all(unfinished.into_iter().map(|walk| self.repeat(walk))).await;
        (
            finished.into_iter().filter(|finished| *finished).count(),
            self.forget(home, &over).await,
        )
    }

    /// Repeating the walk is finishing it. If it fails it is still in the list.
    async fn repeat(&self, walk: &DueWalk) -> bool {
        let ask = Ask {
            order: walk.order.id,
            buyer: walk.order.buyer.clone(),
            quantity: walk.order.quantity,
            acknowledge: Acknowledge::Accepted,
            within: REPEAT_WITHIN,
        };
        self.repeat_order(ask).await.is_ok()
    }

    async fn forget(&self, home: usize, over: &[&DueWalk]) -> Result<usize, StockError> {
        if over.is_empty() {
            return Ok(0);
        }
        let margin_ms = self.shared.settings.forget_margin_ms();
        let passes: Vec<(OrderId, i64)> = over
            .iter()
            .map(|walk| (walk.order.id, until_ms(walk, margin_ms)))
            .collect();
        let others = self
            .segments
            .iter()
            .enumerate()
            .filter(|(segment, _)| *segment != home);
        try_join_all(others.map(|(_, segment)| {
            script::forget_passes(&self.shared.connection, &segment.keys, &passes)
        }))
        .await?;
        let forgotten =
            script::forget_walk(&self.shared.connection, &self.segments[home].keys, over).await?;
        Ok(usize::try_from(forgotten).unwrap_or(usize::MAX))
    }
}

/// The latest deadline of the walk's attempts. A sold-out answer has it; one that was taken elsewhere never walks anew, so there what the
/// due time says is enough even if somebody else's margin was another.
fn until_ms(walk: &DueWalk, margin_ms: i64) -> i64 {
    match walk.answer {
        Some(Answer::SoldOut { until_ms, .. }) => until_ms,
        _ => walk.due_ms - margin_ms,
    }
}
