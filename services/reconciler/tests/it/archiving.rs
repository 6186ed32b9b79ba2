//! An archived item: its final audit is written down, Redis has forgotten it, and nothing brings
//! its stock back.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use audit::Archivable;
use domain::{Item, ItemState, OrderState, TransferId};
use jiff::{SignedDuration, Timestamp};
use ledger::{Archival, Changed, Erased, ItemChange, LedgerError, WithoutPause};
use lock::{Lock, RedisLockBuilder};
use reconciler::{Archived, ReconcilerSettings, archive_once};
use stock::{Opened, StateSet, StockError};
use testbed::Redis;
use testkit::{Sale, TestEnv, buyer, eventually, on_both_databases, shared_lock, tested};
use tokio::time::sleep;

use crate::{env::quick, unresponsive::UnresponsiveLedger};

async fn current(sale: &Sale) -> Item {
    sale.ledger.item(&sale.item.id).await.unwrap().unwrap()
}

async fn set_state(sale: &Sale, state: ItemState) -> Item {
    let change = ItemChange {
        state: Some(state),
        ..ItemChange::default()
    };
    sale.change(&change).await
}

/// A closed item with a paid order of two units and a cancelled one, and nothing open.
async fn sold(env: &TestEnv) -> Arc<Sale> {
    let sale = env.sell(12, 3).await;
    let paid = sale.hold(&buyer(1), "key", 2).await;
    sale.step(paid, OrderState::Confirmed).await;
    let cancelled = sale.hold(&buyer(2), "key", 1).await;
    let cancelled = sale.step(cancelled, OrderState::Cancelled).await;
    sale.release(&cancelled).await.unwrap();
    set_state(&sale, ItemState::Closed).await;
    sale.comes_to_rest().await;
    sale.all_drained().await;
    sale
}

async fn archive(sale: &Sale) -> Archived {
    archive_under(sale, shared_lock().await).await
}

async fn archive_under(sale: &Sale, lock: Arc<dyn Lock>) -> Archived {
    let (stock, ledger) = (Arc::clone(&sale.stock), Arc::clone(&sale.ledger));
    let archived = archive_once(stock, ledger, lock, &sale.item.id, "eve").await;
    archived.unwrap().unwrap()
}

async fn reasons(sale: &Sale) -> String {
    match archive(sale).await {
        Archived::Refused(reasons) => reasons.join("; "),
        other => panic!("{other:?}"),
    }
}

/// The names of the item's keys, and the fields of each tombstone.
async fn remains(sale: &Sale) -> Vec<(String, Vec<(String, String)>)> {
    let mut scan = redis::cmd("KEYS");
    scan.arg(format!("*{{{}:*}}", sale.item.id));
    let mut names: Vec<String> = sale.redis(&scan).await;
    names.sort_unstable();
    let mut remains = Vec::new();
    for name in names {
        let fields: BTreeMap<String, String> = if name.starts_with("stock:") {
            sale.redis(redis::cmd("HGETALL").arg(&name)).await
        } else {
            BTreeMap::new()
        };
        remains.push((name, fields.into_iter().collect()));
    }
    remains
}

async fn has_only_tombstones(sale: &Sale) -> bool {
    let remains = remains(sale).await;
    remains.len() == usize::from(sale.item.segments)
        && remains.iter().all(|(name, fields)| {
            name.starts_with("stock:")
                && fields.len() == 3
                && fields.contains(&("state".into(), "archived".into()))
        })
}

async fn is_live(sale: &Sale) -> bool {
    let live = sale.ledger.changed_items(None).await.unwrap();
    live.iter().any(|row| row.item.id == sale.item.id)
}

