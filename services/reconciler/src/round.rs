//! Looks at every item again and again: is the identity true, is something left to be done?
//!
//! An item that sells is looked at a few times a second, one that is closed and done every ten seconds.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use audit::Look;
use domain::{ItemId, SegmentConfig, SegmentKey};
use futures::{StreamExt, stream};
use ledger::{NewJournalEntry, Transfer};

use crate::{
    Reconciler, ReconcilerError, authority, balance,
    evidence::Evidence,
    needs::{Needs, Wrong, is_lively},
    trouble::Trouble,
    walks,
};

/// Items that are looked at side by side.
const SIDE_BY_SIDE: usize = 16;
/// How long an item is left alone that is closed and done.
const QUIET: Duration = Duration::from_secs(10);

/// What is remembered of an item between rounds.
struct Watched {
    next: Instant,
    audited: Instant,
    evidence: Evidence,
    trouble: Trouble,
}

impl Watched {
    fn new() -> Self {
        let now = Instant::now();
        Self { next: now, audited: now, evidence: Evidence::default(), trouble: Trouble::new("reconciling an item") }
    }
}

/// Units that somebody waits for in one place, by item.
type Wishes = HashMap<ItemId, u64>;

pub(crate) async fn run(reconciler: Arc<Reconciler>) {
    let (mut items, trouble) = (HashMap::new(), Trouble::new("the reconciler's round"));
    let (mut heard, mut wishes) = (reconciler.stock.gather_wishes(), Wishes::new());
    loop {
        match look_at_all(&reconciler, &mut items, &wishes).await {
            Ok(()) => trouble.is_well(),
            Err(error) => trouble.failed(&error),
        }
        wishes.clear();
        tokio::select! {
            () = reconciler.stop.cancelled() => return,
            () = tokio::time::sleep(reconciler.settings.round_every) => {}
            Some((item, units)) = heard.recv() => note(&mut wishes, item, units),
        }
        while let Ok((item, units)) = heard.try_recv() {
            note(&mut wishes, item, units);
        }
    }
}

fn note(wishes: &mut Wishes, item: ItemId, units: u64) {
    let wanted = wishes.entry(item).or_default();
    *wanted = units.max(*wanted);
}

async fn look_at_all(reconciler: &Arc<Reconciler>, items: &mut HashMap<ItemId, Watched>, wishes: &Wishes) -> Result<(), ReconcilerError> {
    let (now, open) = (Instant::now(), reconciler.ledger.open_transfers(None).await?);
    let configs = reconciler.ledger.segment_configs().await?;
    items.retain(|id, _| configs.iter().any(|(known, _)| known == id));
    let mut due = Vec::new();
    for (id, config) in configs {
        let watched = items.remove(&id).unwrap_or_else(Watched::new);
        let transfers: Vec<_> = open.iter().filter(|transfer| transfer.item == id).cloned().collect();
        let wanted = wishes.get(&id).copied().unwrap_or(0);
        if watched.next > now && transfers.is_empty() && wanted == 0 {
            items.insert(id, watched);
        } else {
            due.push((Seen { id, config, transfers, wanted }, watched));
        }
    }
    let looks = stream::iter(due).map(|(seen, watched)| look_at(reconciler, seen, watched));
    items.extend(looks.buffer_unordered(SIDE_BY_SIDE).collect::<Vec<_>>().await);
    Ok(())
}

/// An item that is to be looked at, as the ledger has it.
struct Seen {
    id: ItemId,
    config: SegmentConfig,
    transfers: Vec<Transfer>,
    wanted: u64,
}

async fn look_at(reconciler: &Arc<Reconciler>, seen: Seen, mut watched: Watched) -> (ItemId, Watched) {
    match reconcile(reconciler, &seen, &mut watched).await {
        Ok(()) => watched.trouble.is_well(),
        Err(error) => watched.trouble.failed(&error),
    }
    (seen.id, watched)
}

async fn reconcile(reconciler: &Arc<Reconciler>, seen: &Seen, watched: &mut Watched) -> Result<(), ReconcilerError> {
    let Seen { id, config, transfers, wanted } = seen;
    let looks = audit::look(&reconciler.stock, &*reconciler.ledger, id).await?;
    let mend = judge(reconciler, id, &looks, &mut watched.evidence).await?;
    let lively = is_lively(&looks) || !transfers.is_empty();
    watched.next = Instant::now() + if lively { Duration::ZERO } else { QUIET };
    if looks.iter().any(|look| look.inspection.as_ref().is_some_and(|inspection| inspection.walks > 0)) {
        walks::settle(reconciler, id).await?;
    }
    let limit = config.limit_per_buyer.map(|limit| u64::from(limit.get()));
    let balance = reconciler.settings.balance && mend.is_empty() && transfers.is_empty() && balance::is_needed(&looks, limit, *wanted);
    let needs = Needs { mend, transfers: !transfers.is_empty(), balance, wanted: *wanted };
    if !needs.is_empty() {
        authority::work(reconciler, id, needs).await?;
    }
    if watched.audited.elapsed() >= reconciler.settings.audit_every {
        watched.audited = Instant::now();
        audit_orders(reconciler, id).await?;
    }
    Ok(())
}

/// Says what is wrong, and returns the segments of which that is certain.
async fn judge(reconciler: &Reconciler, id: &ItemId, looks: &[Look], evidence: &mut Evidence) -> Result<Vec<SegmentKey>, ReconcilerError> {
    let (mut mend, mut drift) = (Vec::new(), 0);
    for look in looks {
        let segment = &look.row.key;
        let wrong = Wrong::of(look);
        if let Some(wrong) = &wrong {
            drift += look.drift().unsigned_abs();
            if evidence.is_news(segment, wrong) {
                report(reconciler, id, look, wrong).await?;
            }
        }
        if evidence.stands(segment, wrong.as_ref(), reconciler.settings.confirm_for) {
            mend.push(segment.clone());
        }
    }
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    metrics::gauge!("stockade_drift_units", "item" => id.to_string()).set(drift as f64);
    Ok(mend)
}

async fn report(reconciler: &Reconciler, id: &ItemId, look: &Look, wrong: &Wrong) -> Result<(), ReconcilerError> {
    let finding = look.finding().unwrap_or_else(|| "somebody began to mend it".into());
    tracing::error!(segment = %look.row.key, drift = look.drift(), finding, "{}", wrong.word());
    let available = look.inspection.as_ref().map(|inspection| inspection.available);
    let entry = NewJournalEntry {
        item: id.clone(),
        actor: "reconciler".into(),
        action: wrong.word().into(),
        token: None,
        before: serde_json::json!({ "segment": look.row.key.segment, "expected": look.expected() }),
        after: serde_json::json!({ "segment": look.row.key.segment, "available": available, "drift": look.drift(), "finding": finding }),
    };
    Ok(reconciler.ledger.note(&entry).await?)
}

/// The rows against the orders, and the item against its rows. There is nothing here to repair it by: somebody has to look.
async fn audit_orders(reconciler: &Reconciler, id: &ItemId) -> Result<(), ReconcilerError> {
    let Some(report) = audit::audit(&reconciler.stock, &*reconciler.ledger, id).await? else { return Ok(()) };
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    metrics::gauge!("stockade_oversold_units", "item" => id.to_string()).set(report.oversold as f64);
    if !report.ok {
        tracing::error!(item = %id, drift = report.drift, oversold = report.oversold, "the audit does not come out: `stockade audit {id}` shows it");
    }
    Ok(())
}
