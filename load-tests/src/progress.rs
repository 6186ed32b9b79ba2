//! Prints a line of progress every second.

use std::{sync::Arc, time::Duration};

use tokio::time::{MissedTickBehavior, interval};

use crate::sale::Sale;

/// Prints the progress of the sale until the future is dropped.
pub async fn show(sale: Arc<Sale>) {
    let mut every_second = interval(Duration::from_secs(1));
    every_second.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut before = 0;
    loop {
        every_second.tick().await;
        let history = sale.history();
        let (requested, held, sold_out, returned) = (
            history.counts.requested,
            history.counts.held,
            history.counts.sold_out,
            history.counts.units_returned,
        );
        let errors: u64 = history.errors.values().sum();
        drop(history);
        if requested > before && !sale.budget.is_spent() {
            let seconds = sale.elapsed().as_secs_f64();
            let speed = requested - before;
            eprintln!(
                "{seconds:6.1} s  {requested:>9} requests  {held:>7} held  {sold_out:>7} sold out  {returned:>6} units returned  {errors:>4} errors  {speed:>6}/s"
            );
        }
        before = requested;
    }
}
