//! A ledger that leaves some calls unanswered, as after the silent loss of its network. It also
//! counts what the services do, and stops repairs between two pages, so that tests need no clock
//! for that.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use domain::{
    BuyerId, Cart, CartId, Entry, EntryId, Item, ItemId, ItemTag, Memory, Order, OrderId,
    OrderState, PaymentId, SegmentKey, SessionId, TransferId, Wave,
};
use jiff::Timestamp;
use ledger::{
    Act, Actors, Acts, Archival, Archives, Audits, CartStep, Carts, Changed, ChangedItem, Claim,
    ComparedSums, Created, CreatedCart, DropEnd, DropRequest, DroppedRows, Drops, Erased,
    EventCursor, EventLog, Events, ExportPage, ExportedRow, FailedAttempt, FailedAudit, FinalAudit,
    GoodAudit, ItemChange, ItemRows, ItemTotals, JournalEntry, KnownSink, LastAudits, Ledger,
    LedgerError, ListedItem, Listing, NewAct, NewJournalEntry, NewWebhook, NotedRefund, OrderLife,
    Pace, Page, PaymentReturn, PendingReturn, ProcessReport, Processes, Reading, Recorded,
    Recording, RefundReport, Refunds, Repair, RequestCounts, ReturnedLine, ReturnedPayment,
    SaleTable, SeenProcess, SegmentRow, Sinks, SteppedCart, StockChange, StockOperations, Sums,
    Transfer, TransferPlan, Transition, VerifiedExport, Webhook, Webhooks,
};
use testkit::eventually;
use tokio::sync::Semaphore;
use uuid::Uuid;

/// More than any repair reads.
const ALL_PAGES: usize = 1_000_000;

/// Never answers the first few calls of `due` and `transition`, and forwards everything else.
pub struct UnresponsiveLedger {
    ledger: Arc<dyn Ledger>,
    due_calls: AtomicUsize,
    transition_calls: AtomicUsize,
    passes: Mutex<Vec<Pass>>,
    rounds: AtomicUsize,
    lists: AtomicUsize,
    calls: AtomicUsize,
    /// Pages of orders that may still be read.
    pages: Semaphore,
    waits_for_page: AtomicBool,
    /// The item whose walks do not end, and their number.
    endless_walk: Mutex<Option<ItemId>>,
    endless_walks: AtomicUsize,
}

/// A pass that has looked up the holds that were due.
#[derive(Debug, Clone, Copy)]
pub struct Pass {
    /// The time by which they were due.
    pub now: Timestamp,
    /// Their number.
    pub found: usize,
}

impl UnresponsiveLedger {
    /// Leaves the first `due_calls` of `due` and `transition_calls` of `transition` unanswered.
    pub fn new(ledger: Arc<dyn Ledger>, due_calls: usize, transition_calls: usize) -> Self {
        Self {
            ledger,
            due_calls: AtomicUsize::new(due_calls),
            transition_calls: AtomicUsize::new(transition_calls),
            passes: Mutex::default(),
            rounds: AtomicUsize::new(0),
            lists: AtomicUsize::new(0),
            calls: AtomicUsize::new(0),
            pages: Semaphore::new(ALL_PAGES),
            waits_for_page: AtomicBool::new(false),
            endless_walk: Mutex::default(),
            endless_walks: AtomicUsize::new(0),
        }
    }

    /// Answers every call, but no walk over the orders of this item ends.
    pub fn with_an_endless_walk(ledger: Arc<dyn Ledger>, item: ItemId) -> Arc<Self> {
        Arc::new(Self {
            endless_walk: Mutex::new(Some(item)),
            ..Self::new(ledger, 0, 0)
        })
    }

    /// Walks so far that do not end.
    pub fn endless_walks(&self) -> usize {
        self.endless_walks.load(Ordering::SeqCst)
    }

    /// Answers every call, and counts.
    pub fn that_counts(ledger: Arc<dyn Ledger>) -> Arc<Self> {
        Arc::new(Self::new(ledger, 0, 0))
    }

    /// Answers every call, but repairs wait after so many pages of orders.
    pub fn with_pages(ledger: Arc<dyn Ledger>, pages: usize) -> Arc<Self> {
        Arc::new(Self {
            pages: Semaphore::new(pages),
            ..Self::new(ledger, 0, 0)
        })
    }

