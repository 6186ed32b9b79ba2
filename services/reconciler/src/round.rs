//! Looks at every item again and again: is the identity true, is something left to be done?
//!
//! An item that sells is looked at a few times a second, one that is closed and done every ten seconds.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use domain::{ItemId, SegmentConfig};
use futures::{StreamExt, stream};
use ledger::Transfer;

use crate::{
    Reconciler, ReconcilerError, authority,
    balance::{self, Pace},
    identity::Identity,
    needs::{Needs, is_lively},
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
    identity: Identity,
    trouble: Trouble,
    pace: Pace,
}

impl Watched {
    fn new() -> Self {
        let now = Instant::now();
        Self {
            next: now,
            identity: Identity::new(now),
            trouble: Trouble::new("reconciling an item"),
            pace: Pace::default(),
        }
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

async fn look_at_all(
    reconciler: &Arc<Reconciler>,
    items: &mut HashMap<ItemId, Watched>,
    wishes: &Wishes,
) -> Result<(), ReconcilerError> {
    let (now, open) = (
        Instant::now(),
        reconciler.ledger.open_transfers(None).await?,
    );
    let configs = reconciler.ledger.segment_configs().await?;
    items.retain(|id, _| configs.iter().any(|(known, _)| known == id));
    let mut due = Vec::new();
    for (id, settings) in configs {
        let watched = items.remove(&id).unwrap_or_else(Watched::new);
        let transfers: Vec<_> = open
            .iter()
            .filter(|transfer| transfer.item == id)
            .cloned()
            .collect();
        let wanted = wishes.get(&id).copied().unwrap_or(0);
        if watched.next > now && transfers.is_empty() && wanted == 0 {
            items.insert(id, watched);
        } else {
            due.push((
                Seen {
                    id,
                    settings,
                    transfers,
                    wanted,
                },
                watched,
            ));
        }
    }
    let looks = stream::iter(due).map(|(seen, watched)| look_at(reconciler, seen, watched));
    items.extend(
        looks
            .buffer_unordered(SIDE_BY_SIDE)
            .collect::<Vec<_>>()
            .await,
    );
    Ok(())
}

/// An item that is to be looked at, as the ledger has it.
struct Seen {
    id: ItemId,
    settings: SegmentConfig,
    transfers: Vec<Transfer>,
    wanted: u64,
}

async fn look_at(
    reconciler: &Arc<Reconciler>,
    seen: Seen,
    mut watched: Watched,
) -> (ItemId, Watched) {
    match reconcile(reconciler, &seen, &mut watched).await {
        Ok(()) => watched.trouble.is_well(),
        Err(error) => watched.trouble.failed(&error),
    }
    (seen.id, watched)
}

async fn reconcile(
    reconciler: &Arc<Reconciler>,
    seen: &Seen,
    watched: &mut Watched,
) -> Result<(), ReconcilerError> {
    let Seen {
        id,
        settings,
        transfers,
        wanted,
    } = seen;
    let looks = audit::look(&reconciler.stock, &*reconciler.ledger, id).await?;
    let mend = watched
        .identity
        .judge(reconciler, id, settings, &looks)
        .await?;
    let lively = is_lively(&looks) || !transfers.is_empty();
    watched.next = Instant::now() + if lively { Duration::ZERO } else { QUIET };
    if looks.iter().any(|look| {
        look.inspection
            .as_ref()
            .is_some_and(|inspection| inspection.walks > 0)
    }) {
        walks::settle(reconciler, id).await?;
    }
    let may_move = (watched.pace.lasts(Instant::now(), &looks) || *wanted > 0)
        && mend.is_empty()
        && transfers.is_empty();
    let balance = reconciler.settings.balance && may_move && balance::is_needed(&looks, *wanted);
    let needs = Needs {
        mend,
        transfers: !transfers.is_empty(),
        balance,
        wanted: *wanted,
    };
    if !needs.is_empty() {
        authority::work(reconciler, id, needs).await?;
    }
    watched.identity.audit(reconciler, id).await
}
