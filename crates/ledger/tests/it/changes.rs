//! Manual changes of an item: each applies to the version that it was decided on, applies once, and
//! is journalled.

use std::collections::BTreeSet;

use domain::{Item, ItemId, ItemState, Quantity, SegmentConfig, Wave, Window};
use jiff::{SignedDuration, Timestamp};
use ledger::{Changed, ItemChange, LedgerError, NewJournalEntry, StockChange, StockPart};
use serde_json::json;
use testkit::{on_both_databases, tested};

use crate::env::{TestEnv, events_of_kind, item};

fn at(ms: i64) -> Option<Timestamp> {
    Some(Timestamp::from_millisecond(ms).unwrap())
}

fn every_field() -> ItemChange {
    ItemChange {
        state: Some(ItemState::Paused),
        limit_per_buyer: Some(None),
        window: Some(Window {
            opens_at: at(1_763_712_345_678),
            closes_at: None,
        }),
        price: Some(450),
        waves: Some(vec![wave(1_763_712_345_679, 30)]),
    }
}

fn wave(at_ms: i64, units: u64) -> Wave {
    Wave {
        at: Timestamp::from_millisecond(at_ms).unwrap(),
        units,
        is_added: false,
    }
}

#[tested(on_both_databases(crate::env::run))]
async fn a_change_raises_epoch_and_version_and_is_journalled(env: &TestEnv) {
    let vase = env.create("vase", 10, 1).await;
    let changed = env.change_at(&vase.id, &every_field(), Some(1)).await;
    let expected = every_field().apply(&vase).unwrap();
    assert_eq!((expected.epoch, expected.version), (2, 2));
    assert_eq!(changed, Changed::Item(expected.clone()));
    assert_eq!(env.item(&vase.id).await.unwrap(), Some(expected));
    let journal = env.journal(&vase.id, 9).await.unwrap();
    let expected = NewJournalEntry {
        item: vase.id.clone(),
        actor: "admin".into(),
        action: "state,limit,window,price,waves".into(),
        token: None,
        before: json!({ "state": "open", "limit_per_buyer": 2, "window": { "opens_at": null, "closes_at": null }, "price": 1999, "waves": [], "epoch": 1, "version": 1 }),
        after: json!({
            "state": "paused", "limit_per_buyer": null, "window": { "opens_at": "2025-11-21T08:05:45.678Z", "closes_at": null }, "price": 450, "waves": [{ "at": "2025-11-21T08:05:45.679Z", "units": 30 }], "epoch": 2, "version": 2
        }),
    };
    assert_eq!(
        journal
            .into_iter()
            .map(|noted| noted.entry)
            .collect::<Vec<_>>(),
        [expected]
    );

    let limit = ItemChange {
        limit_per_buyer: Some(Some(Quantity::new(5).unwrap())),
        ..ItemChange::default()
    };
    env.change(&vase.id, &limit).await;
    let noted = env.journal(&vase.id, 1).await.unwrap().remove(0).entry;
    assert_eq!(
        (&*noted.action, noted.after),
        (
            "limit",
            json!({ "limit_per_buyer": 5, "epoch": 3, "version": 3 })
        ),
        "only the changed fields"
    );
}

#[tested(on_both_databases(crate::env::run))]
async fn a_repeated_change_changes_nothing(env: &TestEnv) {
    let vase = env.create("vase", 10, 1).await;
    let changed = env.change_at(&vase.id, &every_field(), Some(1)).await;
    for expected in [Some(1), Some(2), None] {
        assert_eq!(
            env.change_at(&vase.id, &every_field(), expected).await,
            changed,
            "{expected:?}"
        );
    }
    let nothing = ItemChange::default();
    assert_eq!(env.change(&vase.id, &nothing).await, changed);
    assert_eq!(env.journal(&vase.id, 9).await.unwrap().len(), 1);
}

#[tested(on_both_databases(crate::env::run))]
async fn a_change_decided_on_another_version_changes_nothing(env: &TestEnv) {
    let vase = env.create("vase", 10, 1).await;
    for expected in [0, 2] {
        let refused = env
            .change_at(&vase.id, &every_field(), Some(expected))
            .await;
        assert_eq!(refused, Changed::OtherVersion(vase.clone()));
    }
    assert_eq!(env.item(&vase.id).await.unwrap(), Some(vase.clone()));
    let missing = ItemId::new("missing").unwrap();
    assert_eq!(
        env.change_at(&missing, &every_field(), Some(1)).await,
        Changed::NoItem
    );
    assert_eq!(env.journal(&vase.id, 9).await.unwrap(), []);
}