    /// Waits until a repair has read all pages that it may read.
    pub async fn until_it_waits_for_a_page(&self) {
        eventually("a repair that waits for a page", async || {
            self.waits_for_page.load(Ordering::SeqCst)
        })
        .await;
    }

    /// Repairs do not wait any more.
    pub fn give_all_pages(&self) {
        self.pages.add_permits(ALL_PAGES);
    }

    /// Repairs wait for their next page.
    pub fn give_no_page(&self) {
        self.pages.forget_permits(2 * ALL_PAGES);
    }

    /// The passes so far that have looked up due holds.
    pub fn passes(&self) -> Vec<Pass> {
        self.passes.lock().unwrap().clone()
    }

    /// Rounds of the reconcile loop so far.
    pub fn rounds(&self) -> usize {
        self.rounds.load(Ordering::SeqCst)
    }

    /// The ledger, for one more call.
    fn ledger(&self) -> &dyn Ledger {
        self.calls.fetch_add(1, Ordering::SeqCst);
        &*self.ledger
    }

    /// Calls of the ledger so far.
    pub fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }

    /// Sweeps of a recorder on this ledger so far.
    pub fn sweeps(&self) -> usize {
        self.lists.load(Ordering::SeqCst) - self.rounds()
    }

    /// Waits for so many more rounds. Returns how many there were.
    pub async fn more_rounds(&self, rounds: usize) -> usize {
        let before = self.rounds();
        eventually("more rounds", async || self.rounds() >= before + rounds).await;
        self.rounds() - before
    }

    /// Waits for so many more sweeps.
    pub async fn more_sweeps(&self, sweeps: usize) {
        let before = self.sweeps();
        eventually("more sweeps", async || self.sweeps() >= before + sweeps).await;
    }

    /// Number of calls of `due` and of `transition` that it will still leave unanswered.
    pub fn left(&self) -> [usize; 2] {
        [&self.due_calls, &self.transition_calls].map(|left| left.load(Ordering::SeqCst))
    }
}

/// Never returns while calls are `left` to be unanswered, and counts this one.
async fn answer(left: &AtomicUsize) {
    let unanswered = left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| {
        left.checked_sub(1)
    });
    if unanswered.is_ok() {
        std::future::pending().await
    }
}

#[async_trait]
impl OrderLife for UnresponsiveLedger {
    async fn order(&self, id: OrderId) -> Result<Option<Order>, LedgerError> {
        self.ledger().order(id).await
    }

    async fn look_up_order(&self, id: OrderId) -> Result<Option<Order>, LedgerError> {
        self.ledger().look_up_order(id).await
    }

    async fn due(
        &self,
        item: Option<&ItemId>,
        now: Timestamp,
        at_most: usize,
    ) -> Result<Vec<Order>, LedgerError> {
        answer(&self.due_calls).await;
        let due = self.ledger().due(item, now, at_most).await?;
        let found = due.len();
        self.passes.lock().unwrap().push(Pass { now, found });
        Ok(due)
    }

    async fn transition_by(
        &self,
        transitions: &[Transition],
        actors: &Actors,
    ) -> Result<Vec<Option<Order>>, LedgerError> {
        answer(&self.transition_calls).await;
        self.ledger().transition_by(transitions, actors).await
    }

    async fn pending_returns(
        &self,
        item: Option<&ItemId>,
        before: Timestamp,
        at_most: usize,
    ) -> Result<Vec<PendingReturn>, LedgerError> {
        self.ledger().pending_returns(item, before, at_most).await
    }

    async fn extend_by(
        &self,
        order: &Order,
        expires_at: Timestamp,
        session: Option<&SessionId>,
        actor: Option<&str>,
    ) -> Result<Option<Order>, LedgerError> {
        self.ledger()
            .extend_by(order, expires_at, session, actor)
            .await
    }

    async fn set_stated(&self, order: Order) -> Result<Option<Order>, LedgerError> {
        self.ledger().set_stated(order).await
    }

    async fn named_session(&self, target: Uuid) -> Result<Option<SessionId>, LedgerError> {
        self.ledger().named_session(target).await
    }

    async fn has_named(&self, target: Uuid, session: &SessionId) -> Result<bool, LedgerError> {
        self.ledger().has_named(target, session).await
    }

    async fn paid_order(&self, payment: &PaymentId) -> Result<Option<OrderId>, LedgerError> {
        self.ledger().paid_order(payment).await
    }

