//! The end of an item in the ledger: it is archived as it was audited or not at all, and nothing
//! changes it afterwards but refunds.

use std::sync::Arc;

use domain::{Item, ItemState, OrderState, TransferId};
use ledger::{Archival, Changed, Erased, ItemChange, LedgerError, StockChange, StockPart};
use serde_json::json;
use testkit::{Backend, buyer, on_both_databases, tested};
use tokio::{sync::Barrier, task::JoinSet};

use crate::env::{
    AnyLedger, TestEnv, counters, happen, order, order_id, release, segment, step, take,
};

async fn set(ledger: &impl AnyLedger, item: &Item, state: ItemState) -> Item {
    let change = ItemChange {
        state: Some(state),
        ..ItemChange::default()
    };
    match ledger.change_item(&item.id, &change, None, "admin").await {
        Ok(Changed::Item(item)) => item,
        other => panic!("{other:?}"),
    }
}

/// The archival of the item as it is now, under `token`.
async fn archival(ledger: &impl AnyLedger, item: &Item, token: u64) -> Archival {
    ledger.claim_item(&item.id, token).await.unwrap();
    Archival {
        item: ledger.item(&item.id).await.unwrap().unwrap(),
        rows: ledger.segments(&item.id).await.unwrap(),
        report: json!({ "ok": true }),
        actor: "eve".into(),
        token,
    }
}

/// A closed item of ten units in one segment, with a paid order of three.
async fn sold(env: &TestEnv, name: &str) -> Item {
    let item = env.create_unlimited(name, 10, 1).await;
    let taken = take([order(&item, 0, 3)]);
    happen(env, &segment(&item, 0), [taken]).await;
    let paid = step(env, order_id(&item, 0), OrderState::Confirmed).await;
    assert!(paid.is_some());
    set(env, &item, ItemState::Closed).await
}

#[tested(on_both_databases(crate::env::run))]
async fn an_archived_item_is_out_of_the_workers_lists_and_cannot_change(env: &TestEnv) {
    let item = sold(env, "vase").await;
    let live = env.changed_items(None).await.unwrap().remove(0).item;
    assert!(live.closed_at.is_some(), "{live:?}");
    assert!(!env.has_open_work(&item.id).await.unwrap());
    assert_eq!(env.items_at_work().await.unwrap(), []);
    assert!(env.final_audit(&item.id).await.unwrap().is_none());
    let archival = archival(env, &item, 7).await;
    for _ in 0..2 {
        assert!(env.archive(&archival).await.unwrap(), "a repeat too");
    }
    let archived = env.item(&item.id).await.unwrap().unwrap();
    let marks = (archived.state, archived.epoch, archived.version);
    assert_eq!(marks, (ItemState::Archived, 3, 3));
    let audit = env.final_audit(&item.id).await.unwrap().unwrap();
    assert_eq!((&*audit.actor, audit.token), ("eve", 7));
    assert_eq!(audit.report, json!({ "ok": true }));
    assert_eq!(env.checkpoints().await.unwrap(), []);
    let live = env.changed_items(None).await.unwrap().remove(0).item;
    assert_eq!(live.config.state, ItemState::Archived);
    let fenced = env.note_keys_removed(&item.id, 6).await;
    assert!(
        matches!(fenced, Err(LedgerError::Fenced { .. })),
        "{fenced:?}"
    );
    for _ in 0..2 {
        env.note_keys_removed(&item.id, 7).await.unwrap();
    }
    assert_eq!(env.changed_items(None).await.unwrap(), []);

    for state in [ItemState::Open, ItemState::Closed] {
        let change = ItemChange {
            state: Some(state),
            ..ItemChange::default()
        };
        let refused = env.change_item(&item.id, &change, None, "admin").await;
        assert_eq!(refused.unwrap(), Changed::Archived(archived.clone()));
    }
    let part = StockPart {
        transfer: TransferId::random(),
        segment: 0,
        units: 5,
    };
    let more = StockChange::TopUp(vec![part]);
    let refused = env.change_stock(&item.id, &more, None, "admin").await;
    assert_eq!(refused.unwrap(), Changed::Archived(archived.clone()));
    assert_eq!(env.open_transfers(None).await.unwrap(), []);
    let refused = env.request_archive(&item.id, None, "admin").await;
    assert_eq!(refused.unwrap(), Changed::Archived(archived));
    step(env, order_id(&item, 0), OrderState::Refunded).await;
    assert_eq!(counters(env, &segment(&item, 0)).await, [10, 0, 0, 0]);
}

