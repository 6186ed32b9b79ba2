//! The entry point: every connection of this process to Redis, and the items that it sells.

mod check;
mod consolidate;
mod outbox;
mod rehearsal;
mod repair;
mod restoring;

use std::{
    collections::HashMap,
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use domain::{EntryId, Item, ItemId, OrderId, SegmentConfig, SegmentKey};
use futures::future::try_join_all;
use jiff::Timestamp;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::{
    ItemStock, RedisReport, Resolution, StockError, StockSettings,
    checkpoint::Checkpoints,
    clock::Clock,
    connection::{self, Connections, Nodes, ServerMemory},
    inspection,
    keys::{Keys, OUTBOX_CHANNEL, RECORDED_CHANNEL, RETURNED_CHANNEL},
    message::{self, Message},
    outbox::RecordedEntries,
    runtime::HomeRuntime,
    script::{self, Inspection, InspectionEntries, Opened, StateSet},
    shared::Shared,
    snapshot,
    writable::{WriteCheck, WriteChecks},
};
pub use rehearsal::Rehearsed;
pub use repair::{Halted, Moved, Restoration, TransferMemory};
pub use restoring::Restoring;

/// Messages that a subscription buffers for its reader.
const MESSAGES_MAX: usize = 1024;

/// The items that this process sells.
type Items = RwLock<HashMap<ItemId, Arc<ItemStock>>>;

/// What the subscription to the outboxes tells a recorder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wakeup {
    /// The outbox of this segment has an entry after it was drained.
    Entries(SegmentKey),
    /// The subscription has begun. Messages of before may have been missed: any outbox may have
    /// entries.
    Subscribed,
    /// The subscription has ended. Wake-ups are missed until it has begun again.
    Lost,
}

impl Wakeup {
    fn of(message: &Message) -> Self {
        match message {
            Message::Subscribed => Self::Subscribed,
            Message::Lost => Self::Lost,
            // What cannot be read may mean any segment.
            Message::Payload(text) => text.parse().map_or(Self::Subscribed, Self::Entries),
        }
    }
}

/// The stock of every item, on one Redis or a cluster.
pub struct Stock {
    shared: Arc<Shared>,
    nodes: Nodes,
    masters: u16,
    items: Arc<Items>,
    write_checks: WriteChecks,
    stop: CancellationToken,
}

impl Stock {
    /// Connects, refuses servers that cannot be trusted with stock, and loads the scripts.
    pub async fn connect(settings: StockSettings) -> Result<Arc<Self>, StockError> {
        let stock = Self::open_connections(settings, Arc::default()).await?;
        stock.listen_for_checkpoints();
        stock.listen_for_returns();
        Ok(stock)
    }

    /// The same stock with connections of the calling runtime, for a role that has its own: a
    /// connection is driven by the runtime that opened it. An announcement on the new handle also
    /// notifies the orders that wait on this one. Orders are placed on this one.
    pub async fn reconnect(&self) -> Result<Arc<Self>, StockError> {
        let checkpoints = Arc::clone(&self.shared.checkpoints);
        Self::open_connections(self.shared.settings.clone(), checkpoints).await
    }

    async fn open_connections(
        settings: StockSettings,
        checkpoints: Arc<Checkpoints>,
    ) -> Result<Arc<Self>, StockError> {
        let Connections {
            orders: connection,
            bulk,
            operators,
            replicated,
            nodes,
            masters,
        } = Connections::open(&settings).await?;
        script::load_all(&connection).await?;
        let (seconds, micros): (i64, i64) = redis::cmd("TIME")
            .query_async(&mut connection.clone())
            .await?;
        let shared = Shared {
            settings,
            connection,
            bulk,
            operators,
            replicated,
            clock: Clock::at(seconds * 1000 + micros / 1000),
            checkpoints,
            runtime: HomeRuntime::current(),
        };
        Ok(Arc::new(Self {
            shared: Arc::new(shared),
            nodes,
            masters,
            items: Arc::default(),
            write_checks: WriteChecks::default(),
            stop: CancellationToken::new(),
        }))
    }

    /// Returned units end the sold-out state of an item immediately, in every process.
    fn listen_for_returns(&self) {
        let mut messages = self.subscribe(RETURNED_CHANNEL);
        let items = Arc::clone(&self.items);
        tokio::spawn(async move {
            while let Some(message) = messages.recv().await {
                if let Some(text) = message.text() {
                    take_in_return(&items, &text);
                }
            }
        });
    }

