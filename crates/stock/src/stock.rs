//! The way in: everything that this process has open towards Redis, and the items that it sells.

use std::{
    collections::HashMap,
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use domain::{Durability, EntryId, Item, ItemId, OrderId, SegmentConfig, SegmentKey};
use futures::future::try_join_all;
use tokio::sync::mpsc;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    Fate, ItemStock, RedisSettings, StockError,
    checkpoint::Checkpoints,
    clock::Clock,
    connection::{Bulk, Connection, Connections, Nodes, Replicated},
    keys::{Keys, OUTBOX_CHANNEL, RECORDED_CHANNEL, RETURNED_CHANNEL},
    message,
    outbox::RecordedEntries,
    script::{self, Asks, Inspection, InspectionEntries, Opened, StateSet},
    server,
};

/// How the stock is asked.
#[derive(Debug, Clone)]
pub struct StockSettings {
    /// Where it is.
    pub redis: RedisSettings,
    /// The most orders in a batch. 512 hold the server for about two thirds of a millisecond; the scripts allow 2000.
    pub batch_max: usize,
    /// How long an item may be called sold out without a look.
    pub hint_lifetime: Duration,
    /// How long after its last deadline a walk is remembered, for clocks that disagree.
    pub forget_margin: Duration,
    /// Replicas that must have an order of a `replicated` item before it is acknowledged.
    pub replicas: u16,
    /// How long they are waited for before the order is asked for again. Not 0: that would be for ever.
    pub replicas_timeout: Duration,
}

impl StockSettings {
    /// The defaults for a Redis at `url`.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            redis: RedisSettings::new(url),
            batch_max: 256,
            hint_lifetime: Duration::from_millis(100),
            forget_margin: crate::walks::MARGIN,
            replicas: 1,
            replicas_timeout: Duration::from_millis(100),
        }
    }

    pub(crate) fn forget_margin_ms(&self) -> i64 {
        i64::try_from(self.forget_margin.as_millis()).unwrap_or(i64::MAX / 2)
    }
}

/// What the items and lanes share.
pub(crate) struct Shared {
    pub settings: StockSettings,
    pub connection: Connection,
    pub bulk: Bulk,
    pub replicated: Replicated,
    pub clock: Clock,
    pub checkpoints: Arc<Checkpoints>,
    pub tasks: TaskTracker,
}

impl Shared {
    /// How the asks of an item of this durability travel.
    pub(crate) fn asks(&self, durability: Durability) -> Asks {
        match durability {
            Durability::Recorded | Durability::Accepted => Asks::Shared(self.connection.clone()),
            Durability::Replicated => Asks::Replicated(self.replicated.clone()),
        }
    }
}

/// The items that this process sells.
type Items = RwLock<HashMap<ItemId, Arc<ItemStock>>>;

/// The stock of every item, on one Redis or a cluster.
pub struct Stock {
    shared: Arc<Shared>,
    nodes: Nodes,
    masters: u16,
    items: Arc<Items>,
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

    /// The same stock for a role with a runtime of its own, since connections are looked after by the runtime that opened them. Who waits here is told
    /// directly of what is announced there. Orders are placed here.
    pub async fn beside(&self) -> Result<Arc<Self>, StockError> {
        Self::open_connections(
            self.shared.settings.clone(),
            Arc::clone(&self.shared.checkpoints),
        )
        .await
    }

    async fn open_connections(
        settings: StockSettings,
        checkpoints: Arc<Checkpoints>,
    ) -> Result<Arc<Self>, StockError> {
        let Connections {
            orders: connection,
            bulk,
            replicated,
            nodes,
        } = Connections::open(&settings).await?;
        let servers = server::check(&connection).await?;
        script::load_all(&connection).await?;
        let (seconds, micros): (i64, i64) = redis::cmd("TIME")
            .query_async(&mut connection.clone())
            .await?;
        let shared = Shared {
            settings,
            connection,
            bulk,
            replicated,
            clock: Clock::at(seconds * 1000 + micros / 1000),
            checkpoints,
            tasks: TaskTracker::new(),
        };
        Ok(Arc::new(Self {
            shared: Arc::new(shared),
            nodes,
            masters: servers.masters,
            items: Arc::default(),
            stop: CancellationToken::new(),
        }))
    }

    /// Units that come back make an item that was sold out worth asking for again, at once and in every process.
    fn listen_for_returns(&self) {
        let mut messages =
            message::subscribe(self.nodes.clone(), RETURNED_CHANNEL, self.stop.clone());
        let items = Arc::clone(&self.items);
        tokio::spawn(async move {
            while let Some(text) = messages.recv().await {
                take_in_return(&items, &text);
            }
        });
    }

    fn listen_for_checkpoints(&self) {
        let mut messages =
            message::subscribe(self.nodes.clone(), RECORDED_CHANNEL, self.stop.clone());
        let shared = Arc::clone(&self.shared);
        tokio::spawn(async move {
            while let Some(text) = messages.recv().await {
                if let Some(recorded) = RecordedEntries::decode(&text) {
                    shared.checkpoints.recorded(recorded);
                }
            }
        });
    }

    /// Number of masters that hold stock: 1 without a cluster.
    pub fn masters(&self) -> u16 {
        self.masters
    }

