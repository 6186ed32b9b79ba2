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
    EventCursor, EventLog, Events, ExpiredCarts, ExportPage, ExportedRow, FailedAttempt,
    FailedAudit, FinalAudit, GoodAudit, ItemChange, ItemRows, ItemScope, ItemTotals, JournalEntry,
    KnownSink, LastAudits, Ledger, LedgerError, ListedItem, Listing, NewAct, NewJournalEntry,
    NewWebhook, NotedRefund, OrderLife, Pace, Page, PaymentReturn, PendingReturn, ProcessReport,
    Processes, Reading, Recorded, Recording, RefundReport, Refunds, Repair, RequestCounts,
    ReturnedLine, ReturnedPayment, SaleTable, SeenProcess, SegmentRow, Sinks, SteppedCart,
    StockChange, StockOperations, Sums, Transfer, TransferPlan, Transition, VerifiedExport,
    Webhook, Webhooks,
};
use testkit::eventually;
use tokio::sync::Semaphore;
use uuid::Uuid;

/// More than any repair reads.
const ALL_PAGES: usize = 1_000_000;

/// Never answers the first few calls of `due` and `expire_orders`, nor any that ends an order of a
/// locked sale, and forwards everything else.
pub struct UnresponsiveLedger {
    ledger: Arc<dyn Ledger>,
    due_calls: AtomicUsize,
    expire_calls: AtomicUsize,
    locked: Mutex<Option<ItemId>>,
    passes: Mutex<Vec<Pass>>,
    rounds: AtomicUsize,
    lists: AtomicUsize,
    looks: Mutex<Vec<ItemId>>,
    polls: Mutex<Vec<Vec<ItemId>>>,
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
    /// Leaves the first `due_calls` of `due` and `expire_calls` of `expire_orders` unanswered.
    pub fn new(ledger: Arc<dyn Ledger>, due_calls: usize, expire_calls: usize) -> Self {
        Self {
            ledger,
            due_calls: AtomicUsize::new(due_calls),
            expire_calls: AtomicUsize::new(expire_calls),
            locked: Mutex::default(),
            passes: Mutex::default(),
            rounds: AtomicUsize::new(0),
            lists: AtomicUsize::new(0),
            looks: Mutex::default(),
            polls: Mutex::default(),
            calls: AtomicUsize::new(0),
            pages: Semaphore::new(ALL_PAGES),
            waits_for_page: AtomicBool::new(false),
            endless_walk: Mutex::default(),
            endless_walks: AtomicUsize::new(0),
        }
    }

    /// Answers every call, but ends no order of this sale, as if something else had locked its rows.
    pub fn with_a_locked_sale(ledger: Arc<dyn Ledger>, item: ItemId) -> Arc<Self> {
        Arc::new(Self {
            locked: Mutex::new(Some(item)),
            ..Self::new(ledger, 0, 0)
        })
    }

    /// The sale is not locked any more.
    pub fn unlock(&self) {
        *self.locked.lock().unwrap() = None;
    }