#[tested(on_both_databases(crate::env::run))]
async fn a_repeated_creation_is_recognised_by_the_original_properties(env: &TestEnv) {
    let vase = env.create("vase", 10, 1).await;
    env.change(&vase.id, &every_field()).await;
    let part = StockPart {
        transfer: domain::TransferId::random(),
        segment: 0,
        units: 7,
    };
    let Changed::Item(now) = env
        .change_units(&vase.id, &StockChange::TopUp(vec![part]))
        .await
    else {
        panic!()
    };
    assert_eq!((now.stock, now.version), (17, 3));
    assert_eq!(
        env.create_item(&vase).await.unwrap(),
        ledger::Created::Same(now),
        "a repeat of the request that created it"
    );
    assert_eq!(
        env.create_item(&item("vase", 17, 1)).await.unwrap(),
        ledger::Created::Different,
        "the current stock of 17 does not make it another item"
    );
}

#[tested(on_both_databases(crate::env::run))]
async fn live_items_have_the_settings_of_their_segments(env: &TestEnv) {
    let vase = env.create("vase", 10, 2).await;
    env.create("jug", 10, 2).await;
    env.change(&vase.id, &every_field()).await;
    let mut configs = env.changed_items(None).await.unwrap();
    configs.sort_unstable_by(|one, other| one.item.id.cmp(&other.item.id));
    let limit = Quantity::new(2).ok();
    let jug = SegmentConfig {
        state: ItemState::Open,
        limit_per_buyer: limit,
        window: Window::default(),
        price: None,
        epoch: 1,
    };
    let change = every_field();
    let vase = SegmentConfig {
        state: ItemState::Paused,
        limit_per_buyer: None,
        window: change.window.unwrap(),
        price: change.price,
        epoch: 2,
    };
    assert_eq!(
        configs
            .into_iter()
            .map(|row| row.item.config)
            .collect::<Vec<_>>(),
        [jug, vase]
    );
}

#[tested(on_both_databases(crate::env::run))]
async fn the_journal_keeps_every_entry_and_lists_the_newest_first(env: &TestEnv) {
    let vase = env.create("vase", 10, 1).await;
    let jug = env.create("jug", 10, 1).await;
    let entry = |n: u64| NewJournalEntry {
        item: if n.is_multiple_of(2) {
            vase.id.clone()
        } else {
            jug.id.clone()
        },
        actor: "安娜 \"O'Neill\" \\".into(),
        action: format!("action-{n}"),
        token: (n > 2).then_some(n),
        before: json!(null),
        after: json!({ "nested": [n, "\\ \" 花瓶", 1.5, true, { "empty": {} }] }),
    };
    let began = Timestamp::now();
    for n in 0..6 {
        env.note(&entry(n)).await.unwrap();
    }
    let noted = Timestamp::now();
    let journal = env.journal(&vase.id, 2).await.unwrap();
    assert_eq!(
        journal
            .iter()
            .map(|noted| noted.entry.clone())
            .collect::<Vec<_>>(),
        [entry(4), entry(2)]
    );
    assert!(journal[0].id > journal[1].id && journal[0].at >= journal[1].at);
    // The database may round.
    let second = SignedDuration::from_secs(1);
    assert!((began - second..=noted + second).contains(&journal[0].at));
    assert_eq!(env.journal(&jug.id, 9).await.unwrap().len(), 3);
    let missing = ItemId::new("missing").unwrap();
    assert_eq!(env.journal(&missing, 9).await.unwrap(), []);
    assert!(
        env.note(&NewJournalEntry {
            item: missing,
            ..entry(0)
        })
        .await
        .unwrap_err()
        .is_refused()
    );
}

#[tested(on_both_databases(crate::env::run))]
async fn an_entry_noted_once_is_in_the_journal_once(env: &TestEnv) {
    let ledger = env.ledger().await;
    let vase = env.create("vase", 10, 1).await;
    let jug = env.create("jug", 10, 1).await;
    let entry = |item: &domain::Item, action: &str| {
        let (item, actor, action) = (item.id.clone(), "payment".to_owned(), action.to_owned());
        NewJournalEntry {
            item,
            actor,
            action,
            token: None,
            before: json!(1),
            after: json!(2),
        }
    };
    assert!(!ledger.is_noted(&vase.id, "a b").await.unwrap());
    let mut writers = tokio::task::JoinSet::new();
    for _ in 0..6 {
        let (ledger, entry) = (env.ledger().await, entry(&vase, "first"));
        writers.spawn(async move { ledger.note_once(&entry, "a b").await.unwrap() });
    }
    assert_eq!(
        writers
            .join_all()
            .await
            .into_iter()
            .filter(|added| *added)
            .count(),
        1
    );
    assert!(ledger.is_noted(&vase.id, "a b").await.unwrap());
    assert!(!ledger.is_noted(&jug.id, "a b").await.unwrap());
    assert!(
        !ledger
            .note_once(&entry(&vase, "again"), "a b")
            .await
            .unwrap()
    );
    assert!(
        ledger
            .note_once(&entry(&vase, "second"), "a")
            .await
            .unwrap()
    );
    assert!(
        ledger
            .note_once(&entry(&jug, "of another"), "a b")
            .await
            .unwrap()
    );
    for _ in 0..2 {
        ledger.note(&entry(&vase, "any number")).await.unwrap();
    }
    let actions: Vec<_> = ledger
        .journal(&vase.id, 9)
        .await
        .unwrap()
        .into_iter()
        .map(|noted| noted.entry.action)
        .collect();
    assert_eq!(actions, ["any number", "any number", "second", "first"]);
    assert_eq!(ledger.journal(&jug.id, 9).await.unwrap().len(), 1);
}

