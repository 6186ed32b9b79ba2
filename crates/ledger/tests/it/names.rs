//! Acts of admins: each is noted with the admin's name by the transaction that makes it, or not at
//! all.

use domain::{Order, OrderState, SessionId};
use jiff::SignedDuration;
use ledger::{Actors, Created, JournalEntry, NewAct, NewWebhook, Transition};
use serde_json::json;
use testkit::{on_both_databases, tested};
use uuid::Uuid;

use crate::env::{AnyLedger, TestEnv, happen, item, order, order_id, segment, take};

/// The latest entries of the item's journal with this action.
async fn noted(ledger: &impl AnyLedger, item: &domain::Item, action: &str) -> Vec<JournalEntry> {
    let mut journal = ledger.journal(&item.id, 2_000).await.unwrap();
    journal.retain(|entry| entry.entry.action == action);
    journal
}

#[tested(on_both_databases(crate::env::run))]
async fn the_creation_of_an_item_is_noted_once(env: &TestEnv) {
    let vase = item("vase", 10, 2);
    for actor in ["ann", "bob"] {
        let created = env.create_item_by(&vase, Some(actor)).await.unwrap();
        assert_eq!(
            matches!(created, Created::New(_)),
            actor == "ann",
            "{created:?}"
        );
    }
    let other = domain::Item {
        stock: 11,
        ..vase.clone()
    };
    let refused = env.create_item_by(&other, Some("cleo")).await.unwrap();
    assert_eq!(refused, Created::Different);
    let journal = env.journal(&vase.id, 9).await.unwrap();
    let [entry] = &journal[..] else {
        panic!("{journal:?}");
    };
    let entry = &entry.entry;
    assert_eq!((&*entry.actor, &*entry.action), ("ann", "create"));
    assert_eq!(
        (&entry.after["stock"], &entry.after["segments"]),
        (&json!(10), &json!(2))
    );
    let unnamed = item("jug", 1, 1);
    env.create_item(&unnamed).await.unwrap();
    assert!(env.journal(&unnamed.id, 9).await.unwrap().is_empty());
}

/// A held order for each number.
async fn held(env: &TestEnv, name: &str, count: usize) -> domain::Item {
    let item = env.create_unlimited(name, 2_000, 1).await;
    let orders = (0..count).map(|n| order(&item, n, 1));
    happen(env, &segment(&item, 0), [take(orders)]).await;
    item
}

async fn stored(ledger: &impl AnyLedger, item: &domain::Item, n: usize) -> Order {
    ledger.order(order_id(item, n)).await.unwrap().unwrap()
}

#[tested(on_both_databases(crate::env::run))]
async fn a_transition_is_noted_if_an_admin_makes_it_and_it_is_made(env: &TestEnv) {
    let vase = held(env, "vase", 300).await;
    let mut steps = Vec::new();
    for n in 0..300 {
        steps.push(Transition {
            order: stored(env, &vase, n).await,
            to: OrderState::Cancelled,
            payment: None,
        });
    }
    // The order of the last one has another version, and the one before has no admin.
    steps[299].order.version += 1;
    let by_admins = steps.iter().enumerate().filter(|(n, _)| *n != 298);
    let actors: Actors = by_admins
        .map(|(n, step)| (step.order.id, format!("admin-{}", n % 2).into()))
        .collect();
    let made = env.transition_by(&steps, &actors).await.unwrap();
    assert_eq!(made.iter().flatten().count(), 299);
    let entries = noted(env, &vase, "cancel").await;
    assert_eq!(entries.len(), 298);
    for n in [0, 1, 297] {
        let id = json!(order_id(&vase, n));
        let mut of_order = entries
            .iter()
            .filter(|entry| entry.entry.before["order"] == id);
        let entry = &of_order.next().unwrap().entry;
        assert!(of_order.next().is_none());
        assert_eq!(entry.actor, format!("admin-{}", n % 2));
        assert_eq!(entry.before["state"], "held");
        assert_eq!(entry.after, json!({ "state": "cancelled" }));
    }
    let again = env.transition_by(&steps, &actors).await.unwrap();
    assert_eq!(again.iter().flatten().count(), 0);
    assert_eq!(noted(env, &vase, "cancel").await.len(), 298, "a repeat");
}

