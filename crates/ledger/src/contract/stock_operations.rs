//! Operations on an item's stock: creation, changes by operators, transfers and repairs.

use async_trait::async_trait;
use domain::{Item, ItemId, Memory, OrderId, SegmentKey, TransferId, Wave};

use crate::{
    Changed, ItemChange, LedgerError, NewJournalEntry, Page, Repair, StockChange, Transfer,
    TransferPlan,
};

/// What operators and the reconciler need to change an item and to move its units.
#[async_trait]
pub trait StockOperations: Send + Sync + 'static {
    /// Writes the item and a row for each segment with its share of the stock, or returns the item
    /// that already has this id. The journal of a new item begins with its creation by `actor`.
    /// `None`: a program creates the item for itself, and the journal begins empty.
    async fn create_item_by(
        &self,
        item: &Item,
        actor: Option<&str>,
    ) -> Result<Created, LedgerError>;

    /// [`StockOperations::create_item_by`] for a program that creates an item for itself.
    async fn create_item(&self, item: &Item) -> Result<Created, LedgerError> {
        self.create_item_by(item, None).await
    }

    /// Changes state, limit or window, with the next epoch and version, and adds a journal entry.
    /// A change that the item already has changes nothing.
    ///
    /// `expected`: the version that the item must have. `None` applies the change to any version.
    async fn change_item(
        &self,
        id: &ItemId,
        change: &ItemChange,
        expected: Option<u64>,
        actor: &str,
    ) -> Result<Changed, LedgerError>;

    /// Adds units to an item or withdraws units from it, by transfers from or to the outside. A
    /// repeat (its transfers exist) changes nothing. An addition raises the item's stock
    /// immediately, and its units are in transit. A withdrawal lowers the stock once the units have
    /// left their segments ([`StockOperations::finish_withdrawal`]).
    ///
    /// `requested`: number of units that the operator asked for. The parts may add up to less, and
    /// a repeat may split them differently. Therefore `requested` and the direction tell a repeat
    /// from another change with the same transfer ids ([`Changed::OtherChange`]).
    ///
    /// An addition above [`Item::MAX_STOCK`], the units of the coming waves included, changes
    /// nothing ([`Changed::AboveMaximum`]). A repeat of one that was made is a repeat all the same.
    async fn change_stock_by(
        &self,
        id: &ItemId,
        change: &StockChange,
        requested: u64,
        expected: Option<u64>,
        actor: &str,
    ) -> Result<Changed, LedgerError>;

    /// [`StockOperations::change_stock_by`] where the parts add up to the requested units.
    async fn change_stock(
        &self,
        id: &ItemId,
        change: &StockChange,
        expected: Option<u64>,
        actor: &str,
    ) -> Result<Changed, LedgerError> {
        self.change_stock_by(id, change, change.units(), expected, actor)
            .await
    }

    /// Adds the units of a wave to the item as it was read, by transfers from the outside, and
    /// notes that the wave was added. A repeat changes nothing, and neither does a wave that the
    /// item does not have any more.
    async fn add_wave(&self, item: &Item, wave: &Wave, actor: &str)
    -> Result<Changed, LedgerError>;

    /// Stores `token` as the fence of the item.
    ///
    /// # Errors
    ///
    /// `LedgerError::Fenced` if a higher token has claimed the item.
    async fn claim_item(&self, id: &ItemId, token: u64) -> Result<(), LedgerError>;

    /// Writes planned transfers between segments. `token` must be the item's highest.
    async fn plan_transfers(
        &self,
        id: &ItemId,
        token: u64,
        plans: &[TransferPlan],
    ) -> Result<(), LedgerError>;

    /// Transfers that are not done, oldest first, of this item or of all.
    async fn open_transfers(&self, item: Option<&ItemId>) -> Result<Vec<Transfer>, LedgerError>;

    /// The transfers with these ids, finished ones included. Unknown ids are skipped.
    async fn transfers(&self, ids: &[TransferId]) -> Result<Vec<Transfer>, LedgerError>;

    /// Finishes a transfer to the outside whose units have left, and lowers the item's stock by
    /// them. `token` must be the item's highest.
    async fn finish_withdrawal(
        &self,
        transfer: &Transfer,
        token: u64,
        actor: &str,
    ) -> Result<(), LedgerError>;

    /// What segments must remember of the item's orders behind `after`, by order id, at most
    /// `at_most` orders. The latest attempt of an order comes first. Earlier attempts whose return
    /// is still pending follow as separate entries: their segment and the home must remember them
    /// as taken and not as released, or their units could never be released again.
    async fn memories(
        &self,
        item: &ItemId,
        after: Option<OrderId>,
        at_most: usize,
    ) -> Result<Page<Memory, OrderId>, LedgerError>;

    /// The item's transfers behind `after`, by id, finished ones included.
    async fn transfers_of(
        &self,
        item: &ItemId,
        after: Option<TransferId>,
        at_most: usize,
    ) -> Result<Page<Transfer, TransferId>, LedgerError>;

    /// Claims these rows of one item for a repair of their segments, and waits for transactions
    /// that have locked them. `token` must be the item's highest.
    async fn claim_for_repair(
        &self,
        segments: &[SegmentKey],
        token: u64,
    ) -> Result<Box<dyn Repair>, LedgerError>;

    /// Adds an entry to the journal.
    async fn note(&self, entry: &NewJournalEntry) -> Result<(), LedgerError>;

    /// Adds an entry to the journal, unless the item has an entry under the name `once`. Returns
    /// whether this call added it.
    async fn note_once(&self, entry: &NewJournalEntry, once: &str) -> Result<bool, LedgerError>;

    /// Whether the item has an entry under the name `once`.
    async fn is_noted(&self, item: &ItemId, once: &str) -> Result<bool, LedgerError>;
}

/// Result of [`StockOperations::create_item`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Created {
    /// The item is new.
    New(Item),
    /// The same item existed (its state and version may have changed since).
    Same(Item),
    /// A different item with this id existed.
    Different,
}