#[tested(on_both_databases(crate::env::run))]
async fn an_archived_item_has_a_final_audit_and_no_keys(env: &Arc<TestEnv>) {
    env.record().await;
    let sale = sold(env).await;
    let before = sale.report().await;
    assert_eq!(archive(&sale).await, Archived::Done);
    assert!(
        has_only_tombstones(&sale).await,
        "{:?}",
        remains(&sale).await
    );
    let item = current(&sale).await;
    assert_eq!((item.state, item.epoch), (ItemState::Archived, 3));
    assert!(!is_live(&sale).await, "workers do not see it any more");
    let checkpoints = sale.ledger.checkpoints().await.unwrap();
    assert!(checkpoints.iter().all(|(key, _)| key.item != sale.item.id));
    let report = sale.report().await;
    assert!(report.archived_at.is_some());
    assert!(report.orders_checked.current && report.orders_checked.at >= before.orders_checked.at);
    assert_eq!(
        audit::AuditReport {
            archived_at: None,
            orders_checked: before.orders_checked.clone(),
            ..report
        },
        before
    );
    let journal = sale.journal("archive").await;
    assert_eq!(journal.len(), 1);
    assert_eq!(journal[0].entry.actor, "eve");
    assert!(journal[0].entry.token.is_some());
    assert_eq!(archive(&sale).await, Archived::Done, "a repeat");
    assert_eq!(sale.journal("archive").await.len(), 1);
}

#[tested(on_both_databases(crate::env::run))]
async fn what_is_open_stands_against_an_archive(env: &Arc<TestEnv>) {
    let sale = env.sell(6, 2).await;
    assert_eq!(reasons(&sale).await, "the item is open, close it first");
    set_state(&sale, ItemState::Closed).await;
    let unrecorded = reasons(&sale).await;
    assert!(
        unrecorded.contains("outbox entries that are not recorded"),
        "{unrecorded}"
    );
    env.record().await;
    let item = set_state(&sale, ItemState::Open).await;
    sale.stock.configure(&item).await.unwrap();
    let order = sale.hold(&buyer(1), "key", 2).await;
    set_state(&sale, ItemState::Closed).await;
    sale.all_drained().await;
    assert_eq!(reasons(&sale).await, "2 units of held orders");
    let order = sale.step(order, OrderState::Cancelled).await;
    assert_eq!(
        reasons(&sale).await,
        "2 units of ended orders on their way back"
    );
    sale.release(&order).await.unwrap();
    sale.comes_to_rest().await;
    sale.withdraw(0, 1).await;
    assert_eq!(reasons(&sale).await, "1 open transfers");
    env.reconcile(quick()).await;
    sale.comes_to_rest().await;
    sale.all_drained().await;
    assert_eq!(archive(&sale).await, Archived::Done);
}

/// Changes the units of the paid order behind the ledger's code.
async fn change_paid_units(env: &TestEnv, sale: &Sale, units: u32) {
    let paid = format!("item = '{}' AND state = 'confirmed'", sale.item.id);
    env.sql(&format!(
        "UPDATE orders SET quantity = {units} WHERE {paid}"
    ))
    .await;
}

#[tested(on_both_databases(crate::env::run))]
async fn a_fault_that_a_final_audit_finds_is_told_by_audits_that_read_no_orders(
    env: &Arc<TestEnv>,
) {
    env.record().await;
    let sale = sold(env).await;
    let (stock, ledger, id) = (&sale.stock, &*sale.ledger, &sale.item.id);
    let against = async || audit::against_archive(stock, ledger, id).await.unwrap();
    assert_eq!(against().await, Some(Vec::new()));
    change_paid_units(env, &sale, 5).await;
    assert_eq!(against().await, Some(Vec::new()), "no row has changed");
    for _ in 0..2 {
        let found = reasons(&sale).await;
        assert_eq!(found, "the audit is not ok: oversold 0, drift 3");
    }
    assert_eq!(sale.journal("miscounted").await.len(), 1, "once");
    let told = audit::audit(stock, ledger, id).await.unwrap().unwrap();
    assert_eq!(
        told.orders_checked.fault.map(|fault| fault.miscounted),
        Some(3)
    );
    change_paid_units(env, &sale, 2).await;
    assert_eq!(against().await, Some(Vec::new()), "it may be mended");
    assert_eq!(archive(&sale).await, Archived::Done, "it reads them again");
    assert_eq!(against().await, Some(Vec::new()));
}

