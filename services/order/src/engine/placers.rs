//! Admins who place orders for buyers, and the journal that names them.
//!
//! The orders of a batch or of a cart are recorded like those of any buyer, which name no admin. So
//! the journal of their item has one entry for each admin who has placed orders of it, from before
//! the first of them. A process that has seen the entry does not write again, so that batches cost
//! the ledger nothing.

use std::sync::Arc;

use domain::ItemId;
use ledger::NewJournalEntry;
use moka::sync::Cache;
use serde_json::json;

use super::{Engine, EngineError};

/// Entries that a process remembers.
const KNOWN_MAX: u64 = 10_000;

/// The entries of journals that are known to exist.
pub(super) struct Placers(Cache<(ItemId, Arc<str>), ()>);

impl Default for Placers {
    fn default() -> Self {
        Self(Cache::new(KNOWN_MAX))
    }
}

impl Engine {
    /// Makes sure that the item's journal names the admin as one who places orders for buyers.
    pub async fn note_placer(&self, item: &ItemId, admin: &Arc<str>) -> Result<(), EngineError> {
        let placer = (item.clone(), Arc::clone(admin));
        if self.placers.0.contains_key(&placer) {
            return Ok(());
        }
        let entry = NewJournalEntry {
            item: item.clone(),
            actor: admin.as_ref().into(),
            action: "place_orders".into(),
            token: None,
            before: json!({}),
            after: json!({}),
        };
        let once = format!("place_orders {admin}");
        let noted = self.with_timeout(async { Ok(self.ledger.note_once(&entry, &once).await?) });
        noted.await?;
        self.placers.0.insert(placer, ());
        Ok(())
    }
}