    /// The item's stock. What belongs to the item's own description is taken from the first call.
    pub fn item(&self, item: &Item) -> Arc<ItemStock> {
        if let Some(found) = self.known_item(&item.id) {
            return found;
        }
        let mut items = self.items.write().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(
            items
                .entry(item.id.clone())
                .or_insert_with(|| Arc::new(ItemStock::new(item, &self.shared))),
        )
    }

    /// The item's stock, if [`Stock::item`] was called for it before.
    pub fn known_item(&self, id: &ItemId) -> Option<Arc<ItemStock>> {
        self.items
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .get(id)
            .cloned()
    }

    /// Creates the segments that are not there yet. Returns how many were new.
    pub async fn open(&self, item: &Item) -> Result<usize, StockError> {
        let keys: Vec<_> = self
            .segments(item)
            .map(|segment| Keys::of(&segment))
            .collect();
        let opened = keys
            .iter()
            .map(|keys| script::open_segment(&self.shared.connection, keys, item));
        Ok(try_join_all(opened)
            .await?
            .into_iter()
            .filter(|opened| *opened == Opened::New)
            .count())
    }

    /// Creates one segment if it is not there yet.
    pub async fn open_segment(&self, item: &Item, segment: u16) -> Result<Opened, StockError> {
        let keys = Keys::of(&SegmentKey {
            item: item.id.clone(),
            segment,
        });
        script::open_segment(&self.shared.connection, &keys, item).await
    }

    /// Sets state, limit and window of every segment to the item's, at the item's epoch.
    pub async fn configure(&self, item: &Item) -> Result<Vec<StateSet>, StockError> {
        let (keys, config): (Vec<_>, _) = (
            self.segments(item)
                .map(|segment| Keys::of(&segment))
                .collect(),
            item.into(),
        );
        try_join_all(
            keys.iter()
                .map(|keys| script::set_state(&self.shared.connection, keys, &config)),
        )
        .await
    }

    /// Sets state, limit and window of one segment, if their epoch is newer than what it has seen.
    pub async fn configure_segment(
        &self,
        segment: &SegmentKey,
        config: &SegmentConfig,
    ) -> Result<StateSet, StockError> {
        script::set_state(&self.shared.connection, &Keys::of(segment), config).await
    }

    fn segments(&self, item: &Item) -> impl Iterator<Item = SegmentKey> + use<> {
        let id = item.id.clone();
        (0..item.segments).map(move |segment| SegmentKey {
            item: id.clone(),
            segment,
        })
    }

    /// One segment as it is now.
    pub async fn inspect(
        &self,
        segment: &SegmentKey,
        entries: InspectionEntries,
    ) -> Result<Inspection, StockError> {
        script::inspect(&self.shared.connection, &Keys::of(segment), entries).await
    }

    /// Answers if Redis does and has every script; loads those that it lacks.
    pub async fn ready(&self) -> Result<(), StockError> {
        script::load_all(&self.shared.connection).await
    }

    /// Segments whose outbox has something after it was drained. `None`: messages may have been missed, look everywhere.
    pub fn outbox_wakeups(&self) -> mpsc::Receiver<Option<SegmentKey>> {
        let mut messages =
            message::subscribe(self.nodes.clone(), OUTBOX_CHANNEL, self.stop.clone());
        let (sender, receiver) = mpsc::channel(1024);
        tokio::spawn(async move {
            while let Some(text) = messages.recv().await {
                if sender.send(text.parse().ok()).await.is_err() {
                    return;
                }
            }
        });
        receiver
    }

    /// Orders that have their units and have waited for the ledger longer than `patience`, with their outbox entries, by segment.
    pub fn overdue(&self, patience: Duration) -> Vec<(SegmentKey, Vec<(EntryId, OrderId)>)> {
        self.shared.checkpoints.overdue(patience)
    }

    /// Takes in, from whoever asked the ledger, what became of overdue orders.
    pub fn resolve(&self, segment: &SegmentKey, fates: &HashMap<OrderId, Fate>) {
        self.shared.checkpoints.resolve(segment, fates);
    }

    /// Waits until every batch that has left has returned and every walk that ended has been told to its home. Nothing may be asked after.
    pub async fn shutdown(&self) {
        self.shared.tasks.close();
        self.shared.tasks.wait().await;
        self.stop.cancel();
    }

    pub(crate) fn margin_ms(&self) -> i64 {
        self.shared.settings.forget_margin_ms()
    }

    pub(crate) fn nodes(&self) -> Nodes {
        self.nodes.clone()
    }

    pub(crate) fn stopping(&self) -> CancellationToken {
        self.stop.clone()
    }

    pub(crate) fn connection(&self) -> &Connection {
        &self.shared.connection
    }

    pub(crate) fn checkpoints(&self) -> &Checkpoints {
        &self.shared.checkpoints
    }

    pub(crate) fn bulk(&self) -> &Bulk {
        &self.shared.bulk
    }
}

/// `ITEM:SEGMENT AVAILABLE`; anything else says that messages may have been missed.
fn take_in_return(items: &Items, text: &str) {
    let items = items.read().unwrap_or_else(PoisonError::into_inner);
    let news = text.split_once(' ').and_then(|(segment, available)| {
        Some((segment.parse::<SegmentKey>().ok()?, available.parse().ok()?))
    });
    match news {
        Some((segment, available)) => {
            if let Some(item) = items.get(&segment.item) {
                item.came_back(segment.segment, available);
            }
        }
        None => items.values().for_each(|item| item.doubt()),
    }
}

impl Drop for Stock {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}
