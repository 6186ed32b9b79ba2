//! A server that does not answer may have many items, and each look at one of them waits for its time
//! limit. The workers repeat few of these looks at a time, and all of them in turn.

use std::{collections::HashSet, sync::Arc, time::Duration};

use domain::{Item, ItemId, ItemState};
use ledger::{ItemChange, Ledger};
use recorder::RecorderSettings;
use stock::{InspectionEntries, Stock};
use testbed::{Redis, patient_connection};
use testkit::{
    Backend, Database, TestEnv, eventually, fresh_item_id, on_both_databases, show_logs, tested,
};

use crate::{
    env::{quick, record_on},
    unresponsive::UnresponsiveLedger,
};

/// Limit of each look.
const RESPONSE_TIMEOUT: Duration = Duration::from_millis(300);
/// More than the workers look at concurrently, or repeat in one round.
const ITEMS: usize = 80;
/// Items that the reconciler looks at concurrently.
const ITEM_CONCURRENCY: usize = 16;
/// Items of one segment that one sweep polls of those whose last poll has failed.
const REPEATS_MAX: usize = 32;

/// A test with a server that it may pause, and a ledger that notes which items the workers look at.
async fn run<T>(backend: Backend, test: T)
where
    T: AsyncFnOnce(&TestEnv, &Stock, Arc<UnresponsiveLedger>, &Redis),
{
    show_logs();
    let (redis, database) = (Redis::start().await.unwrap(), Database::new(backend).await);
    let env = TestEnv::at(database, redis.url()).await;
    // For what the test itself does.
    let patient = env.stock().await;
    let env = env.with_response_timeout(RESPONSE_TIMEOUT);
    let ledger = UnresponsiveLedger::that_counts(env.ledger().await);
    test(&env, &patient, ledger, &redis).await;
    env.stop_services().await;
}

/// Items on sale.
async fn open_items(stock: &Stock, ledger: &dyn Ledger) -> Vec<Item> {
    let items: Vec<_> = (0..ITEMS)
        .map(|_| testkit::item(fresh_item_id(), 10, 1))
        .collect();
    for item in &items {
        ledger.create_item(item).await.unwrap();
        stock.open(item).await.unwrap();
    }
    items
}

/// Has every item looked at.
async fn change(ledger: &dyn Ledger, items: &[Item]) {
    let paused = ItemChange {
        state: Some(ItemState::Paused),
        ..ItemChange::default()
    };
    for item in items {
        let changed = ledger.change_item(&item.id, &paused, None, "admin").await;
        changed.unwrap();
    }
}

async fn are_paused(stock: &Stock, ledger: &dyn Ledger, items: &[Item]) -> bool {
    for item in items {
        let item = ledger.item(&item.id).await.unwrap().unwrap();
        let segments = stock.item(&item);
        let Ok(segments) = segments.inspect(InspectionEntries::None).await else {
            return false;
        };
        if segments
            .iter()
            .any(|segment| segment.state != ItemState::Paused)
        {
            return false;
        }
    }
    true
}

async fn no_more_looks(ledger: &UnresponsiveLedger) {
    eventually("rounds without a look at an item", async || {
        ledger.take_looks();
        ledger.more_rounds(5).await;
        ledger.take_looks().is_empty()
    })
    .await;
}

async fn no_more_polls(ledger: &UnresponsiveLedger) {
    eventually("sweeps without a poll", async || {
        ledger.take_polls();
        ledger.more_sweeps(2).await;
        ledger.take_polls().is_empty()
    })
    .await;
}

#[tested(on_both_databases(crate::silent::run))]
async fn rounds_go_on_while_the_items_of_a_server_fail(
    env: &TestEnv,
    stock: &Stock,
    ledger: Arc<UnresponsiveLedger>,
    redis: &Redis,
) {
    let items = open_items(stock, &*ledger).await;
    record_on(env, env.ledger().await, RecorderSettings::default()).await;
    env.reconcile_on(Arc::clone(&ledger) as _, quick()).await;
    no_more_looks(&ledger).await;
    redis.pause().await.unwrap();
    change(&*ledger, &items).await;
    let mut looked_at = HashSet::<ItemId>::new();
    eventually("a look at each item", async || {
        looked_at.extend(ledger.take_looks());
        looked_at.len() == ITEMS
    })
    .await;
    let (mut again, mut looks, before) = (HashSet::new(), 0, ledger.rounds());
    eventually("another look at each item", async || {
        let taken = ledger.take_looks();
        looks += taken.len();
        again.extend(taken);
        again.len() == ITEMS
    })
    .await;
    let rounds = ledger.rounds() - before + 1;
    assert!(
        looks <= rounds * ITEM_CONCURRENCY,
        "{looks} in {rounds} rounds"
    );
    redis.resume().await.unwrap();
    let mut at_last = HashSet::<ItemId>::new();
    eventually("a look at each item again", async || {
        at_last.extend(ledger.take_looks());
        at_last.len() == ITEMS
    })
    .await;
    no_more_looks(&ledger).await;
}