/// Archives the item in the ledger only, as a process does that dies after it.
async fn archive_in_the_ledger(sale: &Sale, token: u64) -> bool {
    let id = &sale.item.id;
    sale.ledger.claim_item(id, token).await.unwrap();
    let archival = archivable(sale, token).await;
    sale.ledger.archive(&archival).await.unwrap()
}

/// The final audit of an item that can be archived.
async fn archivable(sale: &Sale, token: u64) -> Box<Archival> {
    let (stock, ledger, id) = (&sale.stock, &*sale.ledger, &sale.item.id);
    let orders = audit::read_orders(ledger, id, Timestamp::now(), &WithoutPause).await;
    let orders = orders.unwrap();
    let found = audit::archivable(stock, ledger, id, "eve", token, orders).await;
    match found.unwrap() {
        Some(Archivable::Yes(archival)) => archival,
        other => panic!("{other:?}"),
    }
}

#[tested(on_both_databases(crate::env::run))]
async fn an_interrupted_archive_is_finished_by_the_next_reconciler(env: &Arc<TestEnv>) {
    env.record().await;
    let sale = sold(env).await;
    assert!(archive_in_the_ledger(&sale, 1).await);
    assert!(is_live(&sale).await, "its keys are to be removed");
    assert!(!has_only_tombstones(&sale).await);
    assert!(sale.report().await.archived_at.is_some());
    for _ in 0..2 {
        env.reconcile(quick()).await;
    }
    eventually("the end of the archive", async || {
        has_only_tombstones(&sale).await && !is_live(&sale).await
    })
    .await;
    assert_eq!(sale.journal("archive").await.len(), 1);
}

#[tested(on_both_databases(crate::env::run))]
async fn nothing_brings_the_stock_of_an_archived_item_back(env: &Arc<TestEnv>) {
    env.record().await;
    let sale = sold(env).await;
    let late = env.stock().await;
    let closed = current(&sale).await;
    assert_eq!(archive(&sale).await, Archived::Done);
    let before = remains(&sale).await;
    let (key, id) = (sale.segment(0), TransferId::random());
    assert_eq!(
        late.open_segment(&sale.item, 0).await.unwrap(),
        Opened::Existing
    );
    let later = Item {
        state: ItemState::Open,
        epoch: closed.epoch + 100,
        ..closed
    };
    let set = late.configure(&later).await.unwrap();
    assert!(set.iter().all(|set| *set == StateSet::Stale), "{set:?}");
    let halted = late
        .halt(&key, u64::from(u32::MAX), stock::OldMemory::Keep)
        .await;
    assert!(
        matches!(halted, Err(StockError::Fenced { .. })),
        "{halted:?}"
    );
    let arrived = late.transfer_in(&key, id, 5, u64::from(u32::MAX)).await;
    assert!(
        matches!(arrived, Err(StockError::Missing(_))),
        "{arrived:?}"
    );
    let left = late.transfer_out(&key, id, 5, u64::from(u32::MAX)).await;
    assert!(matches!(left, Err(StockError::Missing(_))), "{left:?}");
    for n in [1, 3, 4, 5] {
        let reservation = sale.reservation(&buyer(n), "key", 2);
        let placed = late.item(&sale.item).order(reservation).await;
        assert!(matches!(placed, Err(StockError::Missing(_))), "{placed:?}");
    }
    let paid = sale.recorded(sale.order_id(&buyer(1), "key")).await;
    let released = sale.release(&paid).await;
    assert!(released.is_err(), "{released:?}");
    late.item(&sale.item).settle_spillovers().await.unwrap();
    recorder::open_missing_segments(&late, &*sale.ledger)
        .await
        .unwrap();
    recorder::record_once(&late, &*sale.ledger, &sale.segments())
        .await
        .unwrap();
    let claimed = sale.ledger.claim(&sale.segments(), 9).await.unwrap();
    assert!(claimed.is_none(), "no recorder gets its rows");
    let token = current_fence(&sale).await;
    let repair = sale.ledger.claim_for_repair(&sale.segments(), token).await;
    assert!(
        matches!(repair.map(drop), Err(LedgerError::Superseded(_))),
        "no repair gets its rows"
    );
    late.archive(&current(&sale).await, 1).await.unwrap();
    assert_eq!(remains(&sale).await, before);
    late.shutdown().await;
}