    /// Never returns if the sale of one of them is locked.
    async fn wait_for<'a>(&self, items: impl IntoIterator<Item = &'a ItemId>) {
        let locked = self.locked.lock().unwrap().clone();
        if items.into_iter().any(|item| Some(item) == locked.as_ref()) {
            std::future::pending().await
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

    /// The items whose segments were looked at since the last call.
    pub fn take_looks(&self) -> Vec<ItemId> {
        std::mem::take(&mut *self.looks.lock().unwrap())
    }

    /// The items that each sweep of a recorder has polled since the last call.
    pub fn take_polls(&self) -> Vec<Vec<ItemId>> {
        std::mem::take(&mut *self.polls.lock().unwrap())
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

    /// Number of calls of `due`, and of `expire_orders`, that it will still leave unanswered.
    pub fn left(&self) -> [usize; 2] {
        [&self.due_calls, &self.expire_calls].map(|left| left.load(Ordering::SeqCst))
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

/// Implements a part of the ledger: these calls are only forwarded, and those below them are not.
macro_rules! forwards {
    (
        $part:ident { $($call:ident($($value:ident: $of:ty),*) -> $answer:ty;)* }
        $($own:tt)*
    ) => {
        #[async_trait]
        impl $part for UnresponsiveLedger {
            $(async fn $call(&self, $($value: $of),*) -> Result<$answer, LedgerError> {
                self.ledger().$call($($value),*).await
            })*

            $($own)*
        }
    };
}

forwards! {
    OrderLife {
        order(id: OrderId) -> Option<Order>;
        look_up_order(id: OrderId) -> Option<Order>;
        pending_returns(of: ItemScope<'_>, before: Timestamp, at_most: usize)
            -> Vec<PendingReturn>;
        transition_by(transitions: &[Transition], actors: &Actors) -> Vec<Option<Order>>;
        extend_by(order: &Order, expires_at: Timestamp, session: Option<&SessionId>,
            actor: Option<&str>)
            -> Option<Order>;
        set_stated(order: Order) -> Option<Order>;
        named_session(target: Uuid) -> Option<SessionId>;
        has_named(target: Uuid, session: &SessionId) -> bool;
        paid_order(payment: &PaymentId) -> Option<OrderId>;
        recorded_among(ids: &[OrderId]) -> Vec<(OrderId, OrderState)>;
    }

    async fn due(
        &self,
        of: ItemScope<'_>,
        now: Timestamp,
        at_most: usize,
    ) -> Result<Vec<Order>, LedgerError> {
        answer(&self.due_calls).await;
        let due = self.ledger().due(of, now, at_most).await?;
        let found = due.len();
        self.passes.lock().unwrap().push(Pass { now, found });
        Ok(due)
    }

    async fn expire_orders(&self, orders: &[Order]) -> Result<Vec<Order>, LedgerError> {
        answer(&self.expire_calls).await;
        self.wait_for(orders.iter().map(|order| &order.item)).await;
        self.ledger().expire_orders(orders).await
    }
}

forwards! {
    Carts {
        create_cart(cart: &Cart) -> CreatedCart;
        cart(id: CartId) -> Option<Cart>;
        look_up_cart(id: CartId) -> Option<Cart>;
        list_carts(ids: &[CartId]) -> Vec<Cart>;
        known_carts(ids: &[CartId]) -> Vec<CartId>;
        cart_of_line(order: OrderId) -> Option<CartId>;
        take_over_cart(id: CartId) -> bool;
        return_cart_line(cart: &Cart, line: OrderId, actor: &Arc<str>) -> Option<ReturnedLine>;
        extend_cart_by(cart: &Cart, hold: Option<Duration>,
            session: Option<&SessionId>, actor: Option<&str>)
            -> Option<Cart>;
        due_carts(except: &[ItemId], now: Timestamp, at_most: usize) -> Vec<Cart>;
        abandoned_carts(except: &[ItemId], now: Timestamp, at_most: usize) -> Vec<Cart>;
        list_buyer_carts(buyer: &BuyerId, after: Option<CartId>, at_most: usize)
            -> Page<Cart, CartId>;
    }

    async fn step_cart(&self, step: &CartStep) -> Result<Option<SteppedCart>, LedgerError> {
        self.wait_for(step.cart.lines.iter().map(|line| &line.item))
            .await;
        self.ledger().step_cart(step).await
    }

    async fn expire_carts(&self, carts: &[Cart]) -> Result<ExpiredCarts, LedgerError> {
        let lines = carts.iter().flat_map(|cart| &cart.lines);
        self.wait_for(lines.map(|line| &line.item)).await;
        self.ledger().expire_carts(carts).await
    }
}

forwards! {
    Recording {
        checkpoints() -> Vec<(SegmentKey, Option<EntryId>)>;
        unrecorded_segments() -> Vec<SegmentKey>;
        items_at_work() -> Vec<ItemId>;
        has_open_work(item: &ItemId) -> bool;
        claim(wanted: &[SegmentKey], at_most: usize) -> Option<Box<dyn Claim>>;
        rehearse(item: &Item, entries: Vec<Entry>) -> Recorded;
    }

    async fn checkpoints_of(
        &self,
        items: &[&ItemId],
    ) -> Result<Vec<(SegmentKey, Option<EntryId>)>, LedgerError> {
        let polled = items.iter().copied().cloned().collect();
        self.polls.lock().unwrap().push(polled);
        self.ledger().checkpoints_of(items).await
    }

    fn has_one_writer(&self) -> bool {
        self.ledger.has_one_writer()
    }

    async fn changed_items(&self, from: Option<u64>) -> Result<Vec<ChangedItem>, LedgerError> {
        self.lists.fetch_add(1, Ordering::SeqCst);
        self.ledger().changed_items(from).await
    }
}

forwards! {
    StockOperations {
        create_item_by(item: &Item, actor: Option<&str>) -> Created;
        change_item(id: &ItemId, change: &ItemChange, expected: Option<u64>, actor: &str)
            -> Changed;
        change_stock_by(id: &ItemId, change: &StockChange, requested: u64,
            expected: Option<u64>, actor: &str)
            -> Changed;
        add_wave(item: &Item, wave: &Wave, actor: &str) -> Changed;
        claim_item(id: &ItemId, token: u64) -> ();
        plan_transfers(id: &ItemId, token: u64, plans: &[TransferPlan]) -> ();
        transfers(ids: &[TransferId]) -> Vec<Transfer>;
        finish_withdrawal(transfer: &Transfer, token: u64, actor: &str) -> ();
        transfers_of(item: &ItemId, after: Option<TransferId>, at_most: usize)
            -> Page<Transfer, TransferId>;
        claim_for_repair(segments: &[SegmentKey], token: u64) -> Box<dyn Repair>;
        note(entry: &NewJournalEntry) -> ();
        note_once(entry: &NewJournalEntry, once: &str) -> bool;
        is_noted(item: &ItemId, once: &str) -> bool;
    }

    async fn open_transfers(&self, item: Option<&ItemId>) -> Result<Vec<Transfer>, LedgerError> {
        if item.is_none() {
            self.rounds.fetch_add(1, Ordering::SeqCst);
        }
        self.ledger().open_transfers(item).await
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
}

forwards! {
    Reading {
        item(id: &ItemId) -> Option<Item>;
        items_tagged(tag: ItemTag) -> Vec<Item>;
        journal(item: &ItemId, at_most: usize) -> Vec<JournalEntry>;
        item_rows(item: &ItemId) -> Option<ItemRows>;
        walk_changes(item: &ItemId, since: &Sums) -> Option<ItemTotals>;
        unaccounted(item: &ItemId) -> i64;
    }

    async fn segments(&self, item: &ItemId) -> Result<Vec<SegmentRow>, LedgerError> {
        self.looks.lock().unwrap().push(item.clone());
        self.ledger().segments(item).await
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
}

forwards! {
    Listing {
        held_units_by_end(item: &ItemId, from: Timestamp, width: Duration, slots: u16) -> Vec<u64>;
        list_items(after: Option<&ItemId>, at_most: usize) -> Page<ListedItem, ItemId>;
        listed_items(ids: &[ItemId]) -> Vec<ListedItem>;
        list_item_orders(item: &ItemId, state: Option<OrderState>,
            after: Option<OrderId>, at_most: usize)
            -> Page<Order, OrderId>;
        list_buyer_orders(buyer: &BuyerId, after: Option<OrderId>, at_most: usize)
            -> Page<Order, OrderId>;
        list_refunds_due(after: Option<OrderId>, at_most: usize) -> Page<Order, OrderId>;
        list_journal(item: &ItemId, before: Option<u64>, at_most: usize) -> Page<JournalEntry, u64>;
        journal_entry(id: u64) -> Option<JournalEntry>;
        list_payments_due(after: Option<u64>, at_most: usize) -> Page<JournalEntry, u64>;
    }
}

forwards! {
    EventLog {
        events(after: EventCursor, at_most: usize) -> Events;
        end_of_events() -> EventCursor;
        remove_events(before: Timestamp, at_most: usize) -> usize;
    }
}

forwards! {
    Webhooks {
        add_webhook_by(webhook: &NewWebhook, at_most: u32, actor: &str) -> bool;
        webhooks() -> Vec<Webhook>;
        remove_webhook(id: Uuid, actor: &str) -> bool;
        enable_webhook(id: Uuid, actor: &str) -> bool;
        lease_webhooks(publisher: Uuid, lease: Duration) -> Vec<Webhook>;
        release_webhooks(publisher: Uuid) -> ();
        advance_webhook(id: Uuid, publisher: Uuid, to: EventCursor) -> bool;
        fail_webhook(id: Uuid, publisher: Uuid, failed: &FailedAttempt) -> bool;
    }
}

forwards! {
    Sinks {
        lease_sink(name: &str, publisher: Uuid, lease: Duration) -> Option<EventCursor>;
        release_sink(name: &str, publisher: Uuid) -> ();
        advance_sink(name: &str, publisher: Uuid, to: EventCursor) -> bool;
        sinks() -> Vec<KnownSink>;
    }
}

forwards! {
    Processes {
        report_process(report: &ProcessReport, first: bool) -> bool;
        end_process(process: Uuid) -> ();
        end_silent_processes(silent: Duration) -> usize;
        processes() -> Vec<SeenProcess>;
        request_counts(items: &[ItemId]) -> Vec<(ItemId, RequestCounts)>;
    }
}

forwards! {
    Acts {
        note_act(act: &NewAct) -> ();
        list_acts(before: Option<u64>, at_most: usize) -> Page<Act, u64>;
    }
}

forwards! {
    Archives {
        request_archive(id: &ItemId, expected: Option<u64>, actor: &str) -> Changed;
        archive(archival: &Archival) -> bool;
        note_keys_removed(id: &ItemId, token: u64) -> ();
        final_audit(id: &ItemId) -> Option<FinalAudit>;
        erase_buyer(buyer: &BuyerId, actor: &str) -> Erased;
    }
}

forwards! {
    Drops {
        request_drop(id: &ItemId, archived_before: Timestamp, actor: &str) -> DropRequest;
        items_to_drop() -> Vec<ItemId>;
        items_archived_before(time: Timestamp, at_most: usize) -> Vec<ItemId>;
        orders_owed(id: &ItemId) -> u64;
        export_page(id: &ItemId, table: SaleTable, after: Option<u128>, at_most: usize)
            -> ExportPage;
        note_export(id: &ItemId, export: &VerifiedExport) -> ();
        drop_rows(id: &ItemId, table: SaleTable, rows: &[ExportedRow]) -> Option<DroppedRows>;
        finish_drop(id: &ItemId) -> DropEnd;
    }
}

forwards! {
    Audits {
        last_audits(id: &ItemId) -> LastAudits;
        refunds_due_by_item() -> Vec<(ItemId, u64)>;
        failed_refunds_by_item() -> Vec<(ItemId, u64)>;
        note_good_audit(id: &ItemId, audit: GoodAudit) -> ();
        note_failed_audit(id: &ItemId, audit: FailedAudit) -> ();
        last_sums(id: &ItemId) -> Option<Sums>;
        note_sums(id: &ItemId, compared: &ComparedSums) -> ();
    }
}

forwards! {
    Refunds {
        note_return(returned: &PaymentReturn) -> ReturnedPayment;
        note_refund(report: &RefundReport) -> NotedRefund;
        return_order(order: &Order, actor: &Arc<str>) -> Option<Order>;
        note_order_done(order: &Order, actor: &Arc<str>) -> Option<Order>;
        is_order_done(order: &Order) -> bool;
        note_refund_done(entry: u64, actor: &str) -> bool;
        is_returned(payment: &PaymentId) -> bool;
    }
}

forwards! {
    Ledger {
        migrate() -> ();
        missing_migrations() -> Vec<i64>;
        inspect() -> ledger::DatabaseReport;
        ping() -> ();
        time() -> Timestamp;
        check_writable() -> ();
    }
}