    async fn recorded_among(
        &self,
        ids: &[OrderId],
    ) -> Result<Vec<(OrderId, OrderState)>, LedgerError> {
        self.ledger().recorded_among(ids).await
    }
}

#[async_trait]
impl Carts for UnresponsiveLedger {
    async fn create_cart(&self, cart: &Cart) -> Result<CreatedCart, LedgerError> {
        self.ledger().create_cart(cart).await
    }

    async fn cart(&self, id: CartId) -> Result<Option<Cart>, LedgerError> {
        self.ledger().cart(id).await
    }

    async fn look_up_cart(&self, id: CartId) -> Result<Option<Cart>, LedgerError> {
        self.ledger().look_up_cart(id).await
    }

    async fn list_carts(&self, ids: &[CartId]) -> Result<Vec<Cart>, LedgerError> {
        self.ledger().list_carts(ids).await
    }

    async fn known_carts(&self, ids: &[CartId]) -> Result<Vec<CartId>, LedgerError> {
        self.ledger().known_carts(ids).await
    }

    async fn cart_of_line(&self, order: OrderId) -> Result<Option<CartId>, LedgerError> {
        self.ledger().cart_of_line(order).await
    }

    async fn take_over_cart(&self, id: CartId) -> Result<bool, LedgerError> {
        self.ledger().take_over_cart(id).await
    }

    async fn step_cart(&self, step: &CartStep) -> Result<Option<SteppedCart>, LedgerError> {
        self.ledger().step_cart(step).await
    }

    async fn return_cart_line(
        &self,
        cart: &Cart,
        line: OrderId,
        actor: &Arc<str>,
    ) -> Result<Option<ReturnedLine>, LedgerError> {
        self.ledger().return_cart_line(cart, line, actor).await
    }

    async fn extend_cart_by(
        &self,
        cart: &Cart,
        hold: Option<Duration>,
        session: Option<&SessionId>,
        actor: Option<&str>,
    ) -> Result<Option<Cart>, LedgerError> {
        self.ledger()
            .extend_cart_by(cart, hold, session, actor)
            .await
    }

    async fn due_carts(&self, now: Timestamp, at_most: usize) -> Result<Vec<Cart>, LedgerError> {
        self.ledger().due_carts(now, at_most).await
    }

    async fn list_buyer_carts(
        &self,
        buyer: &BuyerId,
        after: Option<CartId>,
        at_most: usize,
    ) -> Result<Page<Cart, CartId>, LedgerError> {
        self.ledger().list_buyer_carts(buyer, after, at_most).await
    }
}

#[async_trait]
impl Recording for UnresponsiveLedger {
    async fn checkpoints(&self) -> Result<Vec<(SegmentKey, Option<EntryId>)>, LedgerError> {
        self.ledger().checkpoints().await
    }

    async fn checkpoints_of(
        &self,
        items: &[&ItemId],
    ) -> Result<Vec<(SegmentKey, Option<EntryId>)>, LedgerError> {
        self.ledger().checkpoints_of(items).await
    }

    async fn unrecorded_segments(&self) -> Result<Vec<SegmentKey>, LedgerError> {
        self.ledger().unrecorded_segments().await
    }

    async fn changed_items(&self, from: Option<u64>) -> Result<Vec<ChangedItem>, LedgerError> {
        self.lists.fetch_add(1, Ordering::SeqCst);
        self.ledger().changed_items(from).await
    }

    async fn items_at_work(&self) -> Result<Vec<ItemId>, LedgerError> {
        self.ledger().items_at_work().await
    }

    async fn has_open_work(&self, item: &ItemId) -> Result<bool, LedgerError> {
        self.ledger().has_open_work(item).await
    }

    async fn claim(
        &self,
        wanted: &[SegmentKey],
        at_most: usize,
    ) -> Result<Option<Box<dyn Claim>>, LedgerError> {
        self.ledger().claim(wanted, at_most).await
    }

    async fn rehearse(&self, item: &Item, entries: Vec<Entry>) -> Result<Recorded, LedgerError> {
        self.ledger().rehearse(item, entries).await
    }
}

#[async_trait]
impl StockOperations for UnresponsiveLedger {
    async fn create_item_by(
        &self,
        item: &Item,
        actor: Option<&str>,
    ) -> Result<Created, LedgerError> {
        self.ledger().create_item_by(item, actor).await
    }

