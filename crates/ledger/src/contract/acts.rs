//! The journal of what belongs to no item.

use async_trait::async_trait;

use crate::{Act, LedgerError, NewAct, Page};

/// The service journal. What changes the ledger is noted by its own transaction.
#[async_trait]
pub trait Acts: Send + Sync + 'static {
    /// Adds an entry for an act that changes nothing in the ledger.
    async fn note_act(&self, act: &NewAct) -> Result<(), LedgerError>;

    /// The entries, newest first: those before the entry `before`, or all.
    async fn list_acts(
        &self,
        before: Option<u64>,
        at_most: usize,
    ) -> Result<Page<Act, u64>, LedgerError>;
}
