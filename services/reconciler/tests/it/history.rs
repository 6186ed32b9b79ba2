//! Repair after Redis lost recorded state: everything, a segment, a key, or all since a backup.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use domain::{Item, Order, OrderId, OrderState, Quantity};
use lock::RedisLockBuilder;
use stock::Outcome;
use testkit::{Deadline, Sale, TestEnv, buyer, eventually, is_held, on_both_databases, tested};

use crate::env::quick;

fn two_each(item: Item) -> Item {
    Item {
        limit_per_buyer: Some(Quantity::new(2).unwrap()),
        ..item
    }
}

/// An order and its state.
struct Known {
    n: usize,
    id: OrderId,
    state: OrderState,
    outcome: Outcome,
}

/// Places orders in every state that a segment has to record.
async fn sold(sale: &Sale, orders: usize) -> Vec<Known> {
    let ids = sale.hold_many(0..orders).await;
    let mut known = Vec::new();
    for (n, id) in ids.into_iter().enumerate() {
        let state = match n % 5 {
            0 => OrderState::Confirmed,
            1 => OrderState::Cancelled,
            2 => OrderState::Expired,
            _ => OrderState::Held,
        };
        if state != OrderState::Held {
            let order = sale.step(id, state).await;
            if state.units() == domain::Units::None {
                sale.release(&order).await.unwrap();
            }
        }
        known.push(Known {
            n,
            id,
            state,
            outcome: sale.order(&buyer(n), "key", 1).await,
        });
    }
    sale.comes_to_rest().await;
    known
}

/// Asserts that repeats have the same answers, that limits count the same units, and that exactly
/// the remaining units can be sold.
async fn is_restored(sale: &Sale, known: &[Known], left: u64) {
    for Known {
        n,
        id,
        state,
        outcome,
    } in known
    {
        assert_eq!(sale.state(*id).await, Some(*state), "order {n}");
        assert_eq!(
            &sale.order(&buyer(*n), "key", 1).await,
            outcome,
            "order {n}, {state}"
        );
    }
    assert_eq!(
        sale.available().await.iter().sum::<u64>(),
        left,
        "repeats took nothing"
    );
    let (holder, free) = (
        known.iter().find(|known| known.state == OrderState::Held),
        known
            .iter()
            .find(|known| known.state == OrderState::Cancelled),
    );
    let [holder, free] = [holder.unwrap().n, free.unwrap().n];
    assert!(is_held(&sale.order(&buyer(holder), "second", 1).await));
    assert_eq!(
        sale.order(&buyer(holder), "third", 1).await,
        Outcome::BuyerLimitReached
    );
    assert!(is_held(&sale.order(&buyer(free), "second", 1).await));
    assert!(
        is_held(&sale.order(&buyer(free), "third", 1).await),
        "released units do not count"
    );
    sale.comes_to_rest().await;
    assert_eq!(sale.available().await.iter().sum::<u64>(), left - 3);
}

async fn empty(sale: &Sale) {
    let _: String = sale.redis(&redis::cmd("FLUSHALL")).await;
}

/// Waits until the item is healed, and prints how long that took.
async fn heals(sale: &Sale, since: Instant) {
    sale.comes_to_rest().await;
    eprintln!("{} healed after {:?}", sale.item.id, since.elapsed());
}

#[tested(on_both_databases(crate::env::run_on_own_redis))]
async fn an_emptied_redis_is_restored_from_the_ledger(env: &Arc<TestEnv>) {
    env.record().await;
    env.reconcile(quick()).await;
    let sale = env.sell_with(200, 4, two_each).await;
    let known = sold(&sale, 100).await;
    let left = sale.available().await.iter().sum();
    let (counts, epochs) = (sale.counts().await, sale.epochs().await);
    empty(&sale).await;
    heals(&sale, Instant::now()).await;
    assert_eq!(sale.counts().await, counts);
    assert!(
        sale.epochs()
            .await
            .iter()
            .zip(&epochs)
            .all(|(now, before)| now > before)
    );
    let repaired = sale.journal("repair").await;
    assert_eq!(
        (repaired.len(), sale.journal("diverged").await.len()),
        (4, 4),
        "each segment, once"
    );
    is_restored(&sale, &known, left).await;
}

#[tested(on_both_databases(crate::env::run_on_own_redis))]
async fn a_lost_segment_is_restored_and_the_others_keep_selling(env: &Arc<TestEnv>) {
    env.record().await;
    env.reconcile(quick()).await;
    let sale = env.sell_with(200, 3, two_each).await;
    let known = sold(&sale, 60).await;
    let left = sale.available().await.iter().sum();
    let epochs = sale.epochs().await;
    let _: i64 = sale.redis(redis::cmd("DEL").arg(sale.keys(1))).await;
    heals(&sale, Instant::now()).await;
    let now = sale.epochs().await;
    assert!(now[1] > epochs[1], "{now:?} after {epochs:?}");
    assert_eq!(
        sale.journal("repair").await.len(),
        1,
        "the other segments are unchanged"
    );
    is_restored(&sale, &known, left).await;
}