/// A token that the item accepts: a claim with a high one.
async fn current_fence(sale: &Sale) -> u64 {
    let token = u64::from(u32::MAX);
    sale.ledger.claim_item(&sale.item.id, token).await.unwrap();
    token
}

#[tested(on_both_databases(crate::env::run))]
async fn an_item_is_archived_by_itself_after_the_configured_time(env: &Arc<TestEnv>) {
    env.record().await;
    let sale = sold(env).await;
    let other = env.sell(4, 1).await;
    for _ in 0..2 {
        env.reconcile(ReconcilerSettings {
            archive_after: Some(Duration::from_millis(200)),
            ..quick()
        })
        .await;
    }
    eventually("the archive", async || {
        has_only_tombstones(&sale).await && !is_live(&sale).await
    })
    .await;
    assert_eq!(sale.journal("archive").await[0].entry.actor, "reconciler");
    assert_eq!(current(&other).await.state, ItemState::Open);
}

/// The final audit reads all orders of the item.
#[tested(on_both_databases(crate::env::run))]
async fn an_archive_that_reads_for_long_keeps_no_item_waiting(env: &Arc<TestEnv>) {
    env.record().await;
    let sale = sold(env).await;
    let id = sale.item.id.clone();
    let ledger = UnresponsiveLedger::with_an_endless_walk(env.ledger().await, id);
    let settings = ReconcilerSettings {
        archive_after: Some(Duration::from_millis(1)),
        // No audit but that of the archive.
        audit_interval: Duration::from_secs(3600),
        ..quick()
    };
    env.reconcile_on(Arc::clone(&ledger) as _, settings).await;
    eventually("the walk of the archive", async || {
        ledger.endless_walks() == 1
    })
    .await;
    ledger.more_rounds(20).await;
    assert_eq!(current(&sale).await.state, ItemState::Closed);
    // Not even the item itself: it is sold again.
    set_state(&sale, ItemState::Open).await;
    sale.bend(0, 1).await;
    eventually("the repair", async || {
        !sale.journal("repair").await.is_empty()
    })
    .await;
    assert_eq!(ledger.endless_walks(), 1, "it is one archive all the while");
}

/// A closed item is not looked at, until it is to be archived.
#[tested(on_both_databases(crate::env::run))]
async fn what_stands_against_an_archive_is_repaired(env: &Arc<TestEnv>) {
    env.record().await;
    let sale = sold(env).await;
    env.reconcile(quick()).await;
    sale.comes_to_rest().await;
    let _: i64 = sale.redis(redis::cmd("DEL").arg(sale.keys(0))).await;
    let id = &sale.item.id;
    sale.ledger.request_archive(id, None, "eve").await.unwrap();
    eventually("the archive", async || has_only_tombstones(&sale).await).await;
    assert!(!sale.journal("repair").await.is_empty());
}

