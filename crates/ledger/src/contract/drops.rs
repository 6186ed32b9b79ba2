//! Deleting what old sales have left, and what audits have found.

use async_trait::async_trait;
use domain::ItemId;
use jiff::Timestamp;

use crate::{
    AuditResult, ComparedSums, DropEnd, DropRequest, DroppedRows, ExportPage, ExportedRow,
    FailedAudit, GoodAudit, LastAudits, LedgerError, SaleTable, Sums, VerifiedExport,
};

/// What operators and the reconciler need to drop archived items.
#[async_trait]
pub trait Drops: Send + Sync + 'static {
    /// Notes for `actor` that the item is to be dropped, if it was archived before
    /// `archived_before`. A repeat changes nothing.
    async fn request_drop(
        &self,
        id: &ItemId,
        archived_before: Timestamp,
        actor: &str,
    ) -> Result<DropRequest, LedgerError>;

    /// The items that are to be dropped.
    async fn items_to_drop(&self) -> Result<Vec<ItemId>, LedgerError>;

    /// Items that were archived before this time, and that nothing has asked to drop: the oldest
    /// `at_most` of them.
    async fn items_archived_before(
        &self,
        time: Timestamp,
        at_most: usize,
    ) -> Result<Vec<ItemId>, LedgerError>;

    /// Number of the item's orders whose money is to be returned. They forbid a drop.
    async fn orders_owed(&self, id: &ItemId) -> Result<u64, LedgerError>;

    /// The rows of the item that go, by key: a page of those behind `after`.
    async fn export_page(
        &self,
        id: &ItemId,
        table: SaleTable,
        after: Option<u128>,
        at_most: usize,
    ) -> Result<ExportPage, LedgerError>;

    /// Notes in the journal that the rows of the item are in this export.
    async fn note_export(&self, id: &ItemId, export: &VerifiedExport) -> Result<(), LedgerError>;

    /// Deletes those of the rows that are in the ledger as in the export, in one transaction. Rows
    /// that are gone already are passed over. `None`: the item is not to be dropped, or was
    /// dropped.
    async fn drop_rows(
        &self,
        id: &ItemId,
        table: SaleTable,
        rows: &[ExportedRow],
    ) -> Result<Option<DroppedRows>, LedgerError>;

    /// Ends the drop, if nothing is left that has to go.
    async fn finish_drop(&self, id: &ItemId) -> Result<DropEnd, LedgerError>;
}

/// What is remembered of the audits that have compared the orders of an item with its rows.
#[async_trait]
pub trait Audits: Send + Sync + 'static {
    /// The item's last good audit, and the last that has found a fault.
    async fn last_audits(&self, id: &ItemId) -> Result<LastAudits, LedgerError>;

    /// The item's last good audit.
    async fn good_audit(&self, id: &ItemId) -> Result<Option<GoodAudit>, LedgerError> {
        Ok(self.last_audits(id).await?.good)
    }

    /// Number of orders whose money is to be returned, of each item that has some.
    async fn refunds_due_by_item(&self) -> Result<Vec<(ItemId, u64)>, LedgerError>;

    /// Number of payments whose refund has failed, so that money is due, of each item that has
    /// some.
    async fn failed_refunds_by_item(&self) -> Result<Vec<(ItemId, u64)>, LedgerError>;

    /// Stores the item's last good audit.
    async fn note_good_audit(&self, id: &ItemId, audit: GoodAudit) -> Result<(), LedgerError>;

    /// Stores the last audit of the item that has found a fault.
    async fn note_failed_audit(&self, id: &ItemId, audit: FailedAudit) -> Result<(), LedgerError>;

    /// The sums of the item's orders when they were last compared with its rows. `None`: never, or
    /// by another release.
    async fn last_sums(&self, id: &ItemId) -> Result<Option<Sums>, LedgerError>;

    /// Stores the sums of the item's orders that were compared with its rows last.
    async fn note_sums(&self, id: &ItemId, compared: &ComparedSums) -> Result<(), LedgerError>;

    /// Stores what an audit of the item has found.
    async fn note_audit(&self, id: &ItemId, result: AuditResult) -> Result<(), LedgerError> {
        match result {
            AuditResult::Good(good) => self.note_good_audit(id, good).await,
            AuditResult::Failed(failed) => self.note_failed_audit(id, failed).await,
        }
    }
}
