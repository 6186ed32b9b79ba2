//! Redis lost what was recorded: everything, a segment, a key, or all since a backup.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use domain::{Item, Order, OrderId, OrderState, Quantity};
use lock::RedisLockBuilder;
use stock::Outcome;

use crate::shop::{Sale, Shop, buyer, eventually, is_held, on_both_with_a_redis_of_its_own, quick};

on_both_with_a_redis_of_its_own!(
    an_emptied_redis_is_given_back_all_that_the_ledger_has,
    a_lost_segment_is_given_back_and_the_others_go_on,
    a_lost_key_is_given_back,
    a_restored_backup_is_brought_up_to_date,
    what_was_on_its_way_home_when_redis_was_emptied_comes_home,
    units_on_the_move_when_redis_was_emptied_arrive_once,
    a_lock_that_was_lost_with_the_stock_does_not_keep_it_from_being_mended,
    orders_that_come_while_it_is_mended_are_answered,
);

fn two_each(item: Item) -> Item {
    Item {
        limit_per_buyer: Some(Quantity::new(2).unwrap()),
        ..item
    }
}

/// An order as its buyer knows it, and where it stands.
struct Known {
    n: usize,
    id: OrderId,
    state: OrderState,
    outcome: Outcome,
}

/// Orders in every state that a segment has to remember.
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
                sale.give_back(&order).await.unwrap();
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

/// Repeats have the answers that they had, limits count what they counted, and what is left can be sold, and no more.
async fn is_as_before(sale: &Sale, known: &[Known], left: u64) {
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
        "what was given back does not count"
    );
    sale.comes_to_rest().await;
    assert_eq!(sale.available().await.iter().sum::<u64>(), left - 3);
}

async fn empty(sale: &Sale) {
    let _: String = sale.redis(&redis::cmd("FLUSHALL")).await;
}

/// Waits until it is healed, and says how long that took.
async fn heals(sale: &Sale, since: Instant) {
    sale.comes_to_rest().await;
    eprintln!("{} healed after {:?}", sale.item.id, since.elapsed());
}

async fn an_emptied_redis_is_given_back_all_that_the_ledger_has(shop: &Arc<Shop>) {
    shop.record().await;
    shop.reconcile(quick()).await;
    let sale = shop.sell_with(200, 4, two_each).await;
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
    let mended = sale.journal("mend").await;
    assert_eq!(
        (mended.len(), sale.journal("diverged").await.len()),
        (4, 4),
        "each segment, once"
    );
    is_as_before(&sale, &known, left).await;
}

async fn a_lost_segment_is_given_back_and_the_others_go_on(shop: &Arc<Shop>) {
    shop.record().await;
    shop.reconcile(quick()).await;
    let sale = shop.sell_with(200, 3, two_each).await;
    let known = sold(&sale, 60).await;
    let left = sale.available().await.iter().sum();
    let epochs = sale.epochs().await;
    let _: i64 = sale.redis(redis::cmd("DEL").arg(sale.keys(1))).await;
    heals(&sale, Instant::now()).await;
    let now = sale.epochs().await;
    assert!(now[1] > epochs[1], "{now:?} after {epochs:?}");
    assert_eq!(
        sale.journal("mend").await.len(),
        1,
        "nobody touched the others"
    );
    is_as_before(&sale, &known, left).await;
}

/// Any of them. An entry at the place of the anchor that says something else is the same.
async fn a_lost_key_is_given_back(shop: &Arc<Shop>) {
    shop.record().await;
    shop.reconcile(quick()).await;
    let sale = shop.sell_with(200, 2, two_each).await;
    let known = sold(&sale, 40).await;
    let left = sale.available().await.iter().sum();
    for (lost, kind) in ["outbox", "stock", "answers", "buyers", "walks"]
        .into_iter()
        .enumerate()
    {
        let _: i64 = sale.redis(redis::cmd("DEL").arg(sale.key(kind, 0))).await;
        eventually("mending it", async || {
            sale.journal("mend").await.len() == lost + 1
        })
        .await;
        heals(&sale, Instant::now()).await;
    }
    is_as_before(&sale, &known, left).await;
}

/// All keys as they are now.
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

async fn restore(sale: &Sale, backup: &BTreeMap<String, Vec<u8>>) {
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
    let client = redis::Client::open(sale.redis_url.lock().unwrap().clone()).unwrap();
    let _: () = pipe
        .query_async(&mut client.get_multiplexed_async_connection().await.unwrap())
        .await
        .unwrap();
}

/// Since the backup was made, orders were placed, paid, given back and taken anew.
async fn a_restored_backup_is_brought_up_to_date(shop: &Arc<Shop>) {
    shop.record().await;
    shop.reconcile(quick()).await;
    let sale = shop.sell_with(200, 4, two_each).await;
    sale.hold_many(0..10).await;
    sale.comes_to_rest().await;
    let backup = backup(&sale).await;
    let known = sold(&sale, 100).await;
    let left: u64 = sale.available().await.iter().sum();
    let retaken = retaken(
        &sale,
        known
            .iter()
            .find(|known| known.state == OrderState::Expired)
            .unwrap(),
    )
    .await;
    let known: Vec<_> = known
        .into_iter()
        .filter(|known| known.id != retaken.id)
        .collect();
    restore(&sale, &backup).await;
    heals(&sale, Instant::now()).await;
    assert_eq!(sale.recorded(retaken.id).await, retaken);
    let again = sale
        .try_order(stock::Ask {
            order: retaken.take_id(),
            ..sale.ask(&retaken.buyer, "key", 1)
        })
        .await
        .unwrap();
    assert!(is_held(&again), "{again:?}");
    assert_eq!(
        sale.order(&retaken.buyer, "key", 1).await,
        Outcome::Released,
        "its first attempt was given back"
    );
    is_as_before(&sale, &known, left - 1).await;
}

