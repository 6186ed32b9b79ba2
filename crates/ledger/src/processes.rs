//! What the processes of Stockade report of themselves, for operators. Nothing is decided by it.

use domain::ItemId;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{
    LedgerError,
    columns::columns,
    convert::{parsed, signed, timestamp, unreadable, unsigned},
};

/// The process whose counts are those of all processes that have ended.
pub(crate) const ENDED: Uuid = Uuid::nil();

/// What came of the requests for an item. The rest of those that arrived are under way, or their
/// outcome is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RequestCounts {
    /// Orders that were asked for, repeats included.
    pub arrived: u64,
    /// Refused by the sold-out cache, in process.
    pub shed: u64,
    /// Refused by the segments, because no units were left.
    pub sold_out: u64,
    /// Refused because of the limit of a buyer or of an order.
    pub limited: u64,
    /// Refused because the item did not sell.
    pub not_open: u64,
    /// Repeats of an order that was decided before.
    pub repeated: u64,
    /// Orders that took units.
    pub held: u64,
}

impl RequestCounts {
    /// Requests that were refused.
    pub const fn refused(&self) -> u64 {
        self.shed + self.sold_out + self.limited + self.not_open
    }

    /// The counts in the order of their columns.
    pub(crate) fn columns(&self) -> [i64; 7] {
        [
            self.arrived,
            self.shed,
            self.sold_out,
            self.limited,
            self.not_open,
            self.repeated,
            self.held,
        ]
        .map(signed)
    }

    /// The counts that this and `before` differ by.
    #[must_use]
    pub const fn since(&self, before: &Self) -> Self {
        Self {
            arrived: self.arrived.saturating_sub(before.arrived),
            shed: self.shed.saturating_sub(before.shed),
            sold_out: self.sold_out.saturating_sub(before.sold_out),
            limited: self.limited.saturating_sub(before.limited),
            not_open: self.not_open.saturating_sub(before.not_open),
            repeated: self.repeated.saturating_sub(before.repeated),
            held: self.held.saturating_sub(before.held),
        }
    }
}

/// An item's lock, as the process that has it or had it last reports.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportedLock {
    /// The item.
    pub item: String,
    /// The fencing token.
    pub token: u64,
    /// When the process got it, by its clock, in milliseconds since 1970.
    pub since_ms: i64,
    /// When it gave the lock up. `None`: it has the lock.
    pub until_ms: Option<i64>,
}

/// A process's report of itself.
#[derive(Debug, Clone)]
pub struct ProcessReport {
    /// Its random id.
    pub id: Uuid,
    /// Its roles, separated by commas.
    pub roles: String,
    /// Version of the program.
    pub version: String,
    /// Name of the machine.
    pub host: String,
    /// Number of the process there.
    pub pid: u32,
    /// When it started.
    pub started_at: Timestamp,
    /// Its time now.
    pub now: Timestamp,
    /// The item locks that it has, and those that it had last.
    pub locks: Vec<ReportedLock>,
    /// The items whose counts have changed since its last report, with their totals since its
    /// start.
    pub requests: Vec<(ItemId, RequestCounts)>,
}

impl ProcessReport {
    pub(crate) fn locks_text(&self) -> Result<String, LedgerError> {
        serde_json::to_string(&self.locks)
            .map_err(|error| LedgerError::Database(sqlx::Error::Encode(error.into())))
    }
}

/// A process, as it last reported itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenProcess {
    /// Its random id.
    pub id: Uuid,
    /// Its roles, separated by commas.
    pub roles: String,
    /// Version of the program.
    pub version: String,
    /// Name of the machine.
    pub host: String,
    /// Number of the process there.
    pub pid: u32,
    /// When it started.
    pub started_at: Timestamp,
    /// Time since its last report, by the database's clock.
    pub silent: SignedDuration,
    /// Its clock less the database's when it reported. `None`: they are the same clock. A report
    /// that is slow makes it look late.
    pub clock_difference: Option<SignedDuration>,
    /// The item locks that it has, and those that it had last.
    pub locks: Vec<ReportedLock>,
}

columns! {
    /// A row of `processes`.
    pub(crate) struct ProcessColumns {
        id: Uuid,
        roles: String,
        version: String,
        host: String,
        pid: i64,
        started_ms: i64,
        silent_ms: i64,
        difference_ms: Option<i64>,
        locks: String,
    }
}

impl ProcessColumns {
    pub(crate) fn into_process(self) -> Result<SeenProcess, LedgerError> {
        let locks = serde_json::from_str(&self.locks);
        Ok(SeenProcess {
            id: self.id,
            roles: self.roles,
            version: self.version,
            host: self.host,
            pid: unsigned("pid", self.pid)?,
            started_at: timestamp("processes.started_at", self.started_ms)?,
            silent: SignedDuration::from_millis(self.silent_ms),
            clock_difference: self.difference_ms.map(SignedDuration::from_millis),
            locks: locks.map_err(|_| unreadable("processes.locks", self.locks))?,
        })
    }
}

columns! {
    /// A sum of rows of `request_counts`.
    pub(crate) struct CountColumns {
        item: String,
        arrived: i64,
        shed: i64,
        sold_out: i64,
        limited: i64,
        not_open: i64,
        repeated: i64,
        held: i64,
    }
}

impl CountColumns {
    pub(crate) fn into_counts(self) -> Result<(ItemId, RequestCounts), LedgerError> {
        let counts = RequestCounts {
            arrived: unsigned("arrived", self.arrived)?,
            shed: unsigned("shed", self.shed)?,
            sold_out: unsigned("sold_out", self.sold_out)?,
            limited: unsigned("limited", self.limited)?,
            not_open: unsigned("not_open", self.not_open)?,
            repeated: unsigned("repeated", self.repeated)?,
            held: unsigned("held", self.held)?,
        };
        Ok((parsed("request_counts.item", &self.item)?, counts))
    }
}
