//! Checks the conservation invariant of an item while it sells. Each round checks every segment and
//! the item; audits (`audits.rs`) check the orders at longer intervals. The gauge shows each
//! violation. A new violation is also logged and journaled once.

use std::time::Instant;

use audit::Snapshot;
use domain::{ItemId, ItemState, SegmentConfig, SegmentKey};
use ledger::NewJournalEntry;
use serde_json::{Value, json};

use crate::{
    Reconciler, ReconcilerError, anomaly::Anomaly, audits::Seen, confirmation::Confirmation,
};

/// State of the invariant checks of one item.
#[derive(Default)]
pub(crate) struct Invariant {
    confirmation: Confirmation,
    /// Units of the item's stock that neither rows nor transfers account for.
    unaccounted: i64,
}

impl Invariant {
    /// Reports new anomalies, and returns the segments whose anomaly is confirmed.
    pub(crate) async fn judge(
        &mut self,
        reconciler: &Reconciler,
        id: &ItemId,
        settings: &SegmentConfig,
        snapshots: &[Snapshot],
    ) -> Result<Vec<(SegmentKey, Anomaly)>, ReconcilerError> {
        let (mut repair, mut drift) = (Vec::new(), 0);
        let now = Instant::now();
        for snapshot in snapshots {
            let segment = &snapshot.row.key;
            let anomaly = Anomaly::of(snapshot, settings);
            let confirmation_period = reconciler.settings.confirmation_period;
            let is_confirmed =
                self.confirmation
                    .is_confirmed(segment, anomaly.as_ref(), confirmation_period, now);
            if let Some(anomaly) = &anomaly {
                drift += snapshot.drift().unsigned_abs();
                if self
                    .confirmation
                    .is_due_for_report(segment, confirmation_period, now)
                {
                    report(reconciler, id, snapshot, anomaly).await?;
                    self.confirmation.mark_reported(segment);
                }
            }
            if is_confirmed {
                repair.extend(anomaly.map(|anomaly| (segment.clone(), anomaly)));
            }
        }
        self.account(reconciler, id).await?;
        let drift = drift + self.unaccounted.unsigned_abs();
        let (seen, interval) = (
            seen(settings, snapshots, drift),
            reconciler.settings.audit_interval,
        );
        reconciler.audits.note(id, seen, interval);
        Ok(repair)
    }

    /// Whether the last poll found nothing wrong.
    pub(crate) fn is_clean(&self) -> bool {
        self.confirmation.is_empty() && self.unaccounted == 0
    }

    /// Compares the item with its rows. The reconciler has no data to repair a difference: an
    /// operator has to investigate it.
    async fn account(
        &mut self,
        reconciler: &Reconciler,
        id: &ItemId,
    ) -> Result<(), ReconcilerError> {
        let unaccounted = reconciler.ledger.unaccounted(id).await?;
        if unaccounted != 0 && unaccounted != self.unaccounted {
            tracing::error!(item = %id, unaccounted, "segments and transfers do not add up to the item's stock: run `stockade audit {id}`");
            note(
                reconciler,
                id,
                "unaccounted",
                json!({ "unaccounted": 0 }),
                json!({ "unaccounted": unaccounted }),
            )
            .await?;
        }
        self.unaccounted = unaccounted;
        Ok(())
    }
}

/// What the audits of the item go by.
fn seen(settings: &SegmentConfig, snapshots: &[Snapshot], drift: u64) -> Seen {
    let rows = || snapshots.iter().map(|snapshot| &snapshot.row);
    let waiting: u64 = rows().map(|row| row.held + row.returning).sum();
    let confirmed: u64 = rows().map(|row| row.confirmed).sum();
    Seen {
        revision: audit::revision(rows()),
        drift,
        has_orders: waiting + confirmed > 0,
        is_settled: settings.state == ItemState::Closed && waiting == 0,
    }
}

async fn report(
    reconciler: &Reconciler,
    id: &ItemId,
    snapshot: &Snapshot,
    anomaly: &Anomaly,
) -> Result<(), ReconcilerError> {
    let finding = anomaly.finding(snapshot);
    tracing::error!(segment = %snapshot.row.key, drift = snapshot.drift(), finding, "segment anomaly: {}", anomaly.name());
    let available = snapshot
        .inspection
        .as_ref()
        .map(|inspection| inspection.available);
    let before = json!({ "segment": snapshot.row.key.segment, "expected": snapshot.expected() });
    let after = json!({ "segment": snapshot.row.key.segment, "available": available, "drift": snapshot.drift(), "finding": finding });
    note(reconciler, id, anomaly.name(), before, after).await
}

async fn note(
    reconciler: &Reconciler,
    item: &ItemId,
    action: &str,
    before: Value,
    after: Value,
) -> Result<(), ReconcilerError> {
    let (item, actor, action) = (item.clone(), "reconciler".to_owned(), action.to_owned());
    Ok(reconciler
        .ledger
        .note(&NewJournalEntry {
            item,
            actor,
            action,
            token: None,
            before,
            after,
        })
        .await?)
}