/// Renames keys of the items, each from one kind to another.
async fn rename(redis: &Redis, items: &[Item], [from, to]: [&str; 2]) {
    let mut connection = patient_connection(&redis.url()).await.unwrap();
    for item in items {
        let [from, to] = [from, to].map(|kind| format!("{kind}:{{{}:0}}", item.id));
        let () = redis::cmd("RENAME")
            .arg(&[from, to])
            .query_async(&mut connection)
            .await
            .unwrap();
    }
}

/// Items of which each poll fails: their outboxes are no hashes. A server that answers with an error
/// does not hold up the sweep, so that polls are counted.
async fn items_whose_polls_fail(
    env: &TestEnv,
    stock: &Stock,
    ledger: &Arc<UnresponsiveLedger>,
    redis: &Redis,
) -> Vec<Item> {
    let items = open_items(stock, &**ledger).await;
    record_on(env, Arc::clone(ledger) as _, RecorderSettings::default()).await;
    no_more_polls(ledger).await;
    rename(redis, &items, ["stock", "kept"]).await;
    rename(redis, &items, ["outbox", "stock"]).await;
    change(&**ledger, &items).await;
    let mut polled = HashSet::<ItemId>::new();
    eventually("a poll of each item", async || {
        polled.extend(ledger.take_polls().into_iter().flatten());
        polled.len() == ITEMS
    })
    .await;
    // The changes of some may be read only now.
    ledger.more_sweeps(2).await;
    ledger.take_polls();
    items
}

async fn have_polls_succeed(redis: &Redis, items: &[Item]) {
    rename(redis, items, ["stock", "outbox"]).await;
    rename(redis, items, ["kept", "stock"]).await;
}

#[tested(on_both_databases(crate::silent::run))]
async fn a_sweep_repeats_some_of_the_polls_that_have_failed(
    env: &TestEnv,
    stock: &Stock,
    ledger: Arc<UnresponsiveLedger>,
    redis: &Redis,
) {
    let items = items_whose_polls_fail(env, stock, &ledger, redis).await;
    let (mut again, mut largest) = (HashSet::<ItemId>::new(), 0);
    eventually("another poll of each item", async || {
        let polls = ledger.take_polls();
        largest = polls.iter().map(Vec::len).fold(largest, usize::max);
        again.extend(polls.into_iter().flatten());
        again.len() == ITEMS
    })
    .await;
    assert!(largest <= REPEATS_MAX, "{largest}");
    have_polls_succeed(redis, &items).await;
    eventually("the changes reach the segments", async || {
        are_paused(stock, &*ledger, &items).await
    })
    .await;
    no_more_polls(&ledger).await;
}

/// An item may be archived after a poll of it has failed, and its segments are polled no more.
#[tested(on_both_databases(crate::silent::run))]
async fn archived_items_keep_no_place_among_the_polls_that_have_failed(
    env: &TestEnv,
    stock: &Stock,
    ledger: Arc<UnresponsiveLedger>,
    redis: &Redis,
) {
    let items = items_whose_polls_fail(env, stock, &ledger, redis).await;
    let (archived, others) = items.split_at(REPEATS_MAX + 1);
    let ids: Vec<_> = archived
        .iter()
        .map(|item| format!("'{}'", item.id))
        .collect();
    let archive = format!(
        "UPDATE segments SET archived = TRUE WHERE item IN ({})",
        ids.join(", ")
    );
    assert_eq!(
        env.database.execute(&archive).await.unwrap(),
        ids.len() as u64
    );
    let ids =
        |items: &[Item]| -> HashSet<ItemId> { items.iter().map(|item| item.id.clone()).collect() };
    let (archived, other_ids) = (ids(archived), ids(others));
    eventually(
        "polls of all others, and of none that is archived",
        async || {
            ledger.take_polls();
            ledger.more_sweeps(10).await;
            let polled: HashSet<_> = ledger.take_polls().into_iter().flatten().collect();
            polled.is_superset(&other_ids) && polled.is_disjoint(&archived)
        },
    )
    .await;
    have_polls_succeed(redis, &items).await;
    eventually("the changes reach the segments", async || {
        are_paused(stock, &*ledger, others).await
    })
    .await;
}
