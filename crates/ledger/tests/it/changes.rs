//! Changes of an item by hand: on the version that they were decided on, once, and journalled.

use domain::{ItemId, ItemState, Quantity, SegmentConfig, Window};
use jiff::Timestamp;
use ledger::{Changed, ItemChange, LedgerError, NewJournalEntry, StockChange, StockPart};
use serde_json::json;

use crate::site::{Site, item, on_both};

on_both!(
    a_change_is_made_with_the_next_epoch_and_journalled,
    a_change_that_was_made_is_found_made,
    a_change_decided_on_another_version_changes_nothing,
    an_item_is_known_by_what_it_was_created_as,
    what_segments_should_be_at_is_what_the_item_says,
    the_journal_keeps_what_it_is_told_newest_first,
    what_is_told_once_is_in_the_journal_once,
    a_window_that_ends_before_it_begins_is_refused,
);

fn at(ms: i64) -> Option<Timestamp> {
    Some(Timestamp::from_millisecond(ms).unwrap())
}

fn all_of_it() -> ItemChange {
    ItemChange {
        state: Some(ItemState::Paused),
        limit_per_buyer: Some(None),
        window: Some(Window {
            opens_at: at(1_763_712_345_678),
            closes_at: None,
        }),
    }
}

async fn a_change_is_made_with_the_next_epoch_and_journalled(site: &Site) {
    let ledger = site.ledger().await;
    let vase = site.create(&*ledger, "vase", 10, 1).await;
    let changed = ledger
        .change_item(&vase.id, &all_of_it(), Some(1), "admin")
        .await
        .unwrap();
    let expected = all_of_it().apply(&vase).unwrap();
    assert_eq!((expected.epoch, expected.version), (2, 2));
    assert_eq!(changed, Changed::Item(expected.clone()));
    assert_eq!(ledger.item(&vase.id).await.unwrap(), Some(expected));
    let journal = ledger.journal(&vase.id, 9).await.unwrap();
    let expected = NewJournalEntry {
        item: vase.id.clone(),
        actor: "admin".into(),
        action: "state,limit,window".into(),
        token: None,
        before: json!({ "state": "open", "limit_per_buyer": 2, "window": { "opens_at": null, "closes_at": null }, "epoch": 1, "version": 1 }),
        after: json!({
            "state": "paused", "limit_per_buyer": null, "window": { "opens_at": "2025-11-21T08:05:45.678Z", "closes_at": null }, "epoch": 2, "version": 2
        }),
    };
    assert_eq!(
        journal
            .into_iter()
            .map(|said| said.entry)
            .collect::<Vec<_>>(),
        [expected]
    );

    let limit = ItemChange {
        limit_per_buyer: Some(Some(Quantity::new(5).unwrap())),
        ..ItemChange::default()
    };
    ledger
        .change_item(&vase.id, &limit, None, "admin")
        .await
        .unwrap();
    let said = ledger.journal(&vase.id, 1).await.unwrap().remove(0).entry;
    assert_eq!(
        (&*said.action, said.after),
        (
            "limit",
            json!({ "limit_per_buyer": 5, "epoch": 3, "version": 3 })
        ),
        "only what is different"
    );
}

async fn a_change_that_was_made_is_found_made(site: &Site) {
    let ledger = site.ledger().await;
    let vase = site.create(&*ledger, "vase", 10, 1).await;
    let changed = ledger
        .change_item(&vase.id, &all_of_it(), Some(1), "admin")
        .await
        .unwrap();
    for expected in [Some(1), Some(2), None] {
        assert_eq!(
            ledger
                .change_item(&vase.id, &all_of_it(), expected, "admin")
                .await
                .unwrap(),
            changed,
            "{expected:?}"
        );
    }
    let nothing = ItemChange::default();
    assert_eq!(
        ledger
            .change_item(&vase.id, &nothing, None, "admin")
            .await
            .unwrap(),
        changed
    );
    assert_eq!(ledger.journal(&vase.id, 9).await.unwrap().len(), 1);
}

async fn a_change_decided_on_another_version_changes_nothing(site: &Site) {
    let ledger = site.ledger().await;
    let vase = site.create(&*ledger, "vase", 10, 1).await;
    for expected in [0, 2] {
        let refused = ledger
            .change_item(&vase.id, &all_of_it(), Some(expected), "admin")
            .await
            .unwrap();
        assert_eq!(refused, Changed::OtherVersion(vase.clone()));
    }
    assert_eq!(ledger.item(&vase.id).await.unwrap(), Some(vase.clone()));
    let nobody = ItemId::new("nobody").unwrap();
    assert_eq!(
        ledger
            .change_item(&nobody, &all_of_it(), Some(1), "admin")
            .await
            .unwrap(),
        Changed::NoItem
    );
    assert_eq!(ledger.journal(&vase.id, 9).await.unwrap(), []);
}