    async fn change_item(
        &self,
        id: &ItemId,
        change: &ItemChange,
        expected: Option<u64>,
        actor: &str,
    ) -> Result<Changed, LedgerError> {
        self.ledger().change_item(id, change, expected, actor).await
    }

    async fn change_stock_by(
        &self,
        id: &ItemId,
        change: &StockChange,
        requested: u64,
        expected: Option<u64>,
        actor: &str,
    ) -> Result<Changed, LedgerError> {
        self.ledger()
            .change_stock_by(id, change, requested, expected, actor)
            .await
    }

    async fn add_wave(
        &self,
        item: &Item,
        wave: &Wave,
        actor: &str,
    ) -> Result<Changed, LedgerError> {
        self.ledger().add_wave(item, wave, actor).await
    }

    async fn claim_item(&self, id: &ItemId, token: u64) -> Result<(), LedgerError> {
        self.ledger().claim_item(id, token).await
    }

    async fn plan_transfers(
        &self,
        id: &ItemId,
        token: u64,
        plans: &[TransferPlan],
    ) -> Result<(), LedgerError> {
        self.ledger().plan_transfers(id, token, plans).await
    }

    async fn open_transfers(&self, item: Option<&ItemId>) -> Result<Vec<Transfer>, LedgerError> {
        if item.is_none() {
            self.rounds.fetch_add(1, Ordering::SeqCst);
        }
        self.ledger().open_transfers(item).await
    }

    async fn transfers(&self, ids: &[TransferId]) -> Result<Vec<Transfer>, LedgerError> {
        self.ledger().transfers(ids).await
    }

    async fn finish_withdrawal(
        &self,
        transfer: &Transfer,
        token: u64,
        actor: &str,
    ) -> Result<(), LedgerError> {
        self.ledger()
            .finish_withdrawal(transfer, token, actor)
            .await
    }

    async fn memories(
        &self,
        item: &ItemId,
        after: Option<OrderId>,
        at_most: usize,
    ) -> Result<Page<Memory, OrderId>, LedgerError> {
        if let Ok(page) = self.pages.try_acquire() {
            page.forget();
        } else {
            self.waits_for_page.store(true, Ordering::SeqCst);
            self.pages.acquire().await.unwrap().forget();
        }
        self.ledger().memories(item, after, at_most).await
    }

    async fn transfers_of(
        &self,
        item: &ItemId,
        after: Option<TransferId>,
        at_most: usize,
    ) -> Result<Page<Transfer, TransferId>, LedgerError> {
        self.ledger().transfers_of(item, after, at_most).await
    }

    async fn claim_for_repair(
        &self,
        segments: &[SegmentKey],
        token: u64,
    ) -> Result<Box<dyn Repair>, LedgerError> {
        self.ledger().claim_for_repair(segments, token).await
    }

    async fn note(&self, entry: &NewJournalEntry) -> Result<(), LedgerError> {
        self.ledger().note(entry).await
    }

    async fn note_once(&self, entry: &NewJournalEntry, once: &str) -> Result<bool, LedgerError> {
        self.ledger().note_once(entry, once).await
    }

    async fn is_noted(&self, item: &ItemId, once: &str) -> Result<bool, LedgerError> {
        self.ledger().is_noted(item, once).await
    }
}

#[async_trait]
impl Reading for UnresponsiveLedger {
    async fn item(&self, id: &ItemId) -> Result<Option<Item>, LedgerError> {
        self.ledger().item(id).await
    }

    async fn items_tagged(&self, tag: ItemTag) -> Result<Vec<Item>, LedgerError> {
        self.ledger().items_tagged(tag).await
    }

    async fn journal(
        &self,
        item: &ItemId,
        at_most: usize,
    ) -> Result<Vec<JournalEntry>, LedgerError> {
        self.ledger().journal(item, at_most).await
    }

    async fn segments(&self, item: &ItemId) -> Result<Vec<SegmentRow>, LedgerError> {
        self.ledger().segments(item).await
    }

    async fn item_rows(&self, item: &ItemId) -> Result<Option<ItemRows>, LedgerError> {
        self.ledger().item_rows(item).await
    }