#[tested(on_both_databases(crate::env::run))]
async fn an_extension_is_noted_if_an_admin_makes_it(env: &TestEnv) {
    let vase = held(env, "vase", 1).await;
    let first = stored(env, &vase, 0).await;
    let later = first.expires_at + SignedDuration::from_secs(60);
    let session = SessionId::new("cs_1").unwrap();
    let extended = env
        .extend_by(&first, later, Some(&session), Some("ann"))
        .await;
    let extended = extended.unwrap().unwrap();
    // Decided on an earlier version.
    let late = env
        .extend_by(&first, later, None, Some("bob"))
        .await
        .unwrap();
    assert_eq!(late, None);
    env.extend(&extended, later).await.unwrap().unwrap();
    let entries = noted(env, &vase, "extend").await;
    let [entry] = &entries[..] else {
        panic!("{entries:?}");
    };
    assert_eq!(entry.entry.actor, "ann");
    assert_eq!(entry.entry.before["order"], json!(first.id));
    assert_eq!(
        entry.entry.after,
        json!({ "expires_at": later, "session": "cs_1" })
    );
}

#[tested(on_both_databases(crate::env::run))]
async fn what_is_done_to_webhooks_is_noted_without_their_secrets(env: &TestEnv) {
    let webhook = NewWebhook {
        id: Uuid::new_v4(),
        url: "https://shop.example/hooks/t0ken".into(),
        kinds: vec!["order.held".into()],
        secret: "whsec_c2VjcmV0".into(),
    };
    let other = NewWebhook {
        id: Uuid::new_v4(),
        ..webhook.clone()
    };
    assert!(env.add_webhook_by(&webhook, 1, "ann").await.unwrap());
    assert!(!env.add_webhook_by(&other, 1, "bob").await.unwrap());
    assert!(env.enable_webhook(webhook.id, "cleo").await.unwrap());
    assert!(!env.enable_webhook(other.id, "bob").await.unwrap());
    assert!(env.remove_webhook(webhook.id, "dora").await.unwrap());
    assert!(!env.remove_webhook(webhook.id, "bob").await.unwrap());
    let acts = env.list_acts(None, 9).await.unwrap().rows;
    let names: Vec<_> = acts
        .iter()
        .rev()
        .map(|entry| (&*entry.act.actor, &*entry.act.action))
        .collect();
    let expected = [
        ("ann", "create_webhook"),
        ("cleo", "enable_webhook"),
        ("dora", "remove_webhook"),
    ];
    assert_eq!(names, expected);
    for entry in &acts {
        let text = format!("{entry:?}");
        assert_eq!(entry.act.subject, Some(webhook.id.to_string()));
        assert!(!text.contains("t0ken") && !text.contains("whsec"), "{text}");
    }
    let created = json!({ "origin": "https://shop.example", "kinds": ["order.held"] });
    assert_eq!(acts[2].act.after, created);
}

#[tested(on_both_databases(crate::env::run))]
async fn the_service_journal_is_read_page_by_page(env: &TestEnv) {
    for n in 0..5 {
        let act = NewAct {
            actor: "ann".into(),
            action: "test_webhook".into(),
            subject: Some(n.to_string()),
            before: json!({}),
            after: json!({}),
        };
        env.note_act(&act).await.unwrap();
    }
    let (mut subjects, mut before) = (Vec::new(), None);
    loop {
        let page = env.list_acts(before, 2).await.unwrap();
        assert!((1..=2).contains(&page.rows.len()), "{page:?}");
        subjects.extend(page.rows.into_iter().filter_map(|entry| entry.act.subject));
        before = page.next;
        if before.is_none() {
            break;
        }
    }
    assert_eq!(subjects, ["4", "3", "2", "1", "0"]);
}