/// Any key of a segment. An entry that replaces the anchor has the same effect.
#[tested(on_both_databases(crate::env::run_on_own_redis))]
async fn a_lost_key_is_restored(env: &Arc<TestEnv>) {
    env.record().await;
    env.reconcile(quick()).await;
    let sale = env.sell_with(200, 2, two_each).await;
    let known = sold(&sale, 40).await;
    let left = sale.available().await.iter().sum();
    for (lost, kind) in ["outbox", "stock", "decisions", "buyers", "spillovers"]
        .into_iter()
        .enumerate()
    {
        let _: i64 = sale.redis(redis::cmd("DEL").arg(sale.key(kind, 0))).await;
        eventually("repair it", async || {
            sale.journal("repair").await.len() == lost + 1
        })
        .await;
        heals(&sale, Instant::now()).await;
    }
    is_restored(&sale, &known, left).await;
}

/// A copy of all keys.
async fn backup(sale: &Sale) -> BTreeMap<String, Vec<u8>> {
    let mut keys = BTreeMap::new();
    for key in (0..sale.item.segments).flat_map(|segment| sale.keys(segment)) {
        keys.insert(
            key.clone(),
            sale.redis::<Vec<u8>>(redis::cmd("DUMP").arg(key)).await,
        );
    }
    keys
}

async fn restore(env: &TestEnv, backup: &BTreeMap<String, Vec<u8>>) {
    let mut pipe = redis::pipe();
    pipe.atomic();
    for (key, value) in backup {
        pipe.cmd("RESTORE")
            .arg(key)
            .arg(0)
            .arg(value.as_slice())
            .arg("REPLACE")
            .ignore();
    }
    let () = env.redis_pipe(&pipe).await;
}

/// After the backup, orders were placed, paid, released and reacquired.
#[tested(on_both_databases(crate::env::run_on_own_redis))]
async fn a_restored_backup_is_brought_up_to_date(env: &Arc<TestEnv>) {
    env.record().await;
    env.reconcile(quick()).await;
    let sale = env.sell_with(200, 4, two_each).await;
    sale.hold_many(0..10).await;
    sale.comes_to_rest().await;
    let backup = backup(&sale).await;
    let known = sold(&sale, 100).await;
    let left: u64 = sale.available().await.iter().sum();
    let reacquired = reacquired(
        &sale,
        known
            .iter()
            .find(|known| known.state == OrderState::Expired)
            .unwrap(),
    )
    .await;
    let known: Vec<_> = known
        .into_iter()
        .filter(|known| known.id != reacquired.id)
        .collect();
    restore(env, &backup).await;
    heals(&sale, Instant::now()).await;
    assert_eq!(sale.recorded(reacquired.id).await, reacquired);
    let again = sale
        .try_order(stock::Reservation {
            order: reacquired.take_id(),
            ..sale.reservation(&reacquired.buyer, "key", 1)
        })
        .await
        .unwrap();
    assert!(is_held(&again), "{again:?}");
    assert_eq!(
        sale.order(&reacquired.buyer, "key", 1).await,
        Outcome::Released,
        "its first attempt was released"
    );
    is_restored(&sale, &known, left - 1).await;
}

/// Reacquires the units of an expired order, as a late payment does.
async fn reacquired(sale: &Sale, expired: &Known) -> Order {
    let reservation = stock::Reservation {
        order: expired.id.reacquire(1),
        ..sale.reservation(&buyer(expired.n), "key", 1)
    };
    assert!(is_held(&sale.try_order(reservation).await.unwrap()));
    eventually("recording the reacquire", async || {
        sale.state(expired.id).await == Some(OrderState::Held)
    })
    .await;
    sale.comes_to_rest().await;
    sale.recorded(expired.id).await
}