#[tested(on_both_databases(crate::env::run))]
async fn a_window_that_ends_before_it_begins_is_refused(env: &TestEnv) {
    let vase = env.create("vase", 10, 1).await;
    let change = ItemChange {
        window: Some(Window {
            opens_at: at(2),
            closes_at: at(1),
        }),
        ..ItemChange::default()
    };
    let refused = env
        .change_item(&vase.id, &change, None, "admin")
        .await
        .unwrap_err();
    assert!(
        refused.is_refused() && matches!(refused, LedgerError::Database(_)),
        "{refused:?}"
    );
    assert_eq!(env.item(&vase.id).await.unwrap(), Some(vase));
}

/// A sale in two segments, with waves of 30 and of 5 units.
async fn with_waves(env: &TestEnv) -> Item {
    let with_waves = Item {
        waves: vec![wave(1_763_712_345_679, 30), wave(1_763_712_345_680, 5)],
        ..item("vase", 10, 2)
    };
    env.create_item(&with_waves).await.unwrap();
    with_waves
}

#[tested(on_both_databases(crate::env::run))]
async fn a_wave_is_added_once_by_any_number_of_reconcilers(env: &TestEnv) {
    let (vase, ledger) = (with_waves(env).await, env.ledger().await);
    assert_eq!(ledger.item(&vase.id).await.unwrap(), Some(vase.clone()));
    let mut adding = tokio::task::JoinSet::new();
    for _ in 0..6 {
        let (ledger, vase) = (env.ledger().await, vase.clone());
        adding.spawn(async move {
            for wave in [vase.waves[0], vase.waves[1], vase.waves[0]] {
                let added = ledger.add_wave(&vase, &wave, "reconciler").await;
                // SQLite has one writer at a time and no queue.
                assert!(added.is_ok() || added.is_err_and(|error| error.is_retryable()));
            }
        });
    }
    while let Some(added) = adding.join_next().await {
        added.unwrap();
    }
    for wave in &vase.waves {
        ledger.add_wave(&vase, wave, "reconciler").await.unwrap();
    }
    let after = ledger.item(&vase.id).await.unwrap().unwrap();
    assert_eq!((after.stock, after.version, after.epoch), (45, 3, 1));
    assert_eq!(after.next_wave(), None);
    let open = ledger.open_transfers(Some(&vase.id)).await.unwrap();
    let ids: BTreeSet<_> = open.iter().map(|transfer| transfer.id).collect();
    let units: u64 = open.iter().map(|transfer| transfer.quantity).sum();
    assert_eq!((ids.len(), units), (4, 35), "two segments each");
    assert_eq!(ledger.unaccounted(&vase.id).await.unwrap(), 0);
    let journal = ledger.journal(&vase.id, 9).await.unwrap();
    let actions: Vec<_> = journal.iter().map(|noted| &*noted.entry.action).collect();
    assert_eq!(actions, ["wave", "wave"]);
    let waves = events_of_kind(&ledger, "item.wave_added", 2).await;
    let mut told: Vec<_> = waves
        .iter()
        .map(|event| event.data["units"].as_u64().unwrap())
        .collect();
    told.sort_unstable();
    assert_eq!(told, [5, 30]);
}

#[tested(on_both_databases(crate::env::run))]
async fn a_replaced_wave_is_not_added(env: &TestEnv) {
    let (vase, ledger) = (with_waves(env).await, env.ledger().await);
    let [first, second] = [vase.waves[0], vase.waves[1]];
    ledger.add_wave(&vase, &first, "reconciler").await.unwrap();
    let replaced = ItemChange {
        waves: Some(vec![wave(1_763_712_345_680, 7)]),
        ..ItemChange::default()
    };
    let changed = ledger
        .change_item(&vase.id, &replaced, Some(2), "admin")
        .await
        .unwrap();
    let Changed::Item(changed) = changed else {
        panic!("{changed:?}");
    };
    let added = Wave {
        is_added: true,
        ..first
    };
    assert_eq!(changed.waves, [added, wave(1_763_712_345_680, 7)]);
    // A reconciler that read the item before.
    let stale = ledger.add_wave(&vase, &second, "reconciler").await.unwrap();
    assert_eq!(stale, Changed::Item(changed.clone()), "unchanged");
    assert_eq!(ledger.item(&vase.id).await.unwrap(), Some(changed));
    assert_eq!(ledger.unaccounted(&vase.id).await.unwrap(), 0);
}
