//! The list of the items that have keys in Redis, as a worker keeps it.
//!
//! A ledger has tens of thousands of items, and few of them change. So a worker reads what has
//! changed since it last looked: one statement, whose cost does not grow with the items.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use domain::ItemId;

use crate::{ChangedItem, LedgerError, LiveItem, Recording};

/// Interval between two reads of the whole list. A ledger that lost its last changes in a failover,
/// and has had as many since, would leave an item unread.
const WHOLE_INTERVAL: Duration = Duration::from_secs(3600);

/// The items that have keys in Redis.
#[derive(Debug, Default)]
pub struct LiveItems {
    items: HashMap<ItemId, LiveItem>,
    /// The last change that was read.
    version: Option<u64>,
    read_whole: Option<Instant>,
}

/// What has changed between two reads of the list.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ListChanges {
    /// Items that are new, or have other settings.
    pub changed: Vec<ItemId>,
    /// Items that have no keys in Redis any more.
    pub gone: Vec<ItemId>,
}

impl LiveItems {
    /// Reads what has changed.
    pub async fn refresh(
        &mut self,
        ledger: &(impl Recording + ?Sized),
    ) -> Result<ListChanges, LedgerError> {
        let is_fresh = |read: Instant| read.elapsed() < WHOLE_INTERVAL;
        if let Some(version) = self.version
            && self.read_whole.is_some_and(is_fresh)
        {
            let changed = ledger.changed_items(Some(version)).await?;
            // The item of the last change that was read is among them. If not, the ledger has lost
            // that change: it is an older copy.
            if !changed.is_empty() {
                return Ok(self.take_in(changed, version));
            }
        }
        let whole = ledger.changed_items(None).await?;
        self.read_whole = Some(Instant::now());
        Ok(self.replace(whole))
    }

    /// The item, if it has keys in Redis.
    pub fn get(&self, id: &ItemId) -> Option<&LiveItem> {
        self.items.get(id)
    }

    /// Every item.
    pub fn iter(&self) -> impl Iterator<Item = &LiveItem> {
        self.items.values()
    }

    fn take_in(&mut self, rows: Vec<ChangedItem>, version: u64) -> ListChanges {
        let mut changes = ListChanges::default();
        for row in rows.into_iter().filter(|row| row.version > version) {
            self.version = self.version.max(Some(row.version));
            let id = row.item.id.clone();
            if row.is_live {
                self.items.insert(id.clone(), row.item);
                changes.changed.push(id);
            } else {
                self.items.remove(&id);
                changes.gone.push(id);
            }
        }
        changes
    }

    fn replace(&mut self, rows: Vec<ChangedItem>) -> ListChanges {
        self.version = rows.iter().map(|row| row.version).max();
        let mut before = std::mem::take(&mut self.items);
        let mut changes = ListChanges::default();
        for ChangedItem { item, .. } in rows {
            if before.remove(&item.id).as_ref() != Some(&item) {
                changes.changed.push(item.id.clone());
            }
            self.items.insert(item.id.clone(), item);
        }
        changes.gone = before.into_keys().collect();
        changes
    }
}
