//! The processes that run, and what they count.

use std::time::Duration;

use async_trait::async_trait;
use domain::ItemId;
use uuid::Uuid;

use crate::{LedgerError, ProcessReport, RequestCounts, SeenProcess};

/// What processes report of themselves, for operators. Nothing is decided by it.
#[async_trait]
pub trait Processes: Send + Sync + 'static {
    /// Writes the report, `first` the first one of its process. Returns whether the ledger still
    /// knew the process. If it did not, because the process was silent for long, nothing was
    /// written, and its earlier counts are among those of ended processes.
    async fn report_process(
        &self,
        report: &ProcessReport,
        first: bool,
    ) -> Result<bool, LedgerError>;

    /// Removes the process, and keeps its counts among those of ended processes.
    async fn end_process(&self, process: Uuid) -> Result<(), LedgerError>;

    /// Ends the processes that have been silent for so long. Returns how many.
    async fn end_silent_processes(&self, silent: Duration) -> Result<usize, LedgerError>;

    /// The processes, those that have run longest first.
    async fn processes(&self) -> Result<Vec<SeenProcess>, LedgerError>;

    /// The counts of each of these items by all processes, now and before. Items without requests
    /// are left out.
    async fn request_counts(
        &self,
        items: &[ItemId],
    ) -> Result<Vec<(ItemId, RequestCounts)>, LedgerError>;
}