#[tested(on_both_databases(crate::env::run))]
async fn a_reconciler_with_a_wrong_clock_archives_nothing_by_itself(env: &Arc<TestEnv>) {
    env.record().await;
    let sale = sold(env).await;
    let after = |archive_after, clock| ReconcilerSettings {
        archive_after: Some(archive_after),
        clock,
        ..quick()
    };
    // By this clock the item is due at once, and by the stores' in ten minutes.
    let ahead = || Timestamp::now() + SignedDuration::from_mins(15);
    let ledger = UnresponsiveLedger::that_counts(env.ledger().await);
    let settings = after(Duration::from_secs(600), ahead);
    env.reconcile_on(Arc::clone(&ledger) as _, settings).await;
    // Due by all clocks, but they differ: one of them is wrong, and an archive is final.
    let behind = || Timestamp::now() - SignedDuration::from_secs(10);
    let soon = Duration::from_millis(1);
    let other = UnresponsiveLedger::that_counts(env.ledger().await);
    env.reconcile_on(Arc::clone(&other) as _, after(soon, behind))
        .await;
    // The first attempts, and those after the pause between two.
    ledger.more_rounds(100).await;
    other.more_rounds(150).await;
    assert_eq!(current(&sale).await.state, ItemState::Closed);
    assert!(sale.journal("archive").await.is_empty());
    // An admin's request needs no clock.
    sale.ledger
        .request_archive(&sale.item.id, None, "eve")
        .await
        .unwrap();
    eventually("the archive", async || has_only_tombstones(&sale).await).await;
    assert_eq!(sale.journal("archive").await[0].entry.actor, "eve");
}

#[tested(on_both_databases(crate::env::run))]
async fn reopening_an_item_withdraws_the_request_for_its_archive(env: &Arc<TestEnv>) {
    env.record().await;
    let sale = sold(env).await;
    let id = &sale.item.id;
    let version = current(&sale).await.version;
    let other = sale
        .ledger
        .request_archive(id, Some(version + 1), "eve")
        .await
        .unwrap();
    assert!(matches!(other, Changed::OtherVersion(_)), "{other:?}");
    for _ in 0..2 {
        sale.ledger
            .request_archive(id, Some(version), "eve")
            .await
            .unwrap();
    }
    set_state(&sale, ItemState::Open).await;
    set_state(&sale, ItemState::Closed).await;
    env.reconcile(quick()).await;
    sleep(Duration::from_millis(500)).await;
    assert_eq!(current(&sale).await.state, ItemState::Closed);
    sale.ledger.request_archive(id, None, "eve").await.unwrap();
    eventually("the archive", async || has_only_tombstones(&sale).await).await;
    assert_eq!(sale.journal("archive").await[0].entry.actor, "eve");
}

#[tested(on_both_databases(crate::env::run))]
async fn a_refund_of_an_archived_item_returns_in_the_ledger_alone(env: &Arc<TestEnv>) {
    env.record().await;
    let sale = sold(env).await;
    assert_eq!(archive(&sale).await, Archived::Done);
    let order = sale.order_id(&buyer(1), "key");
    sale.step(order, OrderState::Refunded).await;
    let rows = sale.ledger.segments(&sale.item.id).await.unwrap();
    assert_eq!(rows.iter().map(|row| row.available).sum::<u64>(), 12);
    assert!(rows.iter().all(|row| row.confirmed + row.returning == 0));
    assert_eq!(sale.report().await.confirmed, 2, "the final audit stands");
}

#[tested(on_both_databases(crate::env::run))]
async fn an_item_that_changes_after_its_audit_is_not_archived(env: &Arc<TestEnv>) {
    env.record().await;
    let sale = sold(env).await;
    let id = &sale.item.id;
    sale.ledger.claim_item(id, 7).await.unwrap();
    let archival = archivable(&sale, 7).await;
    let order = sale.order_id(&buyer(1), "key");
    let refunded = sale.step(order, OrderState::Refunded).await;
    assert!(!sale.ledger.archive(&archival).await.unwrap());
    sale.release(&refunded).await.unwrap();
    sale.comes_to_rest().await;
    sale.all_drained().await;
    assert!(!sale.ledger.archive(&archival).await.unwrap());
    let archival = archivable(&sale, 7).await;
    set_state(&sale, ItemState::Open).await;
    assert!(!sale.ledger.archive(&archival).await.unwrap());
    set_state(&sale, ItemState::Closed).await;
    sale.all_drained().await;
    let archival = archivable(&sale, 7).await;
    sale.ledger.claim_item(id, 8).await.unwrap();
    let fenced = sale.ledger.archive(&archival).await;
    assert!(
        matches!(fenced, Err(LedgerError::Fenced { .. })),
        "{fenced:?}"
    );
    assert_eq!(current(&sale).await.state, ItemState::Closed);
    sale.inspect(0).await;
}

