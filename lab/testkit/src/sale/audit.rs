//! The audit of a sale: Redis against the ledger, and the ledger against itself.

use std::collections::BTreeMap;

use audit::{AuditError, AuditReport, FullAudit, OrdersChecked};
use jiff::Timestamp;
use ledger::{ItemScope, WithoutPause};
use stock::InspectionEntries;

use super::{Sale, is_away};
use crate::{eventually, eventually_some};

impl Sale {
    /// Waits until the ledger has all entries of this segment.
    pub async fn drained(&self, segment: u16) {
        let key = self.segment(segment);
        eventually(&format!("recording all of {key}"), async || {
            let Ok(inspection) = self.stock.inspect(&key, InspectionEntries::None).await else {
                return false;
            };
            Some(inspection.last) == self.row(segment).await.checkpoint
        })
        .await;
    }

    /// Waits until the ledger has all entries of all segments.
    pub async fn all_drained(&self) {
        for segment in 0..self.item.segments {
            self.drained(segment).await;
        }
    }

    /// Asserts the conservation invariant: within each row of the ledger, and between the ledger
    /// and Redis. Skips the [diverged](Sale::diverged) segments in Redis.
    pub async fn assert_recorded(&self) {
        let totals = self.ledger.totals(&self.item.id).await.unwrap().unwrap();
        for (row, by_orders) in totals.segments.iter().zip(&totals.by_orders) {
            assert_eq!(
                row.available + row.held + row.confirmed + row.returning,
                row.allocated,
                "{}",
                row.key
            );
            assert_eq!(
                row.held, by_orders.held,
                "{}: units of held orders",
                row.key
            );
            if self.diverged.lock().unwrap().contains(&row.key.segment) {
                continue;
            }
            let from = row
                .checkpoint
                .map_or(InspectionEntries::All, InspectionEntries::From);
            let redis = self.stock.inspect(&row.key, from).await.unwrap();
            let behind = redis
                .entries
                .iter()
                .filter(|entry| Some(entry.id) > row.checkpoint);
            let effects: i64 = behind.filter_map(|entry| entry.change.effect()).sum();
            assert_eq!(
                redis.available,
                row.available.checked_add_signed(effects).unwrap(),
                "{}: drift",
                row.key
            );
        }
        assert_eq!(
            totals.segments.iter().map(|row| row.allocated).sum::<u64>(),
            self.item.stock
        );
    }

    /// The report of a full audit. Waits for a server that fails over.
    pub async fn report(&self) -> AuditReport {
        self.full_audit().await.report
    }

    /// The report of a full audit, which the ledger remembers.
    pub async fn noted_report(&self) -> AuditReport {
        let FullAudit { report, result, .. } = self.full_audit().await;
        if let Some(result) = result {
            let noted = self.ledger.note_audit(&self.item.id, result);
            noted.await.unwrap();
        }
        report
    }

    async fn full_audit(&self) -> FullAudit {
        eventually_some("an audit of the item", async || {
            match self.try_full_audit().await {
                Err(AuditError::Stock(error)) if is_away(&error) => None,
                audited => Some(audited.unwrap().unwrap()),
            }
        })
        .await
    }

    async fn try_full_audit(&self) -> Result<Option<FullAudit>, AuditError> {
        let (ledger, at) = (&*self.ledger, Timestamp::now());
        audit::full_audit(&self.stock, ledger, &self.item.id, at, &WithoutPause).await
    }

    /// Waits until an audit that reads no orders says the same as this full one, besides what both
    /// say of the orders.
    async fn assert_told_without_a_walk(&self, full: &AuditReport) {
        let without = |report: &AuditReport| AuditReport {
            orders_checked: OrdersChecked::default(),
            ..report.clone()
        };
        eventually("an audit that says the same without a walk", async || {
            let brief = audit::audit(&self.stock, &*self.ledger, &self.item.id).await;
            matches!(brief, Ok(Some(brief)) if without(&brief) == without(full))
        })
        .await;
    }

    /// Waits until Redis and the ledger agree and no units are in transit.
    pub async fn comes_to_rest(&self) {
        eventually(&format!("{} coming to rest", self.item.id), async || {
            self.is_at_rest().await
        })
        .await;
    }

    /// Whether Redis and the ledger agree and no units are in transit.
    pub async fn is_at_rest(&self) -> bool {
        let Ok(Some(FullAudit { report, .. })) = self.try_full_audit().await else {
            return false;
        };
        if report.archived_at.is_some() {
            return report.ok;
        }
        let mut halted = false;
        for segment in self.segments() {
            halted |= self
                .stock
                .inspect(&segment, InspectionEntries::None)
                .await
                .map_or(true, |segment| segment.repairing.is_some());
        }
        let moving = self
            .ledger
            .open_transfers(Some(&self.item.id))
            .await
            .unwrap();
        report.ok && !halted && moving.is_empty() && report.in_flight + report.returning == 0
    }

    /// Asserts the conservation invariant for each segment and for the item, that no operation is
    /// pending, and that the limit counts of the buyers match their orders.
    pub async fn assert_settled(&self) {
        let report = self.report().await;
        assert!(report.ok, "{report:#?}");
        self.assert_told_without_a_walk(&report).await;
        if report.archived_at.is_some() {
            self.assert_archived().await;
            return;
        }
        assert_eq!(
            (report.in_flight, report.in_transit, report.returning),
            (0, 0, 0),
            "{report:#?}"
        );
        assert_eq!(
            report.available + report.held + report.confirmed,
            report.stock,
            "{report:#?}"
        );
        assert_eq!(
            self.ledger
                .pending_returns(ItemScope::Only(&self.item.id), Timestamp::now(), 10)
                .await
                .unwrap(),
            []
        );
        assert_eq!(
            self.ledger
                .open_transfers(Some(&self.item.id))
                .await
                .unwrap(),
            []
        );
        let counted: u64 = self.counts().await.values().sum();
        assert_eq!(
            counted,
            report.held + report.confirmed,
            "the counts of buyers: {report:#?}"
        );
    }

    /// Asserts that the ledger alone accounts for every unit.
    async fn assert_archived(&self) {
        let totals = self.ledger.totals(&self.item.id).await.unwrap().unwrap();
        let mut units = 0;
        for (row, by_orders) in totals.segments.iter().zip(&totals.by_orders) {
            assert_eq!((row.held, row.returning), (0, 0), "{row:?}");
            assert_eq!(row.confirmed, by_orders.confirmed, "{row:?}");
            units += row.available + row.confirmed;
        }
        assert_eq!((units, totals.in_transit), (totals.item.stock, 0));
    }

    /// Units that count against the limit, by buyer.
    pub async fn counts(&self) -> BTreeMap<String, u64> {
        let mut counts = BTreeMap::new();
        for segment in 0..self.item.segments {
            let buyers: BTreeMap<String, u64> = self
                .redis(redis::cmd("HGETALL").arg(self.key("buyers", segment)))
                .await;
            // Skips the placeholder and the marks of buyers who have released units.
            counts.extend(
                buyers
                    .into_iter()
                    .filter(|(buyer, _)| !buyer.is_empty() && !buyer.starts_with('\n')),
            );
        }
        counts
    }
}
