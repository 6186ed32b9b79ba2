//! Stockade in process, without HTTP: the stock crate, and if a ledger keeps what it sells, the recorder.

use std::{sync::Arc, time::Duration};

use anyhow::{Context, Result, bail};
use domain::{
    BuyerId, Change, Durability, EntryId, IdempotencyKey, Item, ItemId, ItemState, OrderId,
    Quantity, SegmentKey, Window,
};
use ledger::Ledger;
use recorder::RecorderSettings;
use stock::{Acknowledge, Ask, InspectionEntries, Outcome, Stock, StockSettings};
use tokio::{task::JoinHandle, time::sleep};
use tokio_util::sync::CancellationToken;

use super::crowd::Told;

const WITHIN: Duration = Duration::from_secs(20);
const ENTRIES_AT_ONCE: usize = 200;

/// An item that is open. `limit`: units that a buyer may hold.
pub fn item(name: &str, units: u64, segments: u16, limit: Option<Quantity>) -> Result<Item> {
    Ok(Item {
        id: ItemId::new(name)?,
        title: name.into(),
        stock: units,
        price_cents: 1,
        currency: "EUR".into(),
        limit_per_buyer: limit,
        segments,
        window: Window::default(),
        hold_seconds: 3600,
        durability: Durability::Recorded,
        state: ItemState::Open,
        epoch: 1,
        version: 1,
    })
}

/// What somebody asks for: one unit, under a key of one's own.
pub fn ask(item: &Item, buyer: u64, acknowledge: Acknowledge) -> Result<Ask> {
    let (buyer, key) = (
        BuyerId::new(format!("buyer-{buyer}"))?,
        IdempotencyKey::new("k")?,
    );
    let order = OrderId::derive(&item.id, item.id.tag(), &buyer, &key);
    Ok(Ask {
        order,
        buyer,
        quantity: Quantity::ONE,
        acknowledge,
        within: WITHIN,
    })
}

/// Asks, and hears.
pub async fn buy(stock: &Stock, item: &Item, ask: Ask) -> Result<Told> {
    match stock.item(item).order(ask).await? {
        Outcome::Held { .. } => Ok(Told::Sold),
        Outcome::SoldOut | Outcome::TurnedAway => Ok(Told::Refused),
        other => bail!("nobody should be told {other:?}"),
    }
}

/// What Redis has of an item of which nothing was recorded.
#[derive(Debug, Clone, Copy, Default)]
pub struct Logged {
    pub available: u64,
    /// Units that the outboxes say were taken.
    pub taken: u64,
    pub batches: u64,
}

impl Logged {
    /// What counters, logs and buyers do not agree on.
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
            let entries = stock.read_outbox(&segment, from, ENTRIES_AT_ONCE).await?;
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

/// The stock on a Redis.
pub async fn stock(url: &str, batch_max: usize) -> Result<Arc<Stock>> {
    Ok(Stock::connect(StockSettings {
        batch_max,
        ..StockSettings::new(url)
    })
    .await?)
}

/// A recorder at work.
pub struct Recording {
    pub ledger: Arc<dyn Ledger>,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Recording {
    /// With its own connections, as in a process of its own.
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

    /// Waits until everything that Redis has is in the ledger.
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

    /// When all is recorded: the audit's drift and oversell, and what the ledger has beyond what buyers were told, or less.
    pub async fn audit(&self, stock: &Stock, item: &Item, accepted: u64) -> Result<(i64, u64)> {
        self.has_all(stock, item).await?;
        let report = audit::audit(stock, &*self.ledger, &item.id)
            .await?
            .context("the item is not in the ledger")?;
        let untold = report.held.abs_diff(accepted);
        Ok((i64::try_from(report.drift + untold)?, report.oversold))
    }

    /// Ends it.
    pub async fn stop(self) -> Result<()> {
        self.stop.cancel();
        Ok(self.task.await?)
    }
}
