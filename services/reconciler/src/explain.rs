//! `stockade reconcile`: what is wrong with an item, and what would be done about it; and doing it, once.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use audit::Look;
use domain::{Change, Entry, ItemId, SegmentConfig, SegmentKey};
use jiff::Timestamp;
use ledger::{Ledger, Transfer, TransferState};
use lock::Lock;
use serde::Serialize;
use stock::Stock;
use tokio_util::sync::CancellationToken;

use crate::{
    Reconciler, ReconcilerError, ReconcilerSettings, authority, balance,
    evidence::Evidence,
    expire,
    needs::{Needs, Wrong},
    returns, walks,
};

/// What an item needs, in words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// The item.
    pub item: String,
    /// What is to be done, in order. Empty: nothing.
    pub steps: Vec<Step>,
}

/// One thing that is to be done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Step {
    /// `mend`, `transfer`, `take_back`, `top_up`, `expire`, `return`, `walks`, `balance`.
    pub action: &'static str,
    /// Which segment, if it is one.
    pub segment: Option<u16>,
    /// How many units. With `mend`: what Redis has too many of, or too few if it is negative.
    pub units: i64,
    /// Why.
    pub why: String,
    /// What would be done.
    pub would: String,
    /// Outbox entries that it is about.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub entries: Vec<String>,
}

/// Entries of a segment that are shown.
const SHOWN: usize = 20;

/// Says what would be done. `None`: there is no such item.
pub async fn explain(
    stock: &Stock,
    ledger: &dyn Ledger,
    id: &ItemId,
) -> Result<Option<Explanation>, ReconcilerError> {
    let Some(item) = ledger.item(id).await? else {
        return Ok(None);
    };
    let (settings, looks) = ((&item).into(), audit::look(stock, ledger, id).await?);
    let mut steps: Vec<Step> = looks
        .iter()
        .filter_map(|look| mend_step(look, &settings))
        .collect();
    let transfers = ledger.open_transfers(Some(id)).await?;
    steps.extend(transfers.iter().map(transfer_step));
    let over = expire::due_of(ledger, id).await?;
    if !over.is_empty() {
        let units = over
            .iter()
            .map(|order| i64::from(order.quantity.get()))
            .sum();
        steps.push(Step::of_item(
            "expire",
            units,
            format!("{} holds are over", over.len()),
            "end them, and give their units back",
        ));
    }
    let pending = ledger
        .pending_returns(Some(id), Timestamp::now(), usize::from(u16::MAX))
        .await?;
    if !pending.is_empty() {
        let units = pending
            .iter()
            .map(|pending| i64::from(pending.quantity.get()))
            .sum();
        let why = format!(
            "{} orders have ended and their units are not back",
            pending.len()
        );
        steps.push(Step::of_item(
            "return",
            units,
            why,
            "give the units back to the segments that gave them",
        ));
    }
    let walks: u64 = looks
        .iter()
        .filter_map(|look| look.inspection.as_ref())
        .map(|inspection| inspection.walks)
        .sum();
    if walks > 0 {
        let why =
            format!("{walks} walks are not forgotten yet; those that are not due are left alone");
        steps.push(Step::of_item(
            "walks",
            0,
            why,
            "finish those that nobody finished, forget those whose deadlines are over",
        ));
    }
    if steps.is_empty() && balance::is_needed(&looks, 0) {
        let why = "some segments have next to nothing while others have plenty".into();
        steps.push(Step::of_item(
            "balance",
            0,
            why,
            "move units between segments",
        ));
    }
    Ok(Some(Explanation {
        item: id.to_string(),
        steps,
    }))
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

    /// Whether it has to be done for the item to be right. Walks have their time, and units may lie anywhere.
    fn is_pressing(&self) -> bool {
        !matches!(self.action, "walks" | "balance")
    }
}

impl Explanation {
    /// Whether something has to be done for the item to be right.
    pub fn is_pressing(&self) -> bool {
        self.steps.iter().any(Step::is_pressing)
    }
}

