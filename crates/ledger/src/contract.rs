//! What every ledger can do, whichever database holds it.

use async_trait::async_trait;
use domain::{
    Entry, EntryId, Item, ItemId, ItemTag, Order, OrderId, OrderState, SegmentConfig, SegmentKey,
    TransferId,
};
use jiff::Timestamp;

use crate::{
    Changed, ItemChange, JournalEntry, LedgerError, Mending, NewJournalEntry, PendingReturn,
    StockChange, Transfer, TransferPlan, Transition,
};

/// A ledger. Every method is one transaction; every change is version-checked.
#[async_trait]
pub trait Ledger: Send + Sync + 'static {
    /// Brings the schema up to date. Safe to run at once from several processes.
    async fn migrate(&self) -> Result<(), LedgerError>;

    /// Answers if the database does.
    async fn ping(&self) -> Result<(), LedgerError>;

    /// Writes the item and a row per segment, each with its share of the stock; or finds what is there already.
    async fn create_item(&self, item: &Item) -> Result<Created, LedgerError>;

    /// The item, if there is one.
    async fn item(&self, id: &ItemId) -> Result<Option<Item>, LedgerError>;

    /// The items whose orders carry this tag (nearly always one or none).
    async fn items_tagged(&self, tag: ItemTag) -> Result<Vec<Item>, LedgerError>;

    /// Changes state, limit or window, with the next epoch and version, and writes it to the journal. A change to what the item has
    /// already changes nothing. `expected`: only if the item's version is this one; without it the change is decided on what is there.
    async fn change_item(
        &self,
        id: &ItemId,
        change: &ItemChange,
        expected: Option<u64>,
        actor: &str,
    ) -> Result<Changed, LedgerError>;

    /// Makes units of an item more or fewer, by transfers from or to the outside. A repeat (its transfers are there already) changes nothing.
    /// More: the item's stock rises at once, and the units are on their way. Fewer: the stock falls when they have left their segments
    /// ([`Ledger::finish_take_back`]).
    ///
    /// `wished`: how many units it is for. The parts may come to less, and a repeat may share them out otherwise: it is this, and the direction, that
    /// tell a repeat from another change under the same transfers ([`Changed::OtherChange`]).
    async fn change_stock_by(
        &self,
        id: &ItemId,
        change: &StockChange,
        wished: u64,
        expected: Option<u64>,
        actor: &str,
    ) -> Result<Changed, LedgerError>;

    /// [`Ledger::change_stock_by`], where the parts are all that is wished for.
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

    /// Makes `token` the authority over the item, unless a higher one is: then `LedgerError::Fenced`.
    async fn claim_item(&self, id: &ItemId, token: u64) -> Result<(), LedgerError>;

    /// Writes transfers between segments, planned and not begun. Only for whoever holds the authority over the item.
    async fn plan_transfers(
        &self,
        id: &ItemId,
        token: u64,
        plans: &[TransferPlan],
    ) -> Result<(), LedgerError>;

    /// Transfers that are not done, oldest first, of this item or of all.
    async fn open_transfers(&self, item: Option<&ItemId>) -> Result<Vec<Transfer>, LedgerError>;

    /// Those of these transfers that there are, those that are done included.
    async fn transfers(&self, ids: &[TransferId]) -> Result<Vec<Transfer>, LedgerError>;

    /// Ends a transfer to the outside whose units have left: they are not part of the stock any more.
    async fn finish_take_back(
        &self,
        transfer: &Transfer,
        token: u64,
        actor: &str,
    ) -> Result<(), LedgerError>;

    /// Claims these rows of one item to mend their segments, waiting for whoever has them. Only for whoever holds the authority over the item.
    async fn claim_to_mend(
        &self,
        segments: &[SegmentKey],
        token: u64,
    ) -> Result<Box<dyn Mending>, LedgerError>;

    /// The latest entries of an item's journal, newest first.
    async fn journal(
        &self,
        item: &ItemId,
        at_most: usize,
    ) -> Result<Vec<JournalEntry>, LedgerError>;

    /// Adds to the journal.
    async fn note(&self, entry: &NewJournalEntry) -> Result<(), LedgerError>;

    /// Adds to the journal, unless an entry of this item was added under this name. Whether it was added now.
    async fn note_once(&self, entry: &NewJournalEntry, once: &str) -> Result<bool, LedgerError>;

    /// Every segment's row of an item, in order. Empty if there is no such item.
    async fn segments(&self, item: &ItemId) -> Result<Vec<SegmentRow>, LedgerError>;

    /// Every segment of every item with its checkpoint: what the recorders sweep.
    async fn checkpoints(&self) -> Result<Vec<(SegmentKey, Option<EntryId>)>, LedgerError>;

    /// What every item's segments should be at.
    async fn segment_configs(&self) -> Result<Vec<(ItemId, SegmentConfig)>, LedgerError>;

    /// The order, if it has been recorded.
    async fn order(&self, id: OrderId) -> Result<Option<Order>, LedgerError>;

    /// Held orders whose hold is over at `now`, those that are over longest first, of this item or of all.
    async fn due(
        &self,
        item: Option<&ItemId>,
        now: Timestamp,
        at_most: usize,
    ) -> Result<Vec<Order>, LedgerError>;

    /// Makes the transitions in one transaction, each if the order's version is still that of the order that was given: orders, the counters of their
    /// segments, and a pending return where units go back. In the order of `transitions`: the order as it is then; `None` if somebody else was
    /// faster, and nothing was changed for it. No order may stand twice.
    async fn transition(
        &self,
        transitions: &[Transition],
    ) -> Result<Vec<Option<Order>>, LedgerError>;

    /// Returns that have been pending since before `before`, oldest first, of this item or of all.
    async fn pending_returns(
        &self,
        item: Option<&ItemId>,
        before: Timestamp,
        at_most: usize,
    ) -> Result<Vec<PendingReturn>, LedgerError>;

    /// Those of these that are recorded, with the states of their orders. A retake is recorded if its order has come to that attempt.
    async fn recorded_among(
        &self,
        ids: &[OrderId],
    ) -> Result<Vec<(OrderId, OrderState)>, LedgerError>;

    /// The rows of an item and the sums of its orders, from one snapshot. `None`: no such item.
    async fn totals(&self, item: &ItemId) -> Result<Option<ItemTotals>, LedgerError>;

    /// Units of the item's stock that neither its rows have nor open transfers move: stock - allocated - in transit, at one moment. Must be 0. Cheap:
    /// it reads no orders.
    async fn unaccounted(&self, item: &ItemId) -> Result<i64, LedgerError>;

    /// Claims the first `at_most` of those of `wanted` that no other recorder holds right now, until the claim is committed or dropped. `None`:
    /// there are none, or all are held by others.
    ///
    /// On SQLite, which locks the file and not rows, it waits for another claim to end instead (a few seconds; then it is an error).
    async fn claim(
        &self,
        wanted: &[SegmentKey],
        at_most: usize,
    ) -> Result<Option<Box<dyn Claim>>, LedgerError>;
}

