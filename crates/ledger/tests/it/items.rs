//! Items are created once, and each change checks their version.

use std::{collections::HashMap, sync::Arc};

use domain::{Durability, Item, ItemId, ItemState, ItemTag, Window};
use jiff::Timestamp;
use ledger::{ByOrders, Changed, Created, ItemChange};
use testkit::{on_both_databases, tested};
use tokio::{sync::Barrier, task::JoinSet};

use crate::env::{AnyLedger, TestEnv, id, item, opened, order, record, segment, taken};

fn to(state: ItemState) -> ItemChange {
    ItemChange {
        state: Some(state),
        ..ItemChange::default()
    }
}

/// The item after the change.
async fn changed(ledger: &impl AnyLedger, item: &Item, change: &ItemChange) -> Item {
    match ledger
        .change_item(&item.id, change, None, "admin")
        .await
        .unwrap()
    {
        Changed::Item(item) => item,
        other => panic!("{other:?}"),
    }
}

#[tested(on_both_databases(crate::env::run))]
async fn creating_an_item_again_finds_it_and_another_body_is_different(env: &TestEnv) {
    let vase = item("vase", 10, 3);
    assert_eq!(env.try_create(&vase).await, Created::New(vase.clone()));
    assert_eq!(env.try_create(&vase).await, Created::Same(vase.clone()));

    let paused = changed(env, &vase, &to(ItemState::Paused)).await;
    assert_eq!(
        env.try_create(&vase).await,
        Created::Same(paused),
        "with its current values"
    );

    let others = [
        Item {
            title: "Other".into(),
            ..vase.clone()
        },
        Item {
            stock: 11,
            ..vase.clone()
        },
        Item {
            price: 1,
            ..vase.clone()
        },
        Item {
            currency: "USD".into(),
            ..vase.clone()
        },
        Item {
            limit_per_buyer: None,
            ..vase.clone()
        },
        Item {
            segments: 2,
            ..vase.clone()
        },
        Item {
            window: Window {
                opens_at: Some(Timestamp::UNIX_EPOCH),
                closes_at: None,
            },
            ..vase.clone()
        },
        Item {
            hold_seconds: 1,
            ..vase.clone()
        },
        Item {
            durability: Durability::Accepted,
            ..vase.clone()
        },
    ];
    for other in others {
        assert_eq!(
            env.try_create(&other).await,
            Created::Different,
            "{other:?}"
        );
    }
    let shares: Vec<_> = env
        .segments(&vase.id)
        .await
        .unwrap()
        .into_iter()
        .map(|row| (row.key.segment, row.available))
        .collect();
    assert_eq!(shares, [(0, 4), (1, 3), (2, 3)]);
}

#[tested(on_both_databases(crate::env::run))]
async fn concurrent_creations_of_an_item_create_it_once(env: &TestEnv) {
    let barrier = Arc::new(Barrier::new(6));
    let mut creators = JoinSet::new();
    for creator in 0..6 {
        let (ledger, barrier) = (env.ledger().await, Arc::clone(&barrier));
        // The last two requests use the same name for different items.
        let vase = item("vase", if creator < 4 { 1000 } else { 999 }, 16);
        creators.spawn(async move {
            barrier.wait().await;
            (vase.stock, ledger.create_item(&vase).await.unwrap())
        });
    }
    let created = creators.join_all().await;
    let stock = created
        .iter()
        .find_map(|(stock, created)| matches!(created, Created::New(_)).then_some(*stock))
        .unwrap();
    assert_eq!(
        created
            .iter()
            .filter(|(_, created)| matches!(created, Created::New(_)))
            .count(),
        1
    );
    for (asked, created) in created {
        assert_eq!(matches!(created, Created::Different), asked != stock);
    }
    let again = env.try_create(&item("vase", stock, 16)).await;
    assert!(
        matches!(again, Created::Same(_)),
        "the audit must find every segment"
    );
}

