//! `stockade reconcile`: plans the repair of an item (dry run), and executes it once.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use audit::Snapshot;
use domain::{Change, Entry, ItemId, ItemState, Order, SegmentConfig, SegmentKey};
use jiff::Timestamp;
use ledger::{ItemScope, Ledger, PendingReturn, Transfer, TransferState};
use lock::Lock;
use serde::Serialize;
use stock::Stock;

use crate::{
    COMMAND_RETRY_PAUSE, COMMAND_TIMEOUT, Reconciler, ReconcilerError, ReconcilerSettings,
    anomaly::{Anomaly, PendingWork},
    balance,
    confirmation::Confirmation,
    expire, item_lock, returns, spillovers,
};

/// What has to be done for an item.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Plan {
    /// The item.
    pub item: String,
    /// The steps in order. Empty: the item needs no work.
    pub steps: Vec<Step>,
}

/// One step of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Step {
    /// `repair`, `transfer`, `withdraw`, `top_up`, `expire`, `return`, `spillovers`, `balance`.
    pub action: &'static str,
    /// The segment, if the step concerns one.
    pub segment: Option<u16>,
    /// Number of units. With `repair`: how many units too many Redis has (too few, if negative).
    pub units: i64,
    /// Reason for the step.
    pub why: String,
    /// What the step does.
    pub would: String,
    /// Outbox entries that the step concerns.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub entries: Vec<String>,
}

/// Maximum number of outbox entries that a step shows.
const SHOWN_ENTRIES_MAX: usize = 20;

/// Plans the repair of the item and changes nothing. `None`: there is no such item.
pub async fn plan(
    stock: &Stock,
    ledger: &dyn Ledger,
    id: &ItemId,
) -> Result<Option<Plan>, ReconcilerError> {
    let Some(item) = ledger.item(id).await? else {
        return Ok(None);
    };
    if item.state == ItemState::Archived {
        return Ok(Some(Plan {
            item: id.to_string(),
            steps: Vec::new(),
        }));
    }
    let (settings, snapshots) = ((&item).into(), audit::snapshots(stock, ledger, id).await?);
    let mut steps: Vec<Step> = snapshots
        .iter()
        .filter_map(|snapshot| repair_step(snapshot, &settings))
        .collect();
    let transfers = ledger.open_transfers(Some(id)).await?;
    steps.extend(transfers.iter().map(transfer_step));
    steps.extend(expiry_step(
        &expire::due_of(ledger, id, stock.time().await?).await?,
    ));
    let pending = ledger
        .pending_returns(ItemScope::Only(id), Timestamp::now(), usize::from(u16::MAX))
        .await?;
    steps.extend(return_step(&pending));
    steps.extend(spillover_step(&snapshots));
    if steps.is_empty() && balance::is_needed(&snapshots, 0) {
        let why = "some segments are almost empty while others have many units".into();
        steps.push(Step::of_item(
            "balance",
            0,
            why,
            "move units between segments",
        ));
    }
    Ok(Some(Plan {
        item: id.to_string(),
        steps,
    }))
}

fn expiry_step(expired: &[Order]) -> Option<Step> {
    let units = expired
        .iter()
        .map(|order| i64::from(order.quantity.get()))
        .sum();
    (!expired.is_empty()).then(|| {
        Step::of_item(
            "expire",
            units,
            format!("{} holds have expired", expired.len()),
            "end them, and return their units",
        )
    })
}

fn return_step(pending: &[PendingReturn]) -> Option<Step> {
    let units = pending
        .iter()
        .map(|pending| i64::from(pending.quantity.get()))
        .sum();
    (!pending.is_empty()).then(|| {
        Step::of_item(
            "return",
            units,
            format!(
                "{} orders have ended, and their units have not returned",
                pending.len()
            ),
            "return the units to the segments that they came from",
        )
    })
}

fn spillover_step(snapshots: &[Snapshot]) -> Option<Step> {
    let spillovers: u64 = snapshots
        .iter()
        .filter_map(|snapshot| snapshot.inspection.as_ref())
        .map(|inspection| inspection.spillovers)
        .sum();
    (spillovers > 0).then(|| {
        Step::of_item(
            "spillovers",
            0,
            format!("{spillovers} spillovers are pending; those that are not due yet are left"),
            "finish abandoned spillovers, and remove those whose deadlines have passed",
        )
    })
}