#[tested(on_both_databases(crate::env::run))]
async fn a_buyers_name_is_erased_from_archived_items_once(env: &Arc<TestEnv>) {
    env.record().await;
    let (sale, other) = (sold(env).await, env.sell(4, 1).await);
    let (ann, ledger) = (buyer(1), &sale.ledger);
    let erase = async || ledger.erase_buyer(&ann, "eve").await.unwrap();
    let held = other.hold(&ann, "key", 1).await;
    assert_eq!(erase().await, Erased::Held { orders: 1 });
    let cancelled = other.step(held, OrderState::Cancelled).await;
    other.release(&cancelled).await.unwrap();
    assert_eq!(
        erase().await,
        Erased::Done { orders: 0, kept: 2 },
        "live items need the name"
    );
    assert_eq!(archive(&sale).await, Archived::Done);
    assert_eq!(erase().await, Erased::Done { orders: 1, kept: 1 });
    assert_eq!(
        erase().await,
        Erased::Done { orders: 0, kept: 1 },
        "a repeat"
    );
    let order = sale.recorded(sale.order_id(&ann, "key")).await;
    assert!(order.buyer.as_str().starts_with("erased-"), "{order:?}");
    assert_eq!(order.state, OrderState::Confirmed);
    let bob = sale.recorded(sale.order_id(&buyer(2), "key")).await;
    assert_eq!(bob.buyer, buyer(2), "another buyer");
    set_state(&other, ItemState::Closed).await;
    other.comes_to_rest().await;
    other.all_drained().await;
    assert_eq!(archive(&other).await, Archived::Done);
    assert_eq!(erase().await, Erased::Done { orders: 1, kept: 0 });
    let erased = other.recorded(held).await;
    assert!(erased.buyer.as_str().starts_with("erased-"), "{erased:?}");
    assert_ne!(erased.buyer, order.buyer, "each erasure has its own name");
    let journal = sale.journal("erase_buyer").await;
    assert_eq!(journal.len(), 1);
    let entry = &journal[0].entry;
    assert_eq!((&*entry.actor, &entry.after["orders"]), ("eve", &1.into()));
    assert!(!format!("{entry:?}").contains(ann.as_str()), "{entry:?}");
    sale.step(order.id, OrderState::Refunded).await;
}

/// A service comes back in its next round. A command would have to be started again.
#[tested(on_both_databases(crate::env::run))]
async fn a_command_waits_for_a_lock_whose_server_is_slow(env: &Arc<TestEnv>) {
    env.record().await;
    let sale = sold(env).await;
    let server = Redis::start().await.unwrap();
    let lock = Arc::new(RedisLockBuilder::new(server.url()).build().unwrap());
    server.pause().await.unwrap();
    let resume = async {
        // An attempt waits half a second for an answer.
        sleep(Duration::from_secs(1)).await;
        server.resume().await.unwrap();
    };
    let (archived, ()) = tokio::join!(archive_under(&sale, lock), resume);
    assert_eq!(archived, Archived::Done);
}

/// New lock servers start with low tokens.
#[tested(on_both_databases(crate::env::run))]
async fn a_command_gets_a_token_above_those_that_its_item_has_seen(env: &Arc<TestEnv>) {
    env.record().await;
    let sale = sold(env).await;
    sale.ledger.claim_item(&sale.item.id, 50).await.unwrap();
    let server = Redis::start().await.unwrap();
    let lock = Arc::new(RedisLockBuilder::new(server.url()).build().unwrap());
    assert_eq!(archive_under(&sale, lock).await, Archived::Done);
}