#[tested(on_both_databases(crate::env::run))]
async fn an_item_reads_back_unchanged(env: &TestEnv) {
    let at = |ms| Some(Timestamp::from_millisecond(ms).unwrap());
    let windows = [
        (None, None),
        (at(1_763_712_345_678), None),
        (None, at(1_763_712_345_001)),
        (at(1), at(4_102_444_800_999)),
    ];
    for (number, (opens_at, closes_at)) in windows.into_iter().enumerate() {
        let created = Item {
            window: Window {
                opens_at,
                closes_at,
            },
            stock: Item::MAX_STOCK,
            limit_per_buyer: None,
            durability: Durability::Accepted,
            state: ItemState::Paused,
            epoch: 7,
            ..item(&format!("vase-{number}"), 0, 1)
        };
        assert_eq!(
            env.try_create(&created).await,
            Created::New(created.clone())
        );
        assert_eq!(env.item(&created.id).await.unwrap(), Some(created.clone()));
        assert_eq!(env.items_tagged(created.id.tag()).await.unwrap(), [created]);
    }
    let missing = ItemId::new("missing").unwrap();
    assert_eq!(env.item(&missing).await.unwrap(), None);
    assert_eq!(env.segments(&missing).await.unwrap(), []);
    assert!(env.totals(&missing).await.unwrap().is_none());
    assert_eq!(env.items_tagged(ItemTag(0)).await.unwrap(), []);
}

#[tested(on_both_databases(crate::env::run))]
async fn a_change_of_state_raises_the_epoch_once(env: &TestEnv) {
    let vase = env.create("vase", 1, 1).await;
    let mut expected = vase.clone();
    for (state, epoch) in [
        (ItemState::Open, 1),
        (ItemState::Paused, 2),
        (ItemState::Paused, 2),
        (ItemState::Open, 3),
        (ItemState::Closed, 4),
    ] {
        expected = Item {
            state,
            epoch,
            version: epoch,
            ..expected
        };
        assert_eq!(changed(env, &vase, &to(state)).await, expected);
        assert_eq!(env.item(&vase.id).await.unwrap().as_ref(), Some(&expected));
    }
    let missing = ItemId::new("missing").unwrap();
    assert_eq!(
        env.change(&missing, &to(ItemState::Open)).await,
        Changed::NoItem
    );
}

#[tested(on_both_databases(crate::env::run))]
async fn concurrent_changes_to_one_state_raise_the_epoch_once(env: &TestEnv) {
    let vase = env.create("vase", 1, 1).await;
    for (round, state) in [ItemState::Paused, ItemState::Open, ItemState::Closed]
        .into_iter()
        .enumerate()
    {
        let barrier = Arc::new(Barrier::new(4));
        let mut changers = JoinSet::new();
        for _ in 0..4 {
            let (ledger, barrier, vase) = (env.ledger().await, Arc::clone(&barrier), vase.clone());
            changers.spawn(async move {
                barrier.wait().await;
                changed(&ledger, &vase, &to(state)).await
            });
        }
        for changed in changers.join_all().await {
            assert_eq!((changed.state, changed.epoch), (state, round as u64 + 2));
        }
    }
}

#[tested(on_both_databases(crate::env::run))]
async fn items_that_share_a_tag_are_both_found_and_kept_apart(env: &TestEnv) {
    let [one, other] = names_with_one_tag();
    let one = env.create(&one, 5, 1).await;
    let other = env.create(&other, 9, 1).await;
    record(
        env,
        &segment(&one, 0),
        vec![opened(&one, 0), taken(id(2, 0), vec![order(&one, 0, 2)])],
    )
    .await;
    record(
        env,
        &segment(&other, 0),
        vec![
            opened(&other, 0),
            taken(id(2, 0), vec![order(&other, 1, 4)]),
        ],
    )
    .await;
    assert_eq!(env.items_tagged(one.id.tag()).await.unwrap().len(), 2);
    for (item, held) in [(one, 2), (other, 4)] {
        let totals = env.totals(&item.id).await.unwrap().unwrap();
        let by_orders = ByOrders {
            held,
            ..ByOrders::default()
        };
        assert_eq!(
            (totals.by_orders, totals.orders_by_state),
            (vec![by_orders], vec![("held".to_owned(), 1)])
        );
    }
}

/// Two names with the same tag; a hundred thousand names contain such a pair.
fn names_with_one_tag() -> [String; 2] {
    let mut names = HashMap::new();
    for n in 0.. {
        let name = format!("item-{n}");
        if let Some(other) = names.insert(ItemId::new(&name).unwrap().tag(), name.clone()) {
            return [other, name];
        }
    }
    unreachable!()
}
