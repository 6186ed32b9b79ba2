//! The list of items that a worker keeps: it reads what has changed, and misses nothing.

use std::{collections::BTreeMap, sync::Arc};

use domain::{Item, ItemId, ItemState};
use ledger::{Archival, Changed, ItemChange, ListChanges, LiveItem, LiveItems};
use serde_json::json;
use sqlx::{Connection, PgConnection};
use testkit::{Backend, on_both_databases, tested};
use tokio::task::JoinSet;

use crate::env::{AnyLedger, TestEnv};

async fn set(ledger: &impl AnyLedger, item: &Item, state: ItemState) {
    let change = ItemChange {
        state: Some(state),
        ..ItemChange::default()
    };
    let changed = ledger.change_item(&item.id, &change, None, "admin").await;
    assert!(matches!(changed, Ok(Changed::Item(_))), "{changed:?}");
}

fn changed(id: &ItemId) -> ListChanges {
    ListChanges {
        changed: vec![id.clone()],
        ..ListChanges::default()
    }
}

#[tested(on_both_databases(crate::env::run))]
async fn a_kept_list_has_what_was_created_changed_and_ended(env: &TestEnv) {
    let mut list = LiveItems::default();
    let nothing = ListChanges::default();
    assert_eq!(list.refresh(&**env).await.unwrap(), nothing);
    let vase = env.create("vase", 10, 2).await;
    assert_eq!(list.refresh(&**env).await.unwrap(), changed(&vase.id));
    let bowl = env.create("bowl", 10, 2).await;
    assert_eq!(list.refresh(&**env).await.unwrap(), changed(&bowl.id));
    assert_eq!(list.refresh(&**env).await.unwrap(), nothing);
    set(env, &vase, ItemState::Closed).await;
    assert_eq!(list.refresh(&**env).await.unwrap(), changed(&vase.id));
    let kept = list.get(&vase.id).unwrap();
    assert_eq!(kept.config.state, ItemState::Closed);
    assert!(kept.closed_at.is_some());

    env.request_archive(&vase.id, None, "eve").await.unwrap();
    assert_eq!(list.refresh(&**env).await.unwrap(), changed(&vase.id));
    let asked = list.get(&vase.id).unwrap();
    assert_eq!(asked.archive_by.as_deref(), Some("eve"));
    env.claim_item(&vase.id, 7).await.unwrap();
    let archival = Archival {
        item: env.item(&vase.id).await.unwrap().unwrap(),
        rows: env.segments(&vase.id).await.unwrap(),
        report: json!({ "ok": true }),
        actor: "eve".into(),
        token: 7,
    };
    assert!(env.archive(&archival).await.unwrap());
    assert_eq!(list.refresh(&**env).await.unwrap(), changed(&vase.id));
    env.note_keys_removed(&vase.id, 7).await.unwrap();
    let gone = ListChanges {
        gone: vec![vase.id.clone()],
        ..ListChanges::default()
    };
    assert_eq!(list.refresh(&**env).await.unwrap(), gone);
    assert!(list.get(&vase.id).is_none() && list.get(&bowl.id).is_some());
}

/// A holder of the item's lock writes its token into the row, several times a second in a sale.
#[tested(on_both_databases(crate::env::run))]
async fn what_the_list_does_not_have_is_no_change(env: &TestEnv) {
    let item = env.create("vase", 10, 2).await;
    let mut list = LiveItems::default();
    list.refresh(&**env).await.unwrap();
    for token in 1..4 {
        env.claim_item(&item.id, token).await.unwrap();
    }
    let changes = list.refresh(&**env).await.unwrap();
    assert_eq!(changes, ListChanges::default());
}

fn sorted(list: &LiveItems) -> BTreeMap<ItemId, LiveItem> {
    let items = list.iter().map(|item| (item.id.clone(), item.clone()));
    items.collect()
}

#[tested(on_both_databases(crate::env::run))]
async fn concurrent_changes_are_all_read(env: &TestEnv) {
    let ledger = env.ledger().await;
    let mut changers = JoinSet::new();
    for n in 0..4 {
        let item = env.create(&format!("item-{n}"), 10, 2).await;
        let ledger = Arc::clone(&ledger);
        changers.spawn(async move {
            for _ in 0..6 {
                set(&ledger, &item, ItemState::Paused).await;
                set(&ledger, &item, ItemState::Open).await;
            }
            set(&ledger, &item, ItemState::Closed).await;
        });
    }
    let mut list = LiveItems::default();
    while changers.try_join_next().is_some_and(|joined| {
        joined.unwrap();
        true
    }) || !changers.is_empty()
    {
        list.refresh(&*ledger).await.unwrap();
    }
    list.refresh(&*ledger).await.unwrap();
    let mut whole = LiveItems::default();
    whole.refresh(&*ledger).await.unwrap();
    assert_eq!(sorted(&list), sorted(&whole));
}

/// A standby that lacked the last changes has become the server.
#[tested(on_both_databases(crate::env::run))]
async fn an_older_copy_of_the_ledger_is_read_as_a_whole(env: &TestEnv) {
    let vase = env.create("vase", 10, 2).await;
    let bowl = env.create("bowl", 10, 2).await;
    let mut list = LiveItems::default();
    list.refresh(&**env).await.unwrap();
    for statement in [
        "UPDATE items SET state = 'paused' WHERE id = 'vase'",
        "UPDATE items SET state = 'open' WHERE id = 'vase'",
        "UPDATE items SET epoch = 9 WHERE id = 'bowl'",
        "UPDATE item_changes SET version = 1",
    ] {
        env.sql(statement).await;
    }
    let changes = list.refresh(&**env).await.unwrap();
    assert_eq!(
        changes,
        changed(&bowl.id),
        "what differs from what was known"
    );
    assert_eq!(list.get(&bowl.id).unwrap().config.epoch, 9);
    env.sql("UPDATE items SET epoch = 1 WHERE id = 'bowl'")
        .await;
    assert!(list.get(&vase.id).is_some());
}

/// A reader that has seen a change must not miss one that began before and was committed later.
#[tokio::test]
async fn changes_are_numbered_in_the_order_in_which_they_can_be_seen() {
    crate::env::run(Backend::Postgres, async |env: &TestEnv| {
        let ledger = env.ledger().await;
        let vase = env.create("vase", 10, 2).await;
        let bowl = env.create("bowl", 10, 2).await;
        let mut list = LiveItems::default();
        list.refresh(&*ledger).await.unwrap();
        let mut slow = PgConnection::connect(env.url()).await.unwrap();
        let mut begun = slow.begin().await.unwrap();
        sqlx::query("UPDATE items SET state = 'paused' WHERE id = 'vase'")
            .execute(&mut *begun)
            .await
            .unwrap();
        set(&ledger, &bowl, ItemState::Paused).await;
        assert_eq!(list.refresh(&*ledger).await.unwrap(), changed(&bowl.id));
        begun.commit().await.unwrap();
        assert_eq!(list.refresh(&*ledger).await.unwrap(), changed(&vase.id));
    })
    .await;
}
