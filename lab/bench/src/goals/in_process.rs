//! Stockade in process, without HTTP: the stock crate and, for recorded orders, the recorder.

use std::{sync::Arc, time::Duration};

use anyhow::{Context, Result, bail};
use domain::{
    BuyerId, Change, Durability, EntryId, IdempotencyKey, Item, ItemId, ItemState, OrderId,
    Quantity, SegmentKey, Window,
};
use ledger::Ledger;
use recorder::RecorderSettings;
use stock::{Acknowledge, InspectionEntries, Outcome, Reservation, Stock, StockSettings};
use tokio::{task::JoinHandle, time::sleep};
use tokio_util::sync::CancellationToken;

use super::crowd::{Count, Crowd, Reply};

const ORDER_TIMEOUT: Duration = Duration::from_secs(20);
const ENTRIES_PER_READ: usize = 200;

/// An open item. `limit` is the number of units that a buyer may hold.
pub fn item(name: &str, units: u64, segments: u16, limit: Option<Quantity>) -> Result<Item> {
    Ok(Item {
        id: ItemId::new(name)?,
        title: name.into(),
        stock: units,
        price: 1,
        currency: "EUR".into(),
        limit_per_buyer: limit,
        segments,
        window: Window::default(),
        hold_seconds: 3600,
        max_hold_seconds: 3600,
        max_per_order: None,
        waves: Vec::new(),
        new_price: None,
        durability: Durability::Recorded,
        state: ItemState::Open,
        epoch: 1,
        version: 1,
    })
}

/// The reservation of one unit by this buyer.
pub fn reservation(item: &Item, buyer: u64, acknowledge: Acknowledge) -> Result<Reservation> {
    let (buyer, key) = (
        BuyerId::new(format!("buyer-{buyer}"))?,
        IdempotencyKey::new("k")?,
    );
    let order = OrderId::derive(&item.id, item.id.tag(), &buyer, &key);
    Ok(Reservation {
        order,
        buyer,
        quantity: Quantity::ONE,
        acknowledge,
        within: ORDER_TIMEOUT,
    })
}

/// Places the order.
pub async fn buy(stock: &Stock, item: &Item, reservation: Reservation) -> Result<Reply> {
    match stock.item(item).order(reservation).await? {
        Outcome::Held { .. } => Ok(Reply::Sold),
        Outcome::SoldOut | Outcome::Shed => Ok(Reply::Refused),
        other => bail!("unexpected outcome: {other:?}"),
    }
}

/// Places these orders, as many at once as the crowd has buyers.
pub async fn buy_all(
    crowd: &mut Crowd,
    stock: &Arc<Stock>,
    item: &Item,
    reservations: &Arc<Vec<Reservation>>,
) -> Result<Count> {
    let (stock, item, reservations) = (
        Arc::clone(stock),
        Arc::new(item.clone()),
        Arc::clone(reservations),
    );
    let orders = reservations.len() as u64;
    let place = move |buyer: u64| {
        let (stock, item) = (Arc::clone(&stock), Arc::clone(&item));
        let reservation = reservations.get(buyer as usize).cloned();
        async move {
            let reservation =
                reservation.with_context(|| format!("no reservation has the number {buyer}"))?;
            buy(&stock, &item, reservation).await
        }
    };
    crowd.order(orders, place).await
}

/// State of an item in Redis before any of it is recorded.
#[derive(Debug, Clone, Copy, Default)]
pub struct Logged {
    pub available: u64,
    /// Units taken according to the outboxes.
    pub taken: u64,
    pub batches: u64,
}

impl Logged {
    /// Units on which counters, outboxes and answers disagree.
    pub fn drift(&self, stock: u64, accepted: u64) -> i64 {
        let unexplained =
            stock.abs_diff(self.available + self.taken) + self.taken.abs_diff(accepted);
        i64::try_from(unexplained).unwrap_or(i64::MAX)
    }

    /// Orders in a batch, on average.
    pub fn batch(&self) -> f64 {
        self.taken as f64 / self.batches.max(1) as f64
    }
}

/// Reads counters and outboxes.
pub async fn logged(stock: &Stock, item: &Item) -> Result<Logged> {
    let mut logged = Logged::default();
    for segment in segments(item) {
        logged.available += stock
            .inspect(&segment, InspectionEntries::None)
            .await?
            .available;
        let mut from: Option<EntryId> = None;
        loop {
            let entries = stock.read_outbox(&segment, from, ENTRIES_PER_READ).await?;
            for entry in entries.iter().filter(|entry| Some(entry.id) != from) {
                if let Change::Taken { orders, .. } = &entry.change {
                    logged.taken += orders.len() as u64;
                    logged.batches += 1;
                }
            }
            match entries.last() {
                Some(last) if Some(last.id) != from => from = Some(last.id),
                _ => break,
            }
        }
    }
    Ok(logged)
}

/// The segments of an item.
pub fn segments(item: &Item) -> Vec<SegmentKey> {
    (0..item.segments)
        .map(|segment| SegmentKey {
            item: item.id.clone(),
            segment,
        })
        .collect()
}

/// Connects the stock crate to a Redis.
pub async fn stock(url: &str, batch_max: usize) -> Result<Arc<Stock>> {
    Ok(Stock::connect(StockSettings {
        batch_max,
        ..StockSettings::new(url)
    })
    .await?)
}

/// A running recorder.
pub struct Recording {
    pub ledger: Arc<dyn Ledger>,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Recording {
    /// Starts it with its own connections, as in a separate process.
    pub async fn start(redis: &str, database: &str) -> Result<Self> {
        let (stock, ledger) = (
            stock(redis, 256).await?,
            ledger::connect(database, 4).await?,
        );
        let stop = CancellationToken::new();
        let task = tokio::spawn(recorder::run(
            stock,
            Arc::clone(&ledger),
            RecorderSettings::default(),
            stop.clone(),
        ));
        Ok(Self { ledger, stop, task })
    }

    /// Waits until the ledger has recorded every outbox entry.
    pub async fn has_all(&self, stock: &Stock, item: &Item) -> Result<()> {
        let mut last = Vec::new();
        for segment in segments(item) {
            last.push(Some(
                stock.inspect(&segment, InspectionEntries::None).await?.last,
            ));
        }
        loop {
            let rows = self.ledger.segments(&item.id).await?;
            if rows
                .iter()
                .map(|row| row.checkpoint)
                .eq(last.iter().copied())
            {
                return Ok(());
            }
            sleep(Duration::from_millis(2)).await;
        }
    }

    /// Waits until all is recorded. Returns the audit's drift, plus the difference between recorded
    /// and acknowledged orders, and the oversold units.
    pub async fn audit(&self, stock: &Stock, item: &Item, accepted: u64) -> Result<(i64, u64)> {
        self.has_all(stock, item).await?;
        let report = audit::full_report(stock, &*self.ledger, &item.id)
            .await?
            .context("the item is not in the ledger")?;
        let difference = report.held.abs_diff(accepted);
        Ok((i64::try_from(report.drift + difference)?, report.oversold))
    }

    /// Stops it.
    pub async fn stop(self) -> Result<()> {
        self.stop.cancel();
        Ok(self.task.await?)
    }
}
