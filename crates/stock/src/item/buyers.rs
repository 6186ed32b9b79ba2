//! Reads who holds units of a sold-out item, or has released some.
//!
//! All buyers of a small item are read at once. Those of a large one would take seconds, and a unit
//! that comes back and is bought again changes them: then each buyer is looked up, once, and all
//! are read in the background, at most once in [`READ_INTERVAL`].

use std::{
    collections::HashSet,
    sync::Arc,
    time::{Duration, Instant},
};

use domain::BuyerId;
use futures::future::try_join_all;
use redis::Value;

use super::ItemStock;
use crate::{
    StockError,
    admission::Buyers,
    checked::Checked,
    keys::{Keys, RELEASED_MARK},
    reply::ReplyReader,
    script::{Inspection, InspectionEntries},
    shared::Shared,
    snapshot,
};

/// So many buyers are read at once.
const READ_AT_ONCE_MAX: u64 = 10_000;

/// Buyers that one step of a scan returns, about.
const SCAN_COUNT: usize = 1000;

/// Interval between two reads of all buyers of a large item.
const READ_INTERVAL: Duration = Duration::from_secs(30);

/// Pause between two steps in the background, so that orders come first.
const BACKGROUND_PAUSE: Duration = Duration::from_millis(2);

impl ItemStock {
    /// The buyers at the state that these snapshots show.
    pub(super) async fn buyers_at(
        &self,
        segments: &[Inspection],
    ) -> Result<Arc<Buyers>, StockError> {
        let count: u64 = segments.iter().map(|segment| segment.buyers).sum();
        if count <= READ_AT_ONCE_MAX {
            let all = read_all(&self.shared, self.all_keys(), Duration::ZERO).await?;
            return Ok(Arc::new(Buyers::all(all)));
        }
        Ok(Arc::default())
    }

    /// The same, if every home is still checked afterwards as it was in the snapshots.
    pub(super) async fn buyers_while_checked(
        &self,
        segments: &[Inspection],
        checked: &Arc<Checked>,
    ) -> Result<Option<Arc<Buyers>>, StockError> {
        let buyers = self.buyers_at(segments).await?;
        if buyers.is_complete() && segments.len() > 1 {
            let after = self.survey(Instant::now()).await?;
            return Ok((after.checked.as_ref() == Some(checked)).then_some(buyers));
        }
        Ok(Some(buyers))
    }

    /// Reads all buyers in the background, unless that was done a moment ago. The result counts as
    /// long as the sold-out cache has these buyers: until the segments change.
    ///
    /// A failover during the read may lose some of them, so the homes must be `checked` as before.
    pub(super) fn read_buyers_in_background(&self, buyers: &Arc<Buyers>, checked: Arc<Checked>) {
        if buyers.is_complete() || !self.background_read.is_due(READ_INTERVAL) {
            return;
        }
        let (shared, keys) = (Arc::clone(&self.shared), self.all_keys());
        let buyers = Arc::downgrade(buyers);
        self.shared.runtime.spawn_detached(async move {
            let all = read_all(&shared, keys.clone(), BACKGROUND_PAUSE).await;
            let all = match all {
                Ok(_) if !are_checked(&shared, &keys, &checked).await => return,
                all => all,
            };
            match (all, buyers.upgrade()) {
                (Ok(all), Some(buyers)) => buyers.complete(all),
                (Err(error), _) => tracing::debug!(%error, "could not read an item's buyers"),
                // The segments have changed since.
                (Ok(_), None) => {}
            }
        });
    }

    fn all_keys(&self) -> Vec<Arc<Keys>> {
        let keys = self
            .segments
            .iter()
            .map(|segment| Arc::clone(&segment.keys));
        keys.collect()
    }

    /// Whether the buyer's home is still checked as it was when the cache was filled.
    pub(super) async fn is_still_checked(&self, buyer: &BuyerId, checked: &Checked) -> bool {
        let Some(home) = self.ring(buyer).next() else {
            return false;
        };
        // Not on the connection of the orders, like the question that comes before it.
        let entries = InspectionEntries::History;
        let inspected = snapshot::take(&self.shared.bulk, &home.keys, entries);
        let inspected = self.shared.runtime.host(inspected).await;
        inspected.is_ok_and(|home| checked.has(home.segment.segment, &home))
    }

    /// Whether the buyer holds units or has released some. Also `true` if the home segment does not
    /// know it.
    pub(super) async fn may_be_repeating(&self, buyer: &BuyerId) -> bool {
        let Some(home) = self.ring(buyer).next() else {
            return true;
        };
        let mut cmd = redis::cmd("HMGET");
        cmd.arg(&home.keys.buyers)
            .arg(buyer.as_str())
            .arg(format!("{RELEASED_MARK}{buyer}"))
            // The placeholder: a key that was lost knows no buyer.
            .arg("");
        let reply: Result<[Option<i64>; 3], _> =
            self.shared.runtime.host(self.shared.bulk.query(&cmd)).await;
        !matches!(reply, Ok([None, None, Some(_)]))
    }
}

async fn are_checked(shared: &Shared, segments: &[Arc<Keys>], checked: &Checked) -> bool {
    let inspections = segments.iter().map(async |keys| {
        let entries = InspectionEntries::History;
        let inspection = snapshot::take(&shared.bulk, keys, entries).await?;
        Ok::<_, StockError>(checked.has(keys.segment.segment, &inspection))
    });
    let all = try_join_all(inspections).await;
    all.is_ok_and(|all| all.into_iter().all(|is_checked| is_checked))
}

/// Stable hashes of all buyers who hold units, have a pending spillover, or have released units.
async fn read_all(
    shared: &Shared,
    segments: Vec<Arc<Keys>>,
    pause: Duration,
) -> Result<HashSet<u64>, StockError> {
    let scans = segments
        .iter()
        .map(|keys| read_segment(shared, keys, pause));
    Ok(try_join_all(scans).await?.into_iter().flatten().collect())
}

async fn read_segment(
    shared: &Shared,
    keys: &Keys,
    pause: Duration,
) -> Result<Vec<u64>, StockError> {
    let mut hashes = Vec::new();
    let mut cursor = 0;
    loop {
        let mut cmd = redis::cmd("HSCAN");
        cmd.arg(&keys.buyers)
            .arg(cursor)
            .arg("COUNT")
            .arg(SCAN_COUNT);
        let reply: Value = shared.bulk.query(&cmd).await?;
        let mut reply = ReplyReader::new(reply)?;
        cursor = reply.unsigned()?;
        let mut fields = reply.list()?;
        while !fields.is_empty() {
            let buyer = fields.text()?;
            let _count = fields.value();
            // The placeholder that open_segment left is not a buyer.
            let buyer = BuyerId::new(buyer.trim_start_matches(RELEASED_MARK));
            hashes.extend(buyer.map(|buyer| buyer.stable_hash()));
        }
        if cursor == 0 {
            return Ok(hashes);
        }
        if !pause.is_zero() {
            tokio::time::sleep(pause).await;
        }
    }
}