/// Takes the units of an expired order anew, as a late payment does.
async fn retaken(sale: &Sale, expired: &Known) -> Order {
    let ask = stock::Ask {
        order: expired.id.retake(1),
        ..sale.ask(&buyer(expired.n), "key", 1)
    };
    assert!(is_held(&sale.try_order(ask).await.unwrap()));
    eventually("recording the retake", async || {
        sale.state(expired.id).await == Some(OrderState::Held)
    })
    .await;
    sale.comes_to_rest().await;
    sale.recorded(expired.id).await
}

/// Ended in the ledger, given back by nobody; and given back, but lost before it was recorded.
async fn what_was_on_its_way_home_when_redis_was_emptied_comes_home(shop: &Arc<Shop>) {
    let sale = shop.sell_with(60, 3, two_each).await;
    for n in 0..30 {
        assert!(is_held(&sale.order(&buyer(n), "key", 1).await));
    }
    recorder::record_once(&sale.stock, &*sale.ledger, &sale.segments())
        .await
        .unwrap();
    for n in 0..20 {
        let order = sale
            .step(sale.order_id(&buyer(n), "key"), OrderState::Cancelled)
            .await;
        if n % 2 == 0 {
            sale.give_back(&order).await.unwrap();
        }
    }
    empty(&sale).await;
    shop.record().await;
    shop.reconcile(quick()).await;
    heals(&sale, Instant::now()).await;
    assert_eq!(sale.available().await.iter().sum::<u64>(), 50);
    for n in 0..20 {
        assert_eq!(sale.order(&buyer(n), "key", 1).await, Outcome::Released);
        assert!(is_held(&sale.order(&buyer(n), "second", 1).await));
    }
}

async fn units_on_the_move_when_redis_was_emptied_arrive_once(shop: &Arc<Shop>) {
    let sale = shop.sell(90, 3).await;
    for n in 0..9 {
        assert!(is_held(&sale.order(&buyer(n), "key", 1).await));
    }
    recorder::record_once(&sale.stock, &*sale.ledger, &sale.segments())
        .await
        .unwrap();
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
    // The first is planned only; the second has left and was recorded; the third has left, and nobody knows.
    sale.stock
        .transfer_out(&sale.segment(1), plans[1].id, 6, 1)
        .await
        .unwrap();
    recorder::record_once(&sale.stock, &*sale.ledger, &sale.segments())
        .await
        .unwrap();
    sale.stock
        .transfer_out(&sale.segment(2), plans[2].id, 7, 1)
        .await
        .unwrap();
    empty(&sale).await;
    shop.record().await;
    shop.reconcile(quick()).await;
    heals(&sale, Instant::now()).await;
    assert_eq!(sale.available().await.iter().sum::<u64>(), 81);
}

/// `--lock redis` keeps the lock where the stock is: its tokens begin anew, and the item's row knows higher ones.
async fn a_lock_that_was_lost_with_the_stock_does_not_keep_it_from_being_mended(shop: &Arc<Shop>) {
    shop.record().await;
    let sale = shop.sell_with(60, 2, two_each).await;
    let known = sold(&sale, 20).await;
    let left = sale.available().await.iter().sum();
    sale.ledger.claim_item(&sale.item.id, 1000).await.unwrap();
    shop.reconcile_with(
        quick(),
        Arc::new(RedisLockBuilder::new(&shop.redis_url).build().unwrap()),
    )
    .await;
    empty(&sale).await;
    heals(&sale, Instant::now()).await;
    is_as_before(&sale, &known, left).await;
}

async fn orders_that_come_while_it_is_mended_are_answered(shop: &Arc<Shop>) {
    shop.record().await;
    shop.reconcile(quick()).await;
    let sale = shop.sell(1000, 4).await;
    sale.hold_many(0..200).await;
    let selling = async {
        let mut waves = Vec::new();
        for wave in 0..20 {
            let orders = (0..10).map(|n| {
                let sale = Arc::clone(&sale);
                async move {
                    let buyer = buyer(200 + wave * 10 + n);
                    // While the segment is gone nothing can be said of it: asked again, as its client does.
                    let since = Instant::now();
                    loop {
                        match sale.try_order(sale.ask(&buyer, "key", 1)).await {
                            Ok(outcome) => return outcome,
                            Err(error) => {
                                assert!(since.elapsed() < Duration::from_secs(20), "{error}")
                            }
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
    // What was taken just before Redis was emptied may be lost: its buyers were not told by the ledger, and ask again.
    for n in 200..400 {
        assert!(is_held(&sale.order(&buyer(n), "key", 1).await));
    }
    sale.comes_to_rest().await;
    eprintln!("{recorded:?} before everybody asked again");
    assert_eq!(sale.orders().await, [("held".to_owned(), 400)].into());
}
