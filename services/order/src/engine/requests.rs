//! What came of the requests for each item in this process, for the console.
//!
//! An order costs two additions, and a refusal in process calls nothing for it. The process reports
//! the counts to the ledger from time to time, which adds those of all processes.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use domain::{ItemId, RefusalReason};
use ledger::RequestCounts;
use stock::Outcome;

/// The counters of one item.
#[derive(Debug, Default)]
pub(crate) struct ItemRequests {
    arrived: AtomicU64,
    shed: AtomicU64,
    sold_out: AtomicU64,
    limited: AtomicU64,
    not_open: AtomicU64,
    repeated: AtomicU64,
    held: AtomicU64,
}

impl ItemRequests {
    /// Counts a request before it is decided.
    pub(crate) fn arrive(&self) {
        self.arrived.fetch_add(1, Relaxed);
    }

    /// Counts what came of it. An outcome that is unknown is none of these.
    pub(crate) fn end(&self, outcome: &Outcome) {
        let ended = match outcome {
            Outcome::MaybeLost { refused } => return self.end(refused),
            Outcome::Shed => &self.shed,
            Outcome::SoldOut | Outcome::Rejected => &self.sold_out,
            Outcome::BuyerLimitReached => &self.limited,
            Outcome::NotOpen { .. } => &self.not_open,
            Outcome::Held {
                replayed: false, ..
            } => &self.held,
            Outcome::Held { replayed: true, .. }
            | Outcome::Released
            | Outcome::KeyReused { .. } => &self.repeated,
        };
        ended.fetch_add(1, Relaxed);
    }

    /// Counts an order for more units than one order may have.
    pub(crate) fn limit(&self) {
        self.limited.fetch_add(1, Relaxed);
    }

    /// Counts an order of an archived item.
    pub(crate) fn refuse_archived(&self) {
        self.not_open.fetch_add(1, Relaxed);
    }

    /// Counts a line of a cart that was refused before the cart was made.
    pub(crate) fn refuse(&self, reason: RefusalReason) {
        self.arrive();
        let ended = match reason {
            RefusalReason::SoldOut => &self.shed,
            RefusalReason::BuyerLimitReached => &self.limited,
            RefusalReason::NotOpen | RefusalReason::TimedOut => &self.not_open,
        };
        ended.fetch_add(1, Relaxed);
    }

    fn counts(&self) -> RequestCounts {
        RequestCounts {
            arrived: self.arrived.load(Relaxed),
            shed: self.shed.load(Relaxed),
            sold_out: self.sold_out.load(Relaxed),
            limited: self.limited.load(Relaxed),
            not_open: self.not_open.load(Relaxed),
            repeated: self.repeated.load(Relaxed),
            held: self.held.load(Relaxed),
        }
    }
}

/// The counters of all items that this process has known. They stay: a total must not fall.
#[derive(Debug, Default)]
pub(crate) struct Requests(Mutex<HashMap<ItemId, Arc<ItemRequests>>>);

impl Requests {
    /// The counters of the item.
    pub(crate) fn of(&self, item: &ItemId) -> Arc<ItemRequests> {
        let mut items = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = items.get(item) {
            return Arc::clone(known);
        }
        Arc::clone(items.entry(item.clone()).or_default())
    }

    /// Every item that a request has come for, with its totals since the start of the process.
    pub(crate) fn totals(&self) -> Vec<(ItemId, RequestCounts)> {
        let items = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let totals = items.iter().map(|(id, counts)| (id, counts.counts()));
        totals
            .filter(|(_, counts)| counts.arrived > 0)
            .map(|(id, counts)| (id.clone(), counts))
            .collect()
    }
}
