//! Reads who holds units of a sold-out item, or has released some.
//!
//! All buyers of a small item are read at once. Those of a large one would take seconds, and a unit
//! that comes back and is bought again changes them: then each buyer is looked up, once, and all are
//! read in the background, at most once in [`READ_INTERVAL`].

use std::{collections::HashSet, sync::Arc, time::Duration};

use domain::BuyerId;
use futures::future::try_join_all;
use redis::Value;

use super::ItemStock;
use crate::{
    StockError,
    admission::Buyers,
    keys::{Keys, RELEASED_MARK},
    reply::ReplyReader,
    script::Inspection,
    shared::Shared,
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

    /// Reads all buyers in the background, unless that was done a moment ago. The result counts as
    /// long as the sold-out cache has these buyers: until the segments change.
    pub(super) fn read_buyers_in_background(&self, buyers: &Arc<Buyers>) {
        if buyers.is_complete() || !self.background_read.is_due(READ_INTERVAL) {
            return;
        }
        let (shared, keys) = (Arc::clone(&self.shared), self.all_keys());
        let buyers = Arc::downgrade(buyers);
        self.shared.runtime.spawn_detached(async move {
            let all = read_all(&shared, keys, BACKGROUND_PAUSE).await;
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