/// Segment rows that this recorder alone works on: an open transaction. Dropping it rolls back, some time soon; [`Claim::release`] at once.
#[async_trait]
pub trait Claim: Send {
    /// The rows as they are, locked.
    fn rows(&self) -> &[SegmentRow];

    /// Applies the replays and commits: inserts the orders (an id that the ledger has already changes nothing), those that a row cannot
    /// cover as `rejected`, and moves each segment's counters and checkpoint by a compare-and-set on its checkpoint and version.
    /// `LedgerError::Superseded` if somebody else recorded any of the segments meanwhile, or has claimed it while orders that are known already made us begin
    /// anew: nothing was changed then.
    async fn record(
        self: Box<Self>,
        replays: Vec<SegmentReplay>,
    ) -> Result<Vec<Recorded>, LedgerError>;

    /// Gives the rows back without a change: when this returns, the next claim gets them.
    async fn release(self: Box<Self>);
}

/// What to apply to a claimed segment.
#[derive(Debug, Clone)]
pub struct SegmentReplay {
    /// The row as it was claimed.
    pub row: SegmentRow,
    /// The entries after its checkpoint, in order; at least one.
    pub entries: Vec<Entry>,
}

/// What recording did to a segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recorded {
    /// The segment.
    pub key: SegmentKey,
    /// The checkpoint before. `None`: this was the first.
    pub after: Option<EntryId>,
    /// Everything up to and including this entry is in the ledger.
    pub checkpoint: EntryId,
    /// Orders inserted as `held`.
    pub held: usize,
    /// Orders that the row could not cover.
    pub rejected: Vec<OrderId>,
    /// Orders that the ledger had already.
    pub repeated: usize,
    /// Orders whose units came back.
    pub returned: usize,
    /// Transfers that left or arrived.
    pub transferred: usize,
}

