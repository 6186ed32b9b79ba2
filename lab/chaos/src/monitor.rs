//! Reads the ledger throughout a round: units must not be oversold and carts must not be divided,
//! not even temporarily. It also notes when the units of orders that have ended are back.

use std::{collections::HashSet, sync::Arc, time::Duration};

use tokio::{task::JoinHandle, time::sleep};
use tokio_util::sync::CancellationToken;

use crate::{
    history::SaleItem,
    ledger_view::{ItemTotals, LedgerView},
    returns::ReturnLog,
};

const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// What was so for some time.
#[derive(Debug, Default)]
pub struct Temporary {
    /// Items that were oversold.
    pub oversold: Vec<String>,
    /// Items with lines of divided carts.
    pub divided: Vec<String>,
    /// Items of which what had changed was compared, and good.
    pub compared_changes: HashSet<String>,
}

impl Temporary {
    fn note(&mut self, item: &str, totals: ItemTotals) {
        if totals.sold > totals.stock {
            self.oversold.push(format!(
                "{item}: {} of {} units were sold temporarily",
                totals.sold, totals.stock
            ));
        }
        if totals.compared_changes > 0 {
            self.compared_changes.insert(item.to_owned());
        }
    }
}

/// A task that polls the totals of all items.
pub struct OversellMonitor {
    stop: CancellationToken,
    task: JoinHandle<Temporary>,
}

impl OversellMonitor {
    /// Starts to poll.
    pub fn start(ledger: LedgerView, items: &[Arc<SaleItem>], returns: ReturnLog) -> Self {
        let stop = CancellationToken::new();
        let items = items.iter().map(|item| item.id.clone()).collect();
        Self {
            stop: stop.clone(),
            task: tokio::spawn(poll(ledger, items, returns, stop)),
        }
    }

    /// Stops, and returns the findings.
    pub async fn stop(self) -> Temporary {
        self.stop.cancel();
        self.task.await.unwrap_or_default()
    }
}

/// Skips polls that fail, because the database itself may be down.
async fn poll(
    ledger: LedgerView,
    items: Vec<String>,
    returns: ReturnLog,
    stop: CancellationToken,
) -> Temporary {
    let mut findings = Temporary::default();
    while !stop.is_cancelled() {
        for item in &items {
            if let Ok(lines @ 1..) = ledger.divided_lines(item).await {
                findings.divided.push(format!(
                    "{item}: {lines} lines were in another state than their carts temporarily"
                ));
            }
            if let Ok(totals) = ledger.totals(item).await {
                findings.note(item, totals);
            }
            if let Ok(orders) = ledger.returned(item).await {
                returns.note(item, orders);
            }
        }
        sleep(POLL_INTERVAL).await;
    }
    findings.oversold.dedup();
    findings.divided.dedup();
    findings
}