fn mend_step(look: &Look, settings: &SegmentConfig) -> Option<Step> {
    let wrong = Wrong::of(look, settings)?;
    let entries: Vec<_> = look
        .inspection
        .iter()
        .flat_map(|inspection| &inspection.entries)
        .collect();
    let would = match &wrong {
        Wrong::Diverged => format!(
            "halt the segment; take in what its outbox holds and the ledger does not have ({} orders taken, {} given back); give it back the orders that the \
             ledger has; set it to what the ledger says is available then",
            orders(&entries, true),
            orders(&entries, false)
        ),
        Wrong::Drift { .. } => format!(
            "halt the segment, set it to {} units, open it again",
            look.expected()
        ),
        Wrong::Halted { token } => format!(
            "halt it under a higher token than {token}, set it to what the ledger says, open it again"
        ),
        Wrong::Settings { epoch } => {
            format!("halt the segment, set it as its item is, under an epoch above {epoch}")
        }
    };
    Some(Step {
        action: "mend",
        segment: Some(look.row.key.segment),
        units: look.drift(),
        why: wrong.finding(look),
        would,
        entries: entries
            .iter()
            .rev()
            .take(SHOWN)
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
            "{id} {} orders gave back {} units",
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
            transfer.asked,
            format!("{} units are to go from {from} to {to}", transfer.asked),
        ),
        TransferState::Out | TransferState::Done => (
            transfer.moved,
            format!(
                "{} units have left {from} and are not known to be at {to}",
                transfer.moved
            ),
        ),
    };
    let action = match (transfer.from, transfer.to) {
        (None, _) => "top_up",
        (_, None) => "take_back",
        _ => "transfer",
    };
    let units = i64::try_from(units).unwrap_or(i64::MAX);
    let would = format!("carry transfer {} on", transfer.id);
    Step {
        action,
        segment: transfer.to.or(transfer.from),
        units,
        why,
        would,
        entries: Vec::new(),
    }
}

/// How long to work on one item.
const WITHIN: Duration = Duration::from_secs(30);
const AGAIN: Duration = Duration::from_millis(200);

/// Does it, waiting for whoever has the item's lock, and returns what is left to be done. `None`: there is no such item.
pub async fn reconcile_once(
    stock: Arc<Stock>,
    ledger: Arc<dyn Ledger>,
    lock: Arc<dyn Lock>,
    id: &ItemId,
) -> Result<Option<Explanation>, ReconcilerError> {
    let settings = ReconcilerSettings {
        return_after: Duration::ZERO,
        ..ReconcilerSettings::default()
    };
    let reconciler = Arc::new(Reconciler {
        stock,
        ledger,
        lock,
        settings,
        stop: CancellationToken::new(),
    });
    let until = Instant::now() + WITHIN;
    let mut evidence = Evidence::default();
    loop {
        let Some(left) = explain(&reconciler.stock, &*reconciler.ledger, id).await? else {
            return Ok(None);
        };
        if left.steps.is_empty() || Instant::now() > until {
            return Ok(Some(left));
        }
        let pressing = left.is_pressing();
        let mend = standing(&reconciler, id, &mut evidence).await?;
        do_steps(&reconciler, id, &left, mend).await?;
        if !pressing {
            return explain(&reconciler.stock, &*reconciler.ledger, id).await;
        }
        tokio::time::sleep(AGAIN).await;
    }
}

/// What is wrong and has stood, unchanged, for as long as it must: nobody repairs by one look, on whoever's word.
async fn standing(
    reconciler: &Reconciler,
    id: &ItemId,
    evidence: &mut Evidence,
) -> Result<Vec<(SegmentKey, Wrong)>, ReconcilerError> {
    let Some(item) = reconciler.ledger.item(id).await? else {
        return Ok(Vec::new());
    };
    let (settings, looks) = (
        (&item).into(),
        audit::look(&reconciler.stock, &*reconciler.ledger, id).await?,
    );
    let stands = |look: &Look| {
        let (segment, wrong) = (&look.row.key, Wrong::of(look, &settings));
        let stands = evidence.stands(segment, wrong.as_ref(), reconciler.settings.confirm_for);
        wrong
            .filter(|_| stands)
            .map(|wrong| (segment.clone(), wrong))
    };
    Ok(looks.iter().filter_map(stands).collect())
}

async fn do_steps(
    reconciler: &Arc<Reconciler>,
    id: &ItemId,
    explanation: &Explanation,
    mend: Vec<(SegmentKey, Wrong)>,
) -> Result<(), ReconcilerError> {
    let has = |action: &[&str]| {
        explanation
            .steps
            .iter()
            .any(|step| action.contains(&step.action))
    };
    let needs = Needs {
        mend,
        transfers: has(&["transfer", "top_up", "take_back"]),
        balance: has(&["balance"]),
        wanted: 0,
    };
    if !needs.is_empty() {
        authority::work(reconciler, id, needs).await?;
    }
    if has(&["expire"]) {
        expire::expire_item(reconciler, id).await?;
    }
    if has(&["return"]) {
        returns::repeat_pending(reconciler, Some(id)).await?;
    }
    if has(&["walks"]) {
        walks::settle(reconciler, id).await?;
    }
    Ok(())
}