#[tested(on_both_databases(crate::env::run))]
async fn an_item_with_anything_open_is_not_archived(env: &TestEnv) {
    let (item, key) = (
        env.create_unlimited("vase", 10, 1).await,
        segment(&env.create("jug", 10, 1).await, 0),
    );
    let is_archived = async |token| {
        let archival = archival(env, &item, token).await;
        env.archive(&archival).await.unwrap()
    };
    assert!(!is_archived(1).await, "it is open");
    let first = segment(&item, 0);
    happen(env, &first, [take([order(&item, 0, 3)])]).await;
    set(env, &item, ItemState::Closed).await;
    assert!(!is_archived(2).await, "an order is held");
    step(env, order_id(&item, 0), OrderState::Cancelled).await;
    assert!(!is_archived(3).await, "units are on their way back");
    let before = archival(env, &item, 4).await;
    happen(env, &first, [release([order(&item, 0, 3)])]).await;
    assert!(!env.archive(&before).await.unwrap(), "a row has changed");
    let part = StockPart {
        transfer: TransferId::random(),
        segment: 0,
        units: 5,
    };
    let fewer = StockChange::Withdraw(vec![part]);
    env.change_units(&item.id, &fewer).await;
    assert!(!is_archived(5).await, "a transfer is open");
    assert!(env.final_audit(&item.id).await.unwrap().is_none());
    assert_eq!(counters(env, &key).await, [10, 0, 0, 0]);
}

#[tested(on_both_databases(crate::env::run))]
async fn a_refund_and_an_archive_at_once_leave_every_unit_counted(env: &TestEnv) {
    let ledger = env.ledger().await;
    for round in 0..20 {
        let item = sold(env, &format!("vase-{round}")).await;
        let archival = archival(&ledger, &item, 1).await;
        let (barrier, order) = (Arc::new(Barrier::new(2)), order_id(&item, 0));
        let (other, meet) = (env.ledger().await, Arc::clone(&barrier));
        let refunding = tokio::spawn(async move {
            meet.wait().await;
            step(&other, order, OrderState::Refunded).await
        });
        barrier.wait().await;
        let archived = ledger.archive(&archival).await.unwrap();
        assert!(refunding.await.unwrap().is_some());
        // Either the refund came first and the archive was refused, or its units are available.
        let expected = if archived {
            [10, 0, 0, 0]
        } else {
            [7, 0, 0, 3]
        };
        assert_eq!(counters(&ledger, &segment(&item, 0)).await, expected);
        env.audit_now(&item.id).await;
    }
}

#[tested(on_both_databases(crate::env::run))]
async fn concurrent_erasures_erase_each_order_once(env: &TestEnv) {
    let ledger = env.ledger().await;
    let mut erasing = JoinSet::new();
    for n in 0..8 {
        let item = sold(env, &format!("vase-{n}")).await;
        let archival = archival(&ledger, &item, 1).await;
        assert!(ledger.archive(&archival).await.unwrap());
    }
    for _ in 0..4 {
        let ledger = env.ledger().await;
        erasing.spawn(async move { ledger.erase_buyer(&buyer(0), "eve").await.unwrap() });
    }
    let mut orders = 0;
    for erased in erasing.join_all().await {
        let Erased::Done {
            orders: some,
            kept: 0,
        } = erased
        else {
            panic!("{erased:?}");
        };
        orders += some;
    }
    assert_eq!(orders, 8);
    let held = env.create_unlimited("jug", 10, 1).await;
    happen(&ledger, &segment(&held, 0), [take([order(&held, 0, 1)])]).await;
    let refused = ledger.erase_buyer(&buyer(0), "eve").await.unwrap();
    assert_eq!(refused, Erased::Held { orders: 1 });
}