    fn listen_for_checkpoints(&self) {
        let mut messages = self.subscribe(RECORDED_CHANNEL);
        let shared = Arc::clone(&self.shared);
        tokio::spawn(async move {
            while let Some(message) = messages.recv().await {
                let text = message.text();
                if let Some(recorded) = text.and_then(|text| RecordedEntries::decode(&text)) {
                    shared.checkpoints.recorded(recorded);
                }
            }
        });
    }

    fn subscribe(&self, channel: &'static str) -> mpsc::Receiver<Message> {
        message::subscribe(self.nodes.clone(), channel, self.stop.clone())
    }

    /// What the masters say of themselves. It opens connections of its own.
    pub async fn inspect_servers(&self) -> Result<Vec<RedisReport>, StockError> {
        inspection::inspect(&self.shared.settings.redis).await
    }

    /// Polls `work` in the context of the runtime that opened the connections, on the caller's
    /// thread: what it opens belongs to that runtime, whose end it shares.
    pub async fn host<T>(&self, work: impl Future<Output = T>) -> T {
        self.shared.runtime.host(work).await
    }

    /// Whether a message can be lost although no subscription is. The masters of a cluster pass
    /// messages on to each other, and a subscriber hears one of them: it does not see that two
    /// others have lost each other.
    pub fn may_lose_messages(&self) -> bool {
        matches!(self.nodes, Nodes::Cluster(_))
    }

    /// Number of masters that hold stock: 1 without a cluster.
    pub fn masters(&self) -> u16 {
        self.masters
    }

    /// The item's stock. The first call determines its number of segments and its durability.
    pub fn item(&self, item: &Item) -> Arc<ItemStock> {
        if let Some(found) = self.known_item(&item.id) {
            return found;
        }
        let mut items = self.items.write().unwrap_or_else(PoisonError::into_inner);
        let known = items.entry(item.id.clone());
        Arc::clone(known.or_insert_with(|| Arc::new(ItemStock::new(item, &self.shared))))
    }

    /// The item's stock, if [`Stock::item`] was called for it before.
    pub fn known_item(&self, id: &ItemId) -> Option<Arc<ItemStock>> {
        let items = self.items.read().unwrap_or_else(PoisonError::into_inner);
        items.get(id).cloned()
    }

    /// Creates the segments that do not exist yet. Returns how many were new.
    pub async fn open(&self, item: &Item) -> Result<usize, StockError> {
        let keys: Vec<_> = segments(item).map(|segment| Keys::of(&segment)).collect();
        let opened = keys
            .iter()
            .map(|keys| script::open_segment(&self.shared.connection, keys, item));
        let opened = try_join_all(opened).await?;
        let new = opened.into_iter().filter(|opened| *opened == Opened::New);
        Ok(new.count())
    }

    /// Creates one segment if it does not exist yet.
    pub async fn open_segment(&self, item: &Item, segment: u16) -> Result<Opened, StockError> {
        let keys = Keys::of(&SegmentKey {
            item: item.id.clone(),
            segment,
        });
        script::open_segment(&self.shared.connection, &keys, item).await
    }

    /// Sets state, limit and window of every segment to the item's, at the item's epoch.
    pub async fn configure(&self, item: &Item) -> Result<Vec<StateSet>, StockError> {
        let keys: Vec<_> = segments(item).map(|segment| Keys::of(&segment)).collect();
        let config = item.into();
        let set = keys
            .iter()
            .map(|keys| script::set_state(&self.shared.connection, keys, &config));
        let set = try_join_all(set).await;
        if let Some(known) = self.known_item(&item.id) {
            known.reconfigured();
        }
        set
    }

    /// Sets state, limit and window of one segment, if their epoch is newer than the segment's.
    pub async fn configure_segment(
        &self,
        segment: &SegmentKey,
        config: &SegmentConfig,
    ) -> Result<StateSet, StockError> {
        script::set_state(&self.shared.connection, &Keys::of(segment), config).await
    }

    /// Removes every segment of the archived item, for the holder of `token`, and leaves tombstones
    /// that nothing sells from. A repeat changes nothing.
    pub async fn archive(&self, item: &Item, token: u64) -> Result<(), StockError> {
        let keys: Vec<_> = segments(item).map(|segment| Keys::of(&segment)).collect();
        let archived = keys
            .iter()
            .map(|keys| script::archive_segment(&self.shared.connection, keys, token, item.epoch));
        try_join_all(archived).await.map(drop)
    }

    /// The present state of one segment, on the connection that all callers share.
    pub async fn inspect(
        &self,
        segment: &SegmentKey,
        entries: InspectionEntries,
    ) -> Result<Inspection, StockError> {
        snapshot::take(&self.shared.connection, &Keys::of(segment), entries).await
    }