    async fn walk(
        &self,
        item: &ItemId,
        pace: &dyn Pace,
    ) -> Result<Option<ItemTotals>, LedgerError> {
        let is_endless = self.endless_walk.lock().unwrap().as_ref() == Some(item);
        if is_endless {
            self.endless_walks.fetch_add(1, Ordering::SeqCst);
            std::future::pending::<()>().await;
        }
        self.ledger().walk(item, pace).await
    }

    async fn walk_changes(
        &self,
        item: &ItemId,
        since: &Sums,
    ) -> Result<Option<ItemTotals>, LedgerError> {
        self.ledger().walk_changes(item, since).await
    }

    async fn unaccounted(&self, item: &ItemId) -> Result<i64, LedgerError> {
        self.ledger().unaccounted(item).await
    }
}

#[async_trait]
impl Listing for UnresponsiveLedger {
    async fn held_units_by_end(
        &self,
        item: &ItemId,
        from: Timestamp,
        width: Duration,
        slots: u16,
    ) -> Result<Vec<u64>, LedgerError> {
        self.ledger()
            .held_units_by_end(item, from, width, slots)
            .await
    }

    async fn list_items(
        &self,
        after: Option<&ItemId>,
        at_most: usize,
    ) -> Result<Page<ListedItem, ItemId>, LedgerError> {
        self.ledger().list_items(after, at_most).await
    }

    async fn listed_items(&self, ids: &[ItemId]) -> Result<Vec<ListedItem>, LedgerError> {
        self.ledger().listed_items(ids).await
    }

    async fn list_item_orders(
        &self,
        item: &ItemId,
        state: Option<OrderState>,
        after: Option<OrderId>,
        at_most: usize,
    ) -> Result<Page<Order, OrderId>, LedgerError> {
        self.ledger()
            .list_item_orders(item, state, after, at_most)
            .await
    }

    async fn list_buyer_orders(
        &self,
        buyer: &BuyerId,
        after: Option<OrderId>,
        at_most: usize,
    ) -> Result<Page<Order, OrderId>, LedgerError> {
        self.ledger().list_buyer_orders(buyer, after, at_most).await
    }

    async fn list_refunds_due(
        &self,
        after: Option<OrderId>,
        at_most: usize,
    ) -> Result<Page<Order, OrderId>, LedgerError> {
        self.ledger().list_refunds_due(after, at_most).await
    }

    async fn list_journal(
        &self,
        item: &ItemId,
        before: Option<u64>,
        at_most: usize,
    ) -> Result<Page<JournalEntry, u64>, LedgerError> {
        self.ledger().list_journal(item, before, at_most).await
    }

    async fn journal_entry(&self, id: u64) -> Result<Option<JournalEntry>, LedgerError> {
        self.ledger().journal_entry(id).await
    }

    async fn list_payments_due(
        &self,
        after: Option<u64>,
        at_most: usize,
    ) -> Result<Page<JournalEntry, u64>, LedgerError> {
        self.ledger().list_payments_due(after, at_most).await
    }
}

#[async_trait]
impl EventLog for UnresponsiveLedger {
    async fn events(&self, after: EventCursor, at_most: usize) -> Result<Events, LedgerError> {
        self.ledger().events(after, at_most).await
    }

    async fn end_of_events(&self) -> Result<EventCursor, LedgerError> {
        self.ledger().end_of_events().await
    }

    async fn remove_events(&self, before: Timestamp, at_most: usize) -> Result<usize, LedgerError> {
        self.ledger().remove_events(before, at_most).await
    }
}

#[async_trait]
impl Webhooks for UnresponsiveLedger {
    async fn add_webhook_by(
        &self,
        webhook: &NewWebhook,
        at_most: u32,
        actor: &str,
    ) -> Result<bool, LedgerError> {
        self.ledger().add_webhook_by(webhook, at_most, actor).await
    }

    async fn webhooks(&self) -> Result<Vec<Webhook>, LedgerError> {
        self.ledger().webhooks().await
    }

    async fn remove_webhook(&self, id: Uuid, actor: &str) -> Result<bool, LedgerError> {
        self.ledger().remove_webhook(id, actor).await
    }

    async fn enable_webhook(&self, id: Uuid, actor: &str) -> Result<bool, LedgerError> {
        self.ledger().enable_webhook(id, actor).await
    }

    async fn lease_webhooks(
        &self,
        publisher: Uuid,
        lease: Duration,
    ) -> Result<Vec<Webhook>, LedgerError> {
        self.ledger().lease_webhooks(publisher, lease).await
    }