async fn an_item_is_known_by_what_it_was_created_as(site: &Site) {
    let ledger = site.ledger().await;
    let vase = site.create(&*ledger, "vase", 10, 1).await;
    ledger
        .change_item(&vase.id, &all_of_it(), None, "admin")
        .await
        .unwrap();
    let part = StockPart {
        transfer: domain::TransferId::random(),
        segment: 0,
        units: 7,
    };
    let Changed::Item(now) = ledger
        .change_stock(&vase.id, &StockChange::TopUp(vec![part]), None, "admin")
        .await
        .unwrap()
    else {
        panic!()
    };
    assert_eq!((now.stock, now.version), (17, 3));
    assert_eq!(
        ledger.create_item(&vase).await.unwrap(),
        ledger::Created::Same(now),
        "the request that created it, once more"
    );
    assert_eq!(
        ledger.create_item(&item("vase", 17, 1)).await.unwrap(),
        ledger::Created::Different,
        "that it has 17 by now makes it no other item"
    );
}

async fn what_segments_should_be_at_is_what_the_item_says(site: &Site) {
    let ledger = site.ledger().await;
    let vase = site.create(&*ledger, "vase", 10, 2).await;
    site.create(&*ledger, "jug", 10, 2).await;
    ledger
        .change_item(&vase.id, &all_of_it(), None, "admin")
        .await
        .unwrap();
    let mut configs = ledger.segment_configs().await.unwrap();
    configs.sort_unstable_by(|one, other| one.0.cmp(&other.0));
    let limit = Quantity::new(2).ok();
    let jug = SegmentConfig {
        state: ItemState::Open,
        limit_per_buyer: limit,
        window: Window::default(),
        epoch: 1,
    };
    let change = all_of_it();
    let vase = SegmentConfig {
        state: ItemState::Paused,
        limit_per_buyer: None,
        window: change.window.unwrap(),
        epoch: 2,
    };
    assert_eq!(
        configs
            .into_iter()
            .map(|(_, config)| config)
            .collect::<Vec<_>>(),
        [jug, vase]
    );
}

async fn the_journal_keeps_what_it_is_told_newest_first(site: &Site) {
    let ledger = site.ledger().await;
    let vase = site.create(&*ledger, "vase", 10, 1).await;
    let jug = site.create(&*ledger, "jug", 10, 1).await;
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
    for n in 0..6 {
        ledger.note(&entry(n)).await.unwrap();
    }
    let journal = ledger.journal(&vase.id, 2).await.unwrap();
    assert_eq!(
        journal
            .iter()
            .map(|said| said.entry.clone())
            .collect::<Vec<_>>(),
        [entry(4), entry(2)]
    );
    assert!(journal[0].id > journal[1].id && journal[0].at >= journal[1].at);
    assert!((Timestamp::now().as_millisecond() - journal[0].at.as_millisecond()).abs() < 60_000);
    assert_eq!(ledger.journal(&jug.id, 9).await.unwrap().len(), 3);
    let nobody = ItemId::new("nobody").unwrap();
    assert_eq!(ledger.journal(&nobody, 9).await.unwrap(), []);
    assert!(
        ledger
            .note(&NewJournalEntry {
                item: nobody,
                ..entry(0)
            })
            .await
            .unwrap_err()
            .is_refused()
    );
}

async fn what_is_told_once_is_in_the_journal_once(site: &Site) {
    let ledger = site.ledger().await;
    let vase = site.create(&*ledger, "vase", 10, 1).await;
    let jug = site.create(&*ledger, "jug", 10, 1).await;
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
    let mut tellers = tokio::task::JoinSet::new();
    for _ in 0..6 {
        let (ledger, entry) = (site.ledger().await, entry(&vase, "first"));
        tellers.spawn(async move { ledger.note_once(&entry, "a b").await.unwrap() });
    }
    assert_eq!(
        tellers
            .join_all()
            .await
            .into_iter()
            .filter(|told| *told)
            .count(),
        1
    );
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
        .map(|said| said.entry.action)
        .collect();
    assert_eq!(actions, ["any number", "any number", "second", "first"]);
    assert_eq!(ledger.journal(&jug.id, 9).await.unwrap().len(), 1);
}

async fn a_window_that_ends_before_it_begins_is_refused(site: &Site) {
    let ledger = site.ledger().await;
    let vase = site.create(&*ledger, "vase", 10, 1).await;
    let change = ItemChange {
        window: Some(Window {
            opens_at: at(2),
            closes_at: at(1),
        }),
        ..ItemChange::default()
    };
    let refused = ledger
        .change_item(&vase.id, &change, None, "admin")
        .await
        .unwrap_err();
    assert!(
        refused.is_refused() && matches!(refused, LedgerError::Database(_)),
        "{refused:?}"
    );
    assert_eq!(ledger.item(&vase.id).await.unwrap(), Some(vase));
}
