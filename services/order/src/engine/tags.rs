//! The items that an order id may belong to, by its tag.
//!
//! Items are never deleted, so a list of them goes out of date only when an item is created whose
//! tag another one has. Then an order of the new item that the ledger does not have yet is found by
//! other processes after [`LIFETIME`] or when it is recorded, whichever comes first.

use std::{sync::Arc, time::Duration};

use domain::{ItemId, ItemTag};
use ledger::{Ledger, LedgerError};
use moka::sync::Cache;

use super::{ITEM_CACHE_MAX, UNKNOWN_LIFETIME};

/// How long the items of a tag are known.
const LIFETIME: Duration = Duration::from_secs(60);

/// The items of each tag that was looked up.
pub(crate) struct Tags {
    items: Cache<ItemTag, Arc<[ItemId]>>,
    /// Tags that no item had a moment ago.
    unknown: Cache<ItemTag, ()>,
}

impl Default for Tags {
    fn default() -> Self {
        let items = Cache::builder()
            .max_capacity(ITEM_CACHE_MAX)
            .time_to_live(LIFETIME);
        let unknown = Cache::builder()
            .max_capacity(ITEM_CACHE_MAX)
            .time_to_live(UNKNOWN_LIFETIME);
        Self {
            items: items.build(),
            unknown: unknown.build(),
        }
    }
}

impl Tags {
    /// The items with this tag.
    pub(crate) async fn items(
        &self,
        ledger: &dyn Ledger,
        tag: ItemTag,
    ) -> Result<Arc<[ItemId]>, LedgerError> {
        if let Some(items) = self.items.get(&tag) {
            return Ok(items);
        }
        if self.unknown.contains_key(&tag) {
            return Ok(Arc::default());
        }
        let items = ledger.items_tagged(tag).await?;
        let items: Arc<[_]> = items.into_iter().map(|item| item.id).collect();
        if items.is_empty() {
            self.unknown.insert(tag, ());
        } else {
            self.items.insert(tag, Arc::clone(&items));
        }
        Ok(items)
    }

    /// Notes an item that may be new.
    pub(crate) fn add(&self, item: &ItemId) {
        let tag = item.tag();
        self.unknown.invalidate(&tag);
        let is_listed = |items: Arc<[ItemId]>| items.contains(item);
        if self.items.get(&tag).is_some_and(|items| !is_listed(items)) {
            self.items.invalidate(&tag);
        }
    }
}
