//! Says, while an item sells, whether its identity holds: of each segment and of the item at every look, of the orders behind them from time to
//! time. What does not hold is in the gauge, and once, when it is news, in the journal and in the log.

use std::time::Instant;

use audit::Look;
use domain::{ItemId, SegmentConfig, SegmentKey};
use ledger::NewJournalEntry;
use serde_json::{Value, json};

use crate::{Reconciler, ReconcilerError, evidence::Evidence, needs::Wrong};

/// What is known of one item's identity.
pub(crate) struct Identity {
    evidence: Evidence,
    /// Units of the stock that neither rows nor transfers have.
    unaccounted: i64,
    /// Units that the orders say otherwise than the rows.
    miscounted: u64,
    audited: Instant,
}

impl Identity {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            evidence: Evidence::default(),
            unaccounted: 0,
            miscounted: 0,
            audited: now,
        }
    }

    /// Says what is wrong, and returns the segments of which that is certain.
    pub(crate) async fn judge(
        &mut self,
        reconciler: &Reconciler,
        id: &ItemId,
        settings: &SegmentConfig,
        looks: &[Look],
    ) -> Result<Vec<(SegmentKey, Wrong)>, ReconcilerError> {
        let (mut mend, mut drift) = (Vec::new(), 0);
        for look in looks {
            let segment = &look.row.key;
            let wrong = Wrong::of(look, settings);
            let confirm_for = reconciler.settings.confirm_for;
            let stands = self.evidence.stands(segment, wrong.as_ref(), confirm_for);
            if let Some(wrong) = &wrong {
                drift += look.drift().unsigned_abs();
                if self.evidence.is_news(segment, confirm_for) {
                    report(reconciler, id, look, wrong).await?;
                    self.evidence.is_told(segment);
                }
            }
            if stands {
                mend.extend(wrong.map(|wrong| (segment.clone(), wrong)));
            }
        }
        self.account(reconciler, id).await?;
        show(
            id,
            drift + self.unaccounted.unsigned_abs() + self.miscounted,
        );
        Ok(mend)
    }

    /// The item against its rows. There is nothing here to repair it by: somebody has to look.
    async fn account(
        &mut self,
        reconciler: &Reconciler,
        id: &ItemId,
    ) -> Result<(), ReconcilerError> {
        let unaccounted = reconciler.ledger.unaccounted(id).await?;
        if unaccounted != 0 && unaccounted != self.unaccounted {
            tracing::error!(item = %id, unaccounted, "segments and transfers do not make up the stock: `stockade audit {id}` shows it");
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

    /// The rows against the orders, when it is time again. It reads every order.
    pub(crate) async fn audit(
        &mut self,
        reconciler: &Reconciler,
        id: &ItemId,
    ) -> Result<(), ReconcilerError> {
        if self.audited.elapsed() < reconciler.settings.audit_every {
            return Ok(());
        }
        self.audited = Instant::now();
        let Some(report) = audit::audit(&reconciler.stock, &*reconciler.ledger, id).await? else {
            return Ok(());
        };
        #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
        metrics::gauge!("stockade_oversold_units", "item" => id.to_string())
            .set(report.oversold as f64);
        let miscounted = report.miscounted + report.oversold;
        if miscounted != 0 && miscounted != self.miscounted {
            tracing::error!(item = %id, miscounted = report.miscounted, oversold = report.oversold, "the audit does not come out: `stockade audit {id}` shows it");
            let found = json!({ "miscounted": report.miscounted, "oversold": report.oversold });
            note(
                reconciler,
                id,
                "miscounted",
                json!({ "miscounted": 0, "oversold": 0 }),
                found,
            )
            .await?;
        }
        self.miscounted = miscounted;
        Ok(())
    }
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
fn show(id: &ItemId, drift: u64) {
    metrics::gauge!("stockade_drift_units", "item" => id.to_string()).set(drift as f64);
}

async fn report(
    reconciler: &Reconciler,
    id: &ItemId,
    look: &Look,
    wrong: &Wrong,
) -> Result<(), ReconcilerError> {
    let finding = wrong.finding(look);
    tracing::error!(segment = %look.row.key, drift = look.drift(), finding, "{}", wrong.word());
    let available = look
        .inspection
        .as_ref()
        .map(|inspection| inspection.available);
    let before = json!({ "segment": look.row.key.segment, "expected": look.expected() });
    let after = json!({ "segment": look.row.key.segment, "available": available, "drift": look.drift(), "finding": finding });
    note(reconciler, id, wrong.word(), before, after).await
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