/// Orders that ended in the ledger and were not released; and orders whose release was lost before
/// it was recorded.
#[tested(on_both_databases(crate::env::run_on_own_redis))]
async fn units_that_were_returning_when_redis_was_emptied_are_returned(env: &Arc<TestEnv>) {
    let sale = env.sell_with(60, 3, two_each).await;
    for n in 0..30 {
        assert!(is_held(&sale.order(&buyer(n), "key", 1).await));
    }
    sale.record_once().await;
    for n in 0..20 {
        let order = sale
            .step(sale.order_id(&buyer(n), "key"), OrderState::Cancelled)
            .await;
        if n % 2 == 0 {
            sale.release(&order).await.unwrap();
        }
    }
    empty(&sale).await;
    env.record().await;
    env.reconcile(quick()).await;
    heals(&sale, Instant::now()).await;
    assert_eq!(sale.available().await.iter().sum::<u64>(), 50);
    for n in 0..20 {
        assert_eq!(sale.order(&buyer(n), "key", 1).await, Outcome::Released);
        assert!(is_held(&sale.order(&buyer(n), "second", 1).await));
    }
}

#[tested(on_both_databases(crate::env::run_on_own_redis))]
async fn units_in_transfer_when_redis_was_emptied_arrive_once(env: &Arc<TestEnv>) {
    let sale = env.sell(90, 3).await;
    for n in 0..9 {
        assert!(is_held(&sale.order(&buyer(n), "key", 1).await));
    }
    sale.record_once().await;
    let plan = |from, to, units| ledger::TransferPlan {
        id: domain::TransferId::random(),
        from,
        to,
        units,
    };
    let plans = [plan(0, 1, 5), plan(1, 2, 6), plan(2, 0, 7)];
    sale.ledger.claim_item(&sale.item.id, 1).await.unwrap();
    sale.ledger
        .plan_transfers(&sale.item.id, 1, &plans)
        .await
        .unwrap();
    // The first transfer is only planned; the second has left and is recorded; the third has left
    // and is not recorded.
    sale.stock
        .transfer_out(&sale.segment(1), plans[1].id, 6, 1)
        .await
        .unwrap();
    sale.record_once().await;
    sale.stock
        .transfer_out(&sale.segment(2), plans[2].id, 7, 1)
        .await
        .unwrap();
    empty(&sale).await;
    env.record().await;
    env.reconcile(quick()).await;
    heals(&sale, Instant::now()).await;
    assert_eq!(sale.available().await.iter().sum::<u64>(), 81);
}

/// `--lock redis` keeps the lock where the stock is: its tokens restart, and the item's row has
/// higher ones.
#[tested(on_both_databases(crate::env::run_on_own_redis))]
async fn a_lock_that_was_lost_with_the_stock_does_not_block_its_repair(env: &Arc<TestEnv>) {
    env.record().await;
    let sale = env.sell_with(60, 2, two_each).await;
    let known = sold(&sale, 20).await;
    let left = sale.available().await.iter().sum();
    sale.ledger.claim_item(&sale.item.id, 1000).await.unwrap();
    env.reconcile_with(
        quick(),
        Arc::new(RedisLockBuilder::new(&env.redis_url).build().unwrap()),
    )
    .await;
    empty(&sale).await;
    heals(&sale, Instant::now()).await;
    is_restored(&sale, &known, left).await;
}

#[tested(on_both_databases(crate::env::run_on_own_redis))]
async fn orders_that_arrive_during_a_repair_are_answered(env: &Arc<TestEnv>) {
    env.record().await;
    env.reconcile(quick()).await;
    let sale = env.sell(1000, 4).await;
    sale.hold_many(0..200).await;
    let selling = async {
        let mut waves = Vec::new();
        for wave in 0..20 {
            let orders = (0..10).map(|n| {
                let sale = Arc::clone(&sale);
                async move {
                    let buyer = buyer(200 + wave * 10 + n);
                    // While the segment is gone its orders fail: repeat them, as clients do.
                    let deadline = Deadline::start();
                    loop {
                        match sale.try_order(sale.reservation(&buyer, "key", 1)).await {
                            Ok(outcome) => return outcome,
                            Err(error) => deadline.check(error),
                        }
                        tokio::time::sleep(Duration::from_millis(20)).await;
                    }
                }
            });
            waves.extend(futures::future::join_all(orders).await);
        }
        waves
    };
    let breaking = async {
        tokio::time::sleep(Duration::from_millis(30)).await;
        empty(&sale).await;
        heals(&sale, Instant::now()).await;
    };
    let (outcomes, ()) = tokio::join!(selling, breaking);
    assert!(outcomes.iter().all(is_held), "{outcomes:?}");
    sale.comes_to_rest().await;
    let recorded = sale.orders().await;
    // Orders taken just before Redis was emptied may be lost: their buyers had no acknowledgement,
    // and repeat them.
    for n in 200..400 {
        assert!(is_held(&sale.order(&buyer(n), "key", 1).await));
    }
    sale.comes_to_rest().await;
    eprintln!("{recorded:?} before all buyers repeated their orders");
    assert_eq!(sale.orders().await, [("held".to_owned(), 400)].into());
}