impl Step {
    fn of_item(action: &'static str, units: i64, why: String, would: &str) -> Self {
        Self {
            action,
            segment: None,
            units,
            why,
            would: would.into(),
            entries: Vec::new(),
        }
    }

    /// Whether the item is inconsistent without this step. Spillovers settle by themselves, and
    /// units may be in any segment.
    fn is_pressing(&self) -> bool {
        !matches!(self.action, "spillovers" | "balance")
    }
}

impl Plan {
    /// Whether a segment and its row disagree.
    pub fn needs_repair(&self) -> bool {
        self.steps.iter().any(|step| step.action == "repair")
    }

    /// Whether the item is inconsistent unless the plan is executed.
    pub fn is_pressing(&self) -> bool {
        self.steps.iter().any(Step::is_pressing)
    }
}

fn repair_step(snapshot: &Snapshot, settings: &SegmentConfig) -> Option<Step> {
    let anomaly = Anomaly::of(snapshot, settings)?;
    let entries: Vec<_> = snapshot
        .inspection
        .iter()
        .flat_map(|inspection| &inspection.entries)
        .collect();
    let would = match &anomaly {
        Anomaly::Diverged => format!(
            "halt the segment; apply the outbox entries that the ledger does not have ({} orders taken, {} released); restore the orders \
             that the ledger has; set it to the units that the ledger then has available",
            orders(&entries, true),
            orders(&entries, false)
        ),
        Anomaly::Drift { .. } => format!(
            "halt the segment, set it to {} units, reopen it",
            snapshot.expected()
        ),
        Anomaly::Halted { token } => format!(
            "halt the segment under a token above {token}, set it to what the ledger says, reopen it"
        ),
        Anomaly::Settings { epoch } => {
            format!("halt the segment, apply its item's settings under an epoch above {epoch}")
        }
    };
    Some(Step {
        action: "repair",
        segment: Some(snapshot.row.key.segment),
        units: snapshot.drift(),
        why: anomaly.finding(snapshot),
        would,
        entries: entries
            .iter()
            .rev()
            .take(SHOWN_ENTRIES_MAX)
            .rev()
            .map(|entry| shown(entry))
            .collect(),
    })
}

fn orders(entries: &[&Entry], taken: bool) -> usize {
    let count = |entry: &&Entry| match &entry.change {
        Change::Taken { orders, .. } if taken => orders.len(),
        Change::Released { orders } if !taken => orders.len(),
        _ => 0,
    };
    entries.iter().map(count).sum()
}

fn shown(entry: &Entry) -> String {
    let id = entry.id;
    match &entry.change {
        Change::Opened { units, epoch } => format!("{id} opened with {units} units, epoch {epoch}"),
        Change::Taken { orders, .. } => format!(
            "{id} {} orders took {} units",
            orders.len(),
            -entry.change.effect().unwrap_or(0)
        ),
        Change::Released { orders } => format!(
            "{id} {} orders released {} units",
            orders.len(),
            entry.change.effect().unwrap_or(0)
        ),
        Change::StateSet { epoch } => format!("{id} state set, epoch {epoch}"),
        Change::TransferredOut(moved) => {
            format!("{id} {} units left (transfer {})", moved.units, moved.id)
        }
        Change::TransferredIn(moved) => {
            format!("{id} {} units arrived (transfer {})", moved.units, moved.id)
        }
        Change::Halted { token } => format!("{id} halted, token {token}"),
        Change::Adjusted {
            units,
            epoch,
            token,
        } => format!("{id} set to {units} units, epoch {epoch}, token {token}"),
    }
}

