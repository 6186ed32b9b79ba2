//! A ledger that does not answer: as one whose network is lost, of which nobody is told.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use async_trait::async_trait;
use domain::{
    EntryId, Item, ItemId, ItemTag, Order, OrderId, OrderState, SegmentConfig, SegmentKey,
    TransferId,
};
use jiff::Timestamp;
use ledger::{
    Changed, Claim, Created, ItemChange, ItemTotals, JournalEntry, Ledger, LedgerError, Mending,
    NewJournalEntry, PendingReturn, SegmentRow, StockChange, Transfer, TransferPlan, Transition,
};

/// Does not hear some calls, and is a good ledger otherwise.
pub struct Deaf {
    ledger: Arc<dyn Ledger>,
    to_due: AtomicUsize,
    to_transition: AtomicUsize,
}

impl Deaf {
    /// To the first calls of each, so many.
    pub fn new(ledger: Arc<dyn Ledger>, to_due: usize, to_transition: usize) -> Self {
        Self {
            ledger,
            to_due: AtomicUsize::new(to_due),
            to_transition: AtomicUsize::new(to_transition),
        }
    }

    /// How many calls it will not hear.
    pub fn left(&self) -> [usize; 2] {
        [&self.to_due, &self.to_transition].map(|left| left.load(Ordering::SeqCst))
    }
}

async fn hear(deaf_to: &AtomicUsize) {
    if deaf_to
        .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| {
            left.checked_sub(1)
        })
        .is_ok()
    {
        std::future::pending().await
    }
}

#[async_trait]
impl Ledger for Deaf {
    async fn due(
        &self,
        item: Option<&ItemId>,
        now: Timestamp,
        at_most: usize,
    ) -> Result<Vec<Order>, LedgerError> {
        hear(&self.to_due).await;
        self.ledger.due(item, now, at_most).await
    }

    async fn transition(
        &self,
        transitions: &[Transition],
    ) -> Result<Vec<Option<Order>>, LedgerError> {
        hear(&self.to_transition).await;
        self.ledger.transition(transitions).await
    }

    async fn migrate(&self) -> Result<(), LedgerError> {
        self.ledger.migrate().await
    }

    async fn ping(&self) -> Result<(), LedgerError> {
        self.ledger.ping().await
    }

    async fn create_item(&self, item: &Item) -> Result<Created, LedgerError> {
        self.ledger.create_item(item).await
    }

    async fn item(&self, id: &ItemId) -> Result<Option<Item>, LedgerError> {
        self.ledger.item(id).await
    }

    async fn items_tagged(&self, tag: ItemTag) -> Result<Vec<Item>, LedgerError> {
        self.ledger.items_tagged(tag).await
    }

    async fn change_item(
        &self,
        id: &ItemId,
        change: &ItemChange,
        expected: Option<u64>,
        actor: &str,
    ) -> Result<Changed, LedgerError> {
        self.ledger.change_item(id, change, expected, actor).await
    }

    async fn change_stock_by(
        &self,
        id: &ItemId,
        change: &StockChange,
        wished: u64,
        expected: Option<u64>,
        actor: &str,
    ) -> Result<Changed, LedgerError> {
        self.ledger
            .change_stock_by(id, change, wished, expected, actor)
            .await
    }

    async fn claim_item(&self, id: &ItemId, token: u64) -> Result<(), LedgerError> {
        self.ledger.claim_item(id, token).await
    }

    async fn plan_transfers(
        &self,
        id: &ItemId,
        token: u64,
        plans: &[TransferPlan],
    ) -> Result<(), LedgerError> {
        self.ledger.plan_transfers(id, token, plans).await
    }

    async fn open_transfers(&self, item: Option<&ItemId>) -> Result<Vec<Transfer>, LedgerError> {
        self.ledger.open_transfers(item).await
    }

    async fn transfers(&self, ids: &[TransferId]) -> Result<Vec<Transfer>, LedgerError> {
        self.ledger.transfers(ids).await
    }

    async fn finish_take_back(
        &self,
        transfer: &Transfer,
        token: u64,
        actor: &str,
    ) -> Result<(), LedgerError> {
        self.ledger.finish_take_back(transfer, token, actor).await
    }

    async fn claim_to_mend(
        &self,
        segments: &[SegmentKey],
        token: u64,
    ) -> Result<Box<dyn Mending>, LedgerError> {
        self.ledger.claim_to_mend(segments, token).await
    }

    async fn journal(
        &self,
        item: &ItemId,
        at_most: usize,
    ) -> Result<Vec<JournalEntry>, LedgerError> {
        self.ledger.journal(item, at_most).await
    }

    async fn note(&self, entry: &NewJournalEntry) -> Result<(), LedgerError> {
        self.ledger.note(entry).await
    }

    async fn note_once(&self, entry: &NewJournalEntry, once: &str) -> Result<bool, LedgerError> {
        self.ledger.note_once(entry, once).await
    }

    async fn segments(&self, item: &ItemId) -> Result<Vec<SegmentRow>, LedgerError> {
        self.ledger.segments(item).await
    }

    async fn checkpoints(&self) -> Result<Vec<(SegmentKey, Option<EntryId>)>, LedgerError> {
        self.ledger.checkpoints().await
    }

    async fn segment_configs(&self) -> Result<Vec<(ItemId, SegmentConfig)>, LedgerError> {
        self.ledger.segment_configs().await
    }

    async fn order(&self, id: OrderId) -> Result<Option<Order>, LedgerError> {
        self.ledger.order(id).await
    }

    async fn pending_returns(
        &self,
        item: Option<&ItemId>,
        before: Timestamp,
        at_most: usize,
    ) -> Result<Vec<PendingReturn>, LedgerError> {
        self.ledger.pending_returns(item, before, at_most).await
    }

    async fn recorded_among(
        &self,
        ids: &[OrderId],
    ) -> Result<Vec<(OrderId, OrderState)>, LedgerError> {
        self.ledger.recorded_among(ids).await
    }

    async fn totals(&self, item: &ItemId) -> Result<Option<ItemTotals>, LedgerError> {
        self.ledger.totals(item).await
    }

    async fn unaccounted(&self, item: &ItemId) -> Result<i64, LedgerError> {
        self.ledger.unaccounted(item).await
    }

    async fn claim(
        &self,
        wanted: &[SegmentKey],
        at_most: usize,
    ) -> Result<Option<Box<dyn Claim>>, LedgerError> {
        self.ledger.claim(wanted, at_most).await
    }
}