/// A segment replayed up to its checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentRow {
    /// Which segment.
    pub key: SegmentKey,
    /// Units that belong to it. `available + held + confirmed + returning = allocated`, always.
    pub allocated: u64,
    /// Units that nobody has.
    pub available: u64,
    /// Units of orders that wait for payment.
    pub held: u64,
    /// Units of paid orders.
    pub confirmed: u64,
    /// Units of orders that have ended, on their way back to `available`.
    pub returning: u64,
    /// The last entry applied; `None` until the first.
    pub checkpoint: Option<EntryId>,
    /// The fingerprint of that entry.
    pub anchor: Option<i64>,
    /// Rises with every change.
    pub version: u64,
    /// The highest fencing token that claimed the row.
    pub fence: u64,
}

/// An item's rows and the sums of its orders, from one snapshot.
#[derive(Debug, Clone)]
pub struct ItemTotals {
    /// The item.
    pub item: Item,
    /// Its segments, in order.
    pub segments: Vec<SegmentRow>,
    /// By segment, what its counters say, computed the long way.
    pub by_orders: Vec<ByOrders>,
    /// Units that have left a segment, or are new, and have not arrived anywhere.
    pub in_transit: u64,
    /// Number of orders by state word, for the report.
    pub orders_by_state: Vec<(String, u64)>,
}

/// A segment's counters as the sums of its orders and pending returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ByOrders {
    /// Units of held orders.
    pub held: u64,
    /// Units of confirmed orders.
    pub confirmed: u64,
    /// Units of pending returns.
    pub returning: u64,
}

/// What [`Ledger::create_item`] found or did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Created {
    /// The item is new.
    New(Item),
    /// The same item was there (its state and version may have moved on since).
    Same(Item),
    /// Another item with this id was there.
    Different,
}

/// Opens the ledger that `url` names: `postgres://...` or `sqlite://path` (created if missing). `connections` is the pool's size.
pub async fn connect(
    url: &str,
    connections: u32,
) -> Result<std::sync::Arc<dyn Ledger>, LedgerError> {
    if url.starts_with("postgres://") || url.starts_with("postgresql://") {
        Ok(std::sync::Arc::new(
            crate::postgres::PostgresLedger::connect(url, connections).await?,
        ))
    } else if url.starts_with("sqlite:") {
        Ok(std::sync::Arc::new(
            crate::sqlite::SqliteLedger::connect(url, connections).await?,
        ))
    } else {
        Err(LedgerError::Url(
            url.split(':').next().unwrap_or_default().into(),
        ))
    }
}

/// A second way to the same ledger, for a role with a runtime of its own: a connection to PostgreSQL is looked after by the runtime that opened it.
/// SQLite has one writer at a time, and the queue for it belongs to the first way, which is handed out again.
pub async fn connect_again(
    ledger: &std::sync::Arc<dyn Ledger>,
    url: &str,
    connections: u32,
) -> Result<std::sync::Arc<dyn Ledger>, LedgerError> {
    if url.starts_with("sqlite:") {
        Ok(std::sync::Arc::clone(ledger))
    } else {
        connect(url, connections).await
    }
}