    /// The same on the connections for operators and auditors: it never stands in front of an
    /// order.
    pub async fn snapshot(
        &self,
        segment: &SegmentKey,
        entries: InspectionEntries,
    ) -> Result<Inspection, StockError> {
        snapshot::take(&self.shared.operators, &Keys::of(segment), entries).await
    }

    /// The same with the first entries only: as many as one bounded reply holds. The others up to
    /// [`Inspection::last`] are read behind them.
    pub async fn snapshot_page(
        &self,
        segment: &SegmentKey,
        entries: InspectionEntries,
    ) -> Result<Inspection, StockError> {
        snapshot::take_page(&self.shared.operators, &Keys::of(segment), entries).await
    }

    /// The time of a Redis server, which sets the end of every hold.
    pub async fn time(&self) -> Result<Timestamp, StockError> {
        let (seconds, micros): (i64, i64) = redis::cmd("TIME")
            .query_async(&mut self.shared.connection.clone())
            .await?;
        Timestamp::from_microsecond(seconds * 1_000_000 + micros).map_err(|_| {
            StockError::Unreadable(format!("expected a time, found {seconds}.{micros:06}"))
        })
    }

    /// Memory of every server that holds stock. It is read on the connections for operators and
    /// auditors.
    pub async fn memory(&self) -> Result<Vec<ServerMemory>, StockError> {
        connection::memory(&self.shared.operators, &self.nodes.address()).await
    }

    /// The history of every master, in order: its replication id, which is another one after a
    /// promotion or a restart. It is read on the connections for operators and auditors.
    pub async fn histories(&self) -> Result<Vec<String>, StockError> {
        connection::histories(&self.shared.operators, &self.nodes.address()).await
    }

    /// Succeeds if Redis responds and has every script. Loads those that it lacks.
    pub async fn ready(&self) -> Result<(), StockError> {
        script::load_all(&self.shared.connection).await
    }

    /// Asks every master whether it would take an order, on the connections that orders use. One
    /// that does not answer `within` refuses. It costs one script for each master, and writes
    /// nothing.
    pub async fn check_writable(&self, within: Duration) -> Vec<WriteCheck> {
        let name = self.nodes.address();
        self.write_checks
            .ask(&self.shared.connection, &name, within)
            .await
    }

    /// Segments whose outbox has an entry after it was drained.
    pub fn outbox_wakeups(&self) -> mpsc::Receiver<Wakeup> {
        let mut messages = self.subscribe(OUTBOX_CHANNEL);
        let (sender, receiver) = mpsc::channel(MESSAGES_MAX);
        tokio::spawn(async move {
            while let Some(message) = messages.recv().await {
                if sender.send(Wakeup::of(&message)).await.is_err() {
                    return;
                }
            }
        });
        receiver
    }

    /// Orders that have their units and have waited for the ledger longer than `limit`, with their
    /// outbox entries, by segment.
    pub fn overdue(&self, limit: Duration) -> Vec<(SegmentKey, Vec<(EntryId, OrderId)>)> {
        self.shared.checkpoints.overdue(limit)
    }

    /// Replies to overdue orders by what the ledger has of them.
    pub fn resolve(&self, segment: &SegmentKey, resolutions: &HashMap<OrderId, Resolution>) {
        self.shared.checkpoints.resolve(segment, resolutions);
    }

    /// Waits until every batch in flight has returned, and home has been notified of every finished
    /// spillover. No order may be placed after it.
    pub async fn shutdown(&self) {
        self.shared.runtime.finish().await;
        self.stop.cancel();
    }
}

fn segments(item: &Item) -> impl Iterator<Item = SegmentKey> + use<> {
    let id = item.id.clone();
    (0..item.segments).map(move |segment| SegmentKey {
        item: id.clone(),
        segment,
    })
}

/// `ITEM:SEGMENT AVAILABLE`; any other text means that messages may have been missed.
fn take_in_return(items: &Items, text: &str) {
    let items = items.read().unwrap_or_else(PoisonError::into_inner);
    let returned = text.split_once(' ').and_then(|(segment, available)| {
        Some((segment.parse::<SegmentKey>().ok()?, available.parse().ok()?))
    });
    match returned {
        Some((segment, available)) => {
            if let Some(item) = items.get(&segment.item) {
                item.came_back(segment.segment, available);
            }
        }
        None => items.values().for_each(|item| item.invalidate()),
    }
}

impl Drop for Stock {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}