    async fn release_webhooks(&self, publisher: Uuid) -> Result<(), LedgerError> {
        self.ledger().release_webhooks(publisher).await
    }

    async fn advance_webhook(
        &self,
        id: Uuid,
        publisher: Uuid,
        to: EventCursor,
    ) -> Result<bool, LedgerError> {
        self.ledger().advance_webhook(id, publisher, to).await
    }

    async fn fail_webhook(
        &self,
        id: Uuid,
        publisher: Uuid,
        failed: &FailedAttempt,
    ) -> Result<bool, LedgerError> {
        self.ledger().fail_webhook(id, publisher, failed).await
    }
}

#[async_trait]
impl Sinks for UnresponsiveLedger {
    async fn lease_sink(
        &self,
        name: &str,
        publisher: Uuid,
        lease: Duration,
    ) -> Result<Option<EventCursor>, LedgerError> {
        self.ledger().lease_sink(name, publisher, lease).await
    }

    async fn release_sink(&self, name: &str, publisher: Uuid) -> Result<(), LedgerError> {
        self.ledger().release_sink(name, publisher).await
    }

    async fn advance_sink(
        &self,
        name: &str,
        publisher: Uuid,
        to: EventCursor,
    ) -> Result<bool, LedgerError> {
        self.ledger().advance_sink(name, publisher, to).await
    }

    async fn sinks(&self) -> Result<Vec<KnownSink>, LedgerError> {
        self.ledger().sinks().await
    }
}

#[async_trait]
impl Processes for UnresponsiveLedger {
    async fn report_process(
        &self,
        report: &ProcessReport,
        first: bool,
    ) -> Result<bool, LedgerError> {
        self.ledger().report_process(report, first).await
    }

    async fn end_process(&self, process: Uuid) -> Result<(), LedgerError> {
        self.ledger().end_process(process).await
    }

    async fn end_silent_processes(&self, silent: Duration) -> Result<usize, LedgerError> {
        self.ledger().end_silent_processes(silent).await
    }

    async fn processes(&self) -> Result<Vec<SeenProcess>, LedgerError> {
        self.ledger().processes().await
    }

    async fn request_counts(
        &self,
        items: &[ItemId],
    ) -> Result<Vec<(ItemId, RequestCounts)>, LedgerError> {
        self.ledger().request_counts(items).await
    }
}

#[async_trait]
impl Acts for UnresponsiveLedger {
    async fn note_act(&self, act: &NewAct) -> Result<(), LedgerError> {
        self.ledger().note_act(act).await
    }

    async fn list_acts(
        &self,
        before: Option<u64>,
        at_most: usize,
    ) -> Result<Page<Act, u64>, LedgerError> {
        self.ledger().list_acts(before, at_most).await
    }
}

#[async_trait]
impl Archives for UnresponsiveLedger {
    async fn request_archive(
        &self,
        id: &ItemId,
        expected: Option<u64>,
        actor: &str,
    ) -> Result<Changed, LedgerError> {
        self.ledger().request_archive(id, expected, actor).await
    }

    async fn archive(&self, archival: &Archival) -> Result<bool, LedgerError> {
        self.ledger().archive(archival).await
    }

    async fn note_keys_removed(&self, id: &ItemId, token: u64) -> Result<(), LedgerError> {
        self.ledger().note_keys_removed(id, token).await
    }

    async fn final_audit(&self, id: &ItemId) -> Result<Option<FinalAudit>, LedgerError> {
        self.ledger().final_audit(id).await
    }

    async fn erase_buyer(&self, buyer: &BuyerId, actor: &str) -> Result<Erased, LedgerError> {
        self.ledger().erase_buyer(buyer, actor).await
    }
}

#[async_trait]
impl Drops for UnresponsiveLedger {
    async fn request_drop(
        &self,
        id: &ItemId,
        archived_before: Timestamp,
        actor: &str,
    ) -> Result<DropRequest, LedgerError> {
        self.ledger().request_drop(id, archived_before, actor).await
    }

    async fn items_to_drop(&self) -> Result<Vec<ItemId>, LedgerError> {
        self.ledger().items_to_drop().await
    }

    async fn items_archived_before(
        &self,
        time: Timestamp,
        at_most: usize,
    ) -> Result<Vec<ItemId>, LedgerError> {
        self.ledger().items_archived_before(time, at_most).await
    }