fn transfer_step(transfer: &Transfer) -> Step {
    let place = |segment: Option<u16>| {
        segment.map_or_else(
            || "outside".to_owned(),
            |segment| format!("segment {segment}"),
        )
    };
    let (from, to) = (place(transfer.from), place(transfer.to));
    let (units, why) = match transfer.state {
        TransferState::Planned => (
            transfer.quantity,
            format!(
                "{} units are to move from {from} to {to}",
                transfer.quantity
            ),
        ),
        TransferState::Out | TransferState::Done => (
            transfer.moved,
            format!(
                "{} units have left {from} and have not been recorded at {to}",
                transfer.moved
            ),
        ),
    };
    let action = match (transfer.from, transfer.to) {
        (None, _) => "top_up",
        (_, None) => "withdraw",
        _ => "transfer",
    };
    let units = i64::try_from(units).unwrap_or(i64::MAX);
    let would = format!("continue transfer {}", transfer.id);
    Step {
        action,
        segment: transfer.to.or(transfer.from),
        units,
        why,
        would,
        entries: Vec::new(),
    }
}

/// Executes the plan of the item and returns what is left to be done. Waits while another process
/// has the item's lock. `None`: there is no such item.
pub async fn reconcile_once(
    stock: Arc<Stock>,
    ledger: Arc<dyn Ledger>,
    lock: Arc<dyn Lock>,
    id: &ItemId,
) -> Result<Option<Plan>, ReconcilerError> {
    let settings = ReconcilerSettings {
        return_delay: Duration::ZERO,
        ..ReconcilerSettings::default()
    };
    let reconciler = Reconciler::of_command(stock, ledger, lock, settings);
    let until = Instant::now() + COMMAND_TIMEOUT;
    let mut confirmation = Confirmation::default();
    loop {
        let Some(left) = plan(&reconciler.stock, &*reconciler.ledger, id).await? else {
            return Ok(None);
        };
        if left.steps.is_empty() || Instant::now() > until {
            return Ok(Some(left));
        }
        let pressing = left.is_pressing();
        let repair = confirmed(&reconciler, id, &mut confirmation).await?;
        match execute(&reconciler, id, &left, repair).await {
            // The lock has been asked for higher tokens.
            Err(error) if error.fence().is_none() => return Err(error),
            _ => {}
        }
        if !pressing {
            return plan(&reconciler.stock, &*reconciler.ledger, id).await;
        }
        tokio::time::sleep(COMMAND_RETRY_PAUSE).await;
    }
}

/// The anomalies that have persisted unchanged for long enough. No repair is based on a single
/// snapshot, not even one that an operator starts.
async fn confirmed(
    reconciler: &Reconciler,
    id: &ItemId,
    confirmation: &mut Confirmation,
) -> Result<Vec<(SegmentKey, Anomaly)>, ReconcilerError> {
    let Some(item) = reconciler.ledger.item(id).await? else {
        return Ok(Vec::new());
    };
    let (settings, snapshots) = (
        (&item).into(),
        audit::snapshots(&reconciler.stock, &*reconciler.ledger, id).await?,
    );
    let now = Instant::now();
    let is_confirmed = |snapshot: &Snapshot| {
        let (segment, anomaly) = (&snapshot.row.key, Anomaly::of(snapshot, &settings));
        let is_confirmed = confirmation.is_confirmed(
            segment,
            anomaly.as_ref(),
            reconciler.settings.confirmation_period,
            now,
        );
        anomaly
            .filter(|_| is_confirmed)
            .map(|anomaly| (segment.clone(), anomaly))
    };
    Ok(snapshots.iter().filter_map(is_confirmed).collect())
}

async fn execute(
    reconciler: &Arc<Reconciler>,
    id: &ItemId,
    plan: &Plan,
    repair: Vec<(SegmentKey, Anomaly)>,
) -> Result<(), ReconcilerError> {
    let has = |action: &[&str]| plan.steps.iter().any(|step| action.contains(&step.action));
    let work = PendingWork {
        repair,
        transfers: has(&["transfer", "top_up", "withdraw"]),
        balance: has(&["balance"]),
        ..PendingWork::default()
    };
    if !work.is_empty() {
        item_lock::work_under_lock(reconciler, id, work).await?;
    }
    if has(&["expire"]) {
        expire::expire_item(reconciler, id).await?;
    }
    if has(&["return"]) {
        returns::repeat_pending(reconciler, id).await?;
    }
    if has(&["spillovers"]) {
        spillovers::settle(reconciler, id).await?;
    }
    Ok(())
}
