//! Looks at the ledger all the time: nothing may be sold twice even for a moment.

use std::{sync::Arc, time::Duration};

use tokio::{task::JoinHandle, time::sleep};
use tokio_util::sync::CancellationToken;

use crate::{book::Offer, view::View};

const EVERY: Duration = Duration::from_millis(100);

/// A look at the items again and again.
pub struct Watch {
    stop: CancellationToken,
    looking: JoinHandle<Vec<String>>,
}

impl Watch {
    /// Begins to look.
    pub fn begin(view: View, offers: &[Arc<Offer>]) -> Self {
        let stop = CancellationToken::new();
        let items = offers.iter().map(|offer| offer.item.clone()).collect();
        Self {
            stop: stop.clone(),
            looking: tokio::spawn(look(view, items, stop)),
        }
    }

    /// Ends; returns what should not have been seen.
    pub async fn end(self) -> Vec<String> {
        self.stop.cancel();
        self.looking.await.unwrap_or_default()
    }
}

/// While SQL is down there is nothing to be seen.
async fn look(view: View, items: Vec<String>, stop: CancellationToken) -> Vec<String> {
    let mut seen = Vec::new();
    while !stop.is_cancelled() {
        for item in &items {
            if let Ok(numbers) = view.numbers(item).await
                && numbers.sold > numbers.stock
            {
                seen.push(format!(
                    "{item}: {} of {} units were sold at a moment",
                    numbers.sold, numbers.stock
                ));
            }
        }
        sleep(EVERY).await;
    }
    seen.dedup();
    seen
}