    async fn orders_owed(&self, id: &ItemId) -> Result<u64, LedgerError> {
        self.ledger().orders_owed(id).await
    }

    async fn export_page(
        &self,
        id: &ItemId,
        table: SaleTable,
        after: Option<u128>,
        at_most: usize,
    ) -> Result<ExportPage, LedgerError> {
        self.ledger().export_page(id, table, after, at_most).await
    }

    async fn note_export(&self, id: &ItemId, export: &VerifiedExport) -> Result<(), LedgerError> {
        self.ledger().note_export(id, export).await
    }

    async fn drop_rows(
        &self,
        id: &ItemId,
        table: SaleTable,
        rows: &[ExportedRow],
    ) -> Result<Option<DroppedRows>, LedgerError> {
        self.ledger().drop_rows(id, table, rows).await
    }

    async fn finish_drop(&self, id: &ItemId) -> Result<DropEnd, LedgerError> {
        self.ledger().finish_drop(id).await
    }
}

#[async_trait]
impl Audits for UnresponsiveLedger {
    async fn last_audits(&self, id: &ItemId) -> Result<LastAudits, LedgerError> {
        self.ledger().last_audits(id).await
    }

    async fn refunds_due_by_item(&self) -> Result<Vec<(ItemId, u64)>, LedgerError> {
        self.ledger().refunds_due_by_item().await
    }

    async fn failed_refunds_by_item(&self) -> Result<Vec<(ItemId, u64)>, LedgerError> {
        self.ledger().failed_refunds_by_item().await
    }

    async fn note_good_audit(&self, id: &ItemId, audit: GoodAudit) -> Result<(), LedgerError> {
        self.ledger().note_good_audit(id, audit).await
    }

    async fn note_failed_audit(&self, id: &ItemId, audit: FailedAudit) -> Result<(), LedgerError> {
        self.ledger().note_failed_audit(id, audit).await
    }

    async fn last_sums(&self, id: &ItemId) -> Result<Option<Sums>, LedgerError> {
        self.ledger().last_sums(id).await
    }

    async fn note_sums(&self, id: &ItemId, compared: &ComparedSums) -> Result<(), LedgerError> {
        self.ledger().note_sums(id, compared).await
    }
}

#[async_trait]
impl Refunds for UnresponsiveLedger {
    async fn note_return(&self, returned: &PaymentReturn) -> Result<ReturnedPayment, LedgerError> {
        self.ledger().note_return(returned).await
    }

    async fn note_refund(&self, report: &RefundReport) -> Result<NotedRefund, LedgerError> {
        self.ledger().note_refund(report).await
    }

    async fn return_order(
        &self,
        order: &Order,
        actor: &Arc<str>,
    ) -> Result<Option<Order>, LedgerError> {
        self.ledger().return_order(order, actor).await
    }

    async fn note_order_done(
        &self,
        order: &Order,
        actor: &Arc<str>,
    ) -> Result<Option<Order>, LedgerError> {
        self.ledger().note_order_done(order, actor).await
    }

    async fn is_order_done(&self, order: &Order) -> Result<bool, LedgerError> {
        self.ledger().is_order_done(order).await
    }

    async fn note_refund_done(&self, entry: u64, actor: &str) -> Result<bool, LedgerError> {
        self.ledger().note_refund_done(entry, actor).await
    }

    async fn is_returned(&self, payment: &PaymentId) -> Result<bool, LedgerError> {
        self.ledger().is_returned(payment).await
    }
}

#[async_trait]
impl Ledger for UnresponsiveLedger {
    async fn migrate(&self) -> Result<(), LedgerError> {
        self.ledger().migrate().await
    }

    async fn missing_migrations(&self) -> Result<Vec<i64>, LedgerError> {
        self.ledger().missing_migrations().await
    }

    async fn inspect(&self) -> Result<ledger::DatabaseReport, LedgerError> {
        self.ledger().inspect().await
    }

    async fn ping(&self) -> Result<(), LedgerError> {
        self.ledger().ping().await
    }

    async fn time(&self) -> Result<Timestamp, LedgerError> {
        self.ledger().time().await
    }

    async fn check_writable(&self) -> Result<(), LedgerError> {
        self.ledger().check_writable().await
    }
}