/// Orders of the buyer at an item, of which a page of an erasure reads every other one.
async fn add_orders(env: &TestEnv, item: &Item, first: usize, count: usize) {
    let number = format!("i * 2 + {first}");
    let (id, now) = match env.backend {
        Backend::Sqlite => (format!("unhex(printf('%032x', {number}))"), "0"),
        Backend::Postgres => (format!("lpad(to_hex({number}), 32, '0')::uuid"), "now()"),
    };
    let add = format!(
        "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {count}) \
         INSERT INTO orders (id, item, segment, buyer, quantity, state, expires_at) \
         SELECT {id}, '{}', 0, '{}', 1, 'cancelled', {now} FROM n",
        item.id,
        buyer(0)
    );
    assert_eq!(env.sql(&add).await, count as u64);
}

#[tested(on_both_databases(crate::env::run))]
async fn a_buyer_of_many_orders_is_erased_page_by_page(env: &TestEnv) {
    const ORDERS: usize = 700;
    let item = sold(env, "vase").await;
    let archival = archival(env, &item, 1).await;
    assert!(env.archive(&archival).await.unwrap());
    let open = env.create_unlimited("jug", 10, 1).await;
    for (first, item) in [(0, &item), (1, &open)] {
        add_orders(env, item, first, ORDERS).await;
    }
    let erased = env.erase_buyer(&buyer(0), "eve").await.unwrap();
    let (orders, kept) = (ORDERS as u64 + 1, ORDERS as u64);
    assert_eq!(erased, Erased::Done { orders, kept });
    let left = async |item: &Item| {
        let named = format!("buyer = '{}' AND item = '{}'", buyer(0), item.id);
        env.sql(&format!(
            "UPDATE orders SET version = version WHERE {named}"
        ))
        .await
    };
    assert_eq!([left(&item).await, left(&open).await], [0, kept]);
    let journal = env.journal(&item.id, 100).await.unwrap();
    let entries = journal.iter().map(|entry| &entry.entry);
    let noted = entries.filter(|entry| entry.action == "erase_buyer");
    let noted: Vec<_> = noted.map(|entry| entry.after["orders"].as_u64()).collect();
    assert!(noted.len() > 2, "{noted:?}");
    assert_eq!(noted.into_iter().flatten().sum::<u64>(), orders);
    let again = env.erase_buyer(&buyer(0), "eve").await.unwrap();
    assert_eq!(again, Erased::Done { orders: 0, kept });
}

#[tested(on_both_databases(crate::env::run))]
async fn a_name_that_was_erased_follows_from_nothing_that_is_stored(env: &TestEnv) {
    // As a process of an earlier release has left it.
    let zeros = match env.backend {
        Backend::Sqlite => "zeroblob(32)",
        Backend::Postgres => "decode(repeat('00', 32), 'hex')",
    };
    let stored = format!("INSERT INTO erasure_keys (id, key) VALUES (1, {zeros})");
    assert_eq!(env.sql(&stored).await, 1);
    let mut names = Vec::new();
    for name in ["vase", "jug"] {
        let item = sold(env, name).await;
        let archival = archival(env, &item, 1).await;
        assert!(env.archive(&archival).await.unwrap());
        let erased = env.erase_buyer(&buyer(0), "eve").await.unwrap();
        assert_eq!(erased, Erased::Done { orders: 1, kept: 0 });
        let order = env.order(order_id(&item, 0)).await.unwrap().unwrap();
        names.push(order.buyer);
    }
    assert_ne!(
        names[0], names[1],
        "a stored key would make one name of one buyer"
    );
    let keys = env.sql("DELETE FROM erasure_keys").await;
    assert_eq!(keys, 0, "the key of the earlier release is gone");
    let acts = env.list_acts(None, 9).await.unwrap().rows;
    assert_eq!(acts.len(), 2);
    for entry in acts {
        let (act, text) = (&entry.act, format!("{entry:?}"));
        assert_eq!((&*act.actor, &*act.action), ("eve", "erase_buyer"));
        assert_eq!(
            (&act.subject, &act.after),
            (&None, &json!({ "orders": 1, "kept": 0 }))
        );
        assert!(!text.contains(buyer(0).as_str()), "{text}");
    }
}
