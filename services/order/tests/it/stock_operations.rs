//! Adding and withdrawing units during a sale.

use std::time::Duration;

use futures::future::join_all;
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};
use testkit::tested_in;

use crate::env::{ADMIN, Answer, Env, Options, TestEnv, open, open_each};

impl TestEnv {
    fn stock_request(&self, instance: usize, method: Method, item: &str) -> RequestBuilder {
        self.at(instance, method, &format!("/v1/items/{item}/stock"))
            .bearer_auth(ADMIN)
    }

    pub async fn move_stock(
        &self,
        instance: usize,
        item: &str,
        key: &str,
        request: &Value,
    ) -> Answer {
        let call = self.stock_request(instance, Method::POST, item);
        Answer::of(call.header("Idempotency-Key", key).json(request)).await
    }

    async fn set_stock(&self, item: &str, version: &str, stock: u64) -> Answer {
        let call = self.stock_request(0, Method::PUT, item);
        let call = call.header("If-Match", version);
        Answer::of(call.json(&json!({ "stock": stock }))).await
    }

    /// The item's `ETag`.
    pub async fn version(&self, item: &str) -> String {
        let shown = self.admin_gets(&format!("/v1/items/{item}")).await;
        shown
            .header("etag")
            .expect("admins see the version")
            .to_owned()
    }
}

fn add(units: u64) -> Value {
    json!({ "add": units })
}

fn take(units: u64) -> Value {
    json!({ "withdraw": units })
}

/// Asserts that the change is complete, and the item's stock and available units.
#[track_caller]
fn is_stocked(answer: &Answer, stock: u64, available: u64) {
    assert_eq!(
        (
            answer.status,
            &answer.body["stock"],
            &answer.body["available"]
        ),
        (200, &json!(stock), &json!(available)),
        "{answer:?}"
    );
}

#[tested_in(open_each(Options::reconciled().with_instances(2)))]
async fn added_units_can_be_bought_and_a_repeat_adds_nothing(env: Env) {
    let item = env.create(json!({ "stock": 10, "segments": 3 })).await;
    let before = env.version(&item).await;
    let adds = join_all((0..8).map(|n| {
        let (env, item) = (&env, &item);
        async move { env.move_stock(n % 2, item, "key-1", &add(5)).await }
    }));
    for answer in adds.await {
        is_stocked(&answer, 15, 15);
    }
    assert_ne!(env.version(&item).await, before);
    let again = env.move_stock(1, &item, "key-1", &add(5)).await;
    is_stocked(&again, 15, 15);
    assert_eq!(again.header("etag"), Some(&*env.version(&item).await));
    is_stocked(&env.move_stock(0, &item, "key-2", &add(1)).await, 16, 16);
    for n in 0..16 {
        env.hold(&item, &format!("buyer-{n}"), "k").await;
    }
    env.order(&item, "ann", "k", 1).await.is(409, "sold_out");
    let entries = env.journal(&item, "top_up").await;
    let changes: Vec<_> = entries
        .iter()
        .map(|entry| {
            (
                &entry["actor"],
                &entry["before"]["stock"],
                &entry["after"]["stock"],
            )
        })
        .collect();
    let admin = json!("admin");
    assert_eq!(
        changes,
        [
            (&admin, &json!(15), &json!(16)),
            (&admin, &json!(10), &json!(15))
        ],
        "newest first"
    );
}

#[tested_in(open_each(Options::reconciled().with_instances(2)))]
async fn only_unsold_units_are_withdrawn(env: Env) {
    let item = env.create(json!({ "stock": 10, "segments": 3 })).await;
    let held = env.hold(&item, "ann", "k").await;
    let paid = env.hold(&item, "bob", "k").await;
    env.confirm(&paid, "pay-1").await;
    is_stocked(&env.move_stock(0, &item, "key-1", &take(3)).await, 7, 5);
    is_stocked(&env.move_stock(1, &item, "key-1", &take(3)).await, 7, 5);
    is_stocked(&env.move_stock(1, &item, "key-2", &take(100)).await, 2, 0);
    env.order(&item, "carol", "k", 1).await.is(409, "sold_out");
    assert_eq!(
        env.units(&item).await,
        [0, 1, 1],
        "held and paid units stay"
    );
    env.cancel("ann", &held).await.is_now("cancelled");
    assert_eq!(env.units(&item).await, [1, 0, 1]);
    // A repeat of the request withdraws no more units, even if units were released since.
    for key in ["key-1", "key-2"] {
        let request = if key == "key-1" { take(3) } else { take(100) };
        is_stocked(&env.move_stock(0, &item, key, &request).await, 2, 1);
    }
    let taken = env.journal(&item, "withdrawn").await;
    assert!(
        taken
            .iter()
            .all(|entry| entry["actor"] == "reconciler" && entry["token"].is_u64()),
        "{taken:?}"
    );
    let asked = env.journal(&item, "withdraw").await;
    assert_eq!(asked.len(), 2, "{asked:?}");
    let units: u64 = taken
        .iter()
        .map(|entry| {
            entry["before"]["stock"].as_u64().unwrap() - entry["after"]["stock"].as_u64().unwrap()
        })
        .sum();
    assert_eq!(units, 8);
}

/// A withdrawal that found no units is recorded too: its repeat must not withdraw units that were
/// released since.
#[tested_in(open_each(Options::reconciled()))]
async fn a_repeat_of_a_withdrawal_that_found_no_units_withdraws_none(env: Env) {
    let item = env.create(json!({ "stock": 2, "segments": 2 })).await;
    let orders = [
        env.hold(&item, "ann", "k").await,
        env.hold(&item, "bob", "k").await,
    ];
    is_stocked(&env.move_stock(0, &item, "key-1", &take(5)).await, 2, 0);
    env.cancel("ann", &orders[0]).await.is_now("cancelled");
    assert_eq!(env.units(&item).await, [1, 1, 0]);
    is_stocked(&env.move_stock(0, &item, "key-1", &take(5)).await, 2, 1);
    is_stocked(&env.move_stock(0, &item, "key-2", &take(5)).await, 1, 0);
}

#[tested_in(open_each(Options::reconciled().with_instances(2)))]
async fn units_are_added_and_withdrawn_during_a_rush_without_drift(env: Env) {
    let item = env.create(json!({ "stock": 100, "segments": 4 })).await;
    let orders = join_all(
        (0..150).map(|n| Answer::of(env.order_at(n % 2, &item, &format!("buyer-{n}"), "k", 1))),
    );
    let (env, item) = (&env, &item);
    let adds = join_all((0..5).map(|n| async move {
        env.move_stock(n % 2, item, &format!("add-{n}"), &add(7))
            .await
    }));
    let takes = join_all((0..5).map(|n| async move {
        env.move_stock(n % 2, item, &format!("take-{n}"), &take(11))
            .await
    }));
    let (orders, adds, takes) = tokio::join!(orders, adds, takes);
    assert!(
        adds.iter()
            .chain(&takes)
            .all(|answer| [200, 202].contains(&answer.status)),
        "{adds:?} {takes:?}"
    );
    let held = orders.iter().filter(|order| order.status == 201).count() as u64;
    let [available, still_held, _] = env.units(item).await;
    let taken = env.journal(item, "withdrawn").await;
    let taken: u64 = taken
        .iter()
        .map(|entry| {
            entry["before"]["stock"].as_u64().unwrap() - entry["after"]["stock"].as_u64().unwrap()
        })
        .sum();
    eprintln!("{held} held, {taken} of 55 withdrawn, {available} left");
    assert_eq!((still_held, available + held), (held, 135 - taken));
}

#[tested_in(open_each(Options::reconciled()))]
async fn the_stock_is_set_only_with_the_latest_version(env: Env) {
    let item = env.create(json!({ "stock": 10, "segments": 3 })).await;
    env.hold(&item, "ann", "k").await;
    let seen = env.version(&item).await;
    is_stocked(&env.set_stock(&item, &seen, 15).await, 15, 14);
    let late = env.set_stock(&item, &seen, 20).await;
    assert_eq!(late.is(412, "version_mismatch").body["field"], "If-Match");
    let seen = env.version(&item).await;
    is_stocked(&env.set_stock(&item, &seen, 15).await, 15, 14);
    assert_eq!(
        env.version(&item).await,
        seen,
        "the item already had that stock"
    );
    is_stocked(&env.set_stock(&item, &seen, 4).await, 4, 3);
    let seen = env.version(&item).await;
    let refused = env.set_stock(&item, &seen, 0).await;
    assert_eq!(refused.is(409, "not_enough_unsold").body["field"], "stock");
    is_stocked(
        &env.set_stock(&item, &env.version(&item).await, 1).await,
        1,
        0,
    );
    let unseen = env
        .stock_request(0, Method::PUT, &item)
        .json(&json!({ "stock": 3 }));
    Answer::of(unseen)
        .await
        .is_of(428, "if_match_required", "If-Match");
    assert_eq!(env.units(&item).await, [0, 1, 0]);
    let actions: Vec<_> = env
        .journal(&item, "top_up")
        .await
        .into_iter()
        .chain(env.journal(&item, "withdraw").await)
        .collect();
    assert_eq!(actions.len(), 3, "{actions:?}");
}

/// No transfer runs until the test starts a reconciler.
fn unreconciled() -> Options {
    Options::default().with_instances(2)
}

async fn reconcile(env: &TestEnv) {
    env.start_reconciler(Options::reconciled().reconciler.unwrap())
        .await;
}

/// Waits until the withdrawn units have left.
async fn withdrawn(env: &TestEnv, item: &str) {
    while env.admin_gets(&format!("/v1/items/{item}")).await.body["withdrawing"] != 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn with_open_withdrawal(env: &TestEnv, item: &str) {
    while env.journal(item, "withdraw").await.is_empty() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tested_in(open_each(unreconciled()))]
async fn while_units_are_being_withdrawn_the_stock_cannot_be_set(env: Env) {
    let item = env.create(json!({ "stock": 100, "segments": 3 })).await;
    let taking = env.set_stock(&item, &env.version(&item).await, 50).await;
    assert_eq!(
        (
            taking.status,
            &taking.body["stock"],
            &taking.body["withdrawing"]
        ),
        (202, &json!(100), &json!(50)),
        "{taking:?}"
    );
    let seen = env.version(&item).await;
    assert_eq!(taking.header("etag"), Some(&*seen));
    for wanted in [50, 100, 120, 0] {
        let refused = env.set_stock(&item, &seen, wanted).await;
        assert_eq!(
            refused.is(409, "withdrawal_open").header("retry-after"),
            Some("1")
        );
    }
    let public = env.anyone_gets(&format!("/v1/items/{item}")).await;
    assert!(public.body.get("withdrawing").is_none(), "{public:?}");
    reconcile(&env).await;
    withdrawn(&env, &item).await;
    assert_eq!(env.units(&item).await, [50, 0, 0]);
    let answer = env.set_stock(&item, &seen, 50).await;
    answer.is(412, "version_mismatch");
    is_stocked(
        &env.set_stock(&item, &env.version(&item).await, 50).await,
        50,
        50,
    );
    assert_eq!(env.journal(&item, "withdraw").await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn setting_the_stock_reports_units_sold_in_the_meantime() {
    // Number of units that are sold before the withdrawal runs, and the expected answer.
    for (bought, status, stock) in [(3, 200, 4), (8, 202, 8), (10, 409, 10)] {
        open_each(unreconciled(), async |env| {
            let item = env.create(json!({ "stock": 10, "segments": 1 })).await;
            let seen = env.version(&item).await;
            let buying = async {
                with_open_withdrawal(&env, &item).await;
                for buyer in 0..bought {
                    env.hold(&item, &format!("buyer-{buyer}"), "k").await;
                }
                reconcile(&env).await;
            };
            let (set, ()) = tokio::join!(env.set_stock(&item, &seen, 4), buying);
            if status == 409 {
                assert_eq!(set.is(409, "not_enough_unsold").body["field"], "stock");
            } else {
                assert_eq!(
                    (set.status, &set.body["stock"], &set.body["withdrawing"]),
                    (status, &json!(stock), &json!(0)),
                    "{set:?}"
                );
            }
            assert_eq!(env.units(&item).await, [stock - bought, bought, 0]);
        })
        .await;
    }
}

#[tested_in(open_each(Options::reconciled().with_instances(2)))]
async fn only_one_of_several_requests_for_a_version_sets_the_stock(env: Env) {
    let item = env.create(json!({ "stock": 10, "segments": 3 })).await;
    for _ in 0..5 {
        let (seen, stock) = (env.version(&item).await, env.units(&item).await[0]);
        let stocks = (1..=6).map(|more| stock + more);
        let sets = join_all(stocks.clone().map(|wanted| {
            let request = env
                .stock_request(usize::try_from(wanted % 2).unwrap(), Method::PUT, &item)
                .header("If-Match", &seen);
            Answer::of(request.json(&json!({ "stock": wanted })))
        }));
        let mut done = Vec::new();
        for (wanted, answer) in stocks.zip(sets.await) {
            if answer.status == 412 {
                answer.is(412, "version_mismatch");
            } else {
                is_stocked(&answer, wanted, wanted);
                done.push(wanted);
            }
        }
        assert_eq!(done.len(), 1, "{done:?}");
    }
}

#[tested_in(open_each(Options::reconciled().with_instances(2)))]
async fn the_key_of_another_change_of_stock_is_refused_and_changes_nothing(env: Env) {
    let item = env.create(json!({ "stock": 10, "segments": 3 })).await;
    is_stocked(&env.move_stock(0, &item, "key-1", &add(5)).await, 15, 15);
    env.hold(&item, "ann", "k").await;
    // More units than there are.
    is_stocked(&env.move_stock(1, &item, "key-2", &take(20)).await, 1, 0);
    let version = env.version(&item).await;
    for (key, request) in [
        ("key-1", add(6)),
        ("key-1", add(4)),
        ("key-1", take(5)),
        ("key-2", take(14)),
        ("key-2", take(21)),
        ("key-2", add(20)),
    ] {
        let refused = env.move_stock(1, &item, key, &request).await;
        refused.is_of(422, "idempotency_key_reused", "Idempotency-Key");
    }
    for (key, request) in [("key-1", add(5)), ("key-2", take(20))] {
        is_stocked(&env.move_stock(0, &item, key, &request).await, 1, 0);
    }
    assert_eq!(env.version(&item).await, version);
    assert_eq!(env.units(&item).await, [0, 1, 0]);
}

#[tested_in(open(Options::reconciled()))]
async fn a_change_of_stock_for_another_version_moves_nothing(env: Env) {
    let item = env.create(json!({ "stock": 10 })).await;
    let seen = env.version(&item).await;
    env.move_stock(0, &item, "key-1", &add(1)).await;
    let request = |key: &str, version: &str| {
        let request = env
            .stock_request(0, Method::POST, &item)
            .header("Idempotency-Key", key)
            .header("If-Match", version);
        request.json(&take(1))
    };
    let refused = Answer::of(request("key-2", &seen)).await;
    refused.is(412, "version_mismatch");
    let now = env.version(&item).await;
    is_stocked(&Answer::of(request("key-2", &now)).await, 10, 10);
    is_stocked(&Answer::of(request("key-2", &now)).await, 10, 10);
}

#[tested_in(open(Options::reconciled()))]
async fn the_stock_is_set_for_a_weak_version_one_of_a_list_and_any(env: Env) {
    let item = env.create(json!({ "stock": 10 })).await;
    let weak = format!("W/{}", env.version(&item).await);
    is_stocked(&env.set_stock(&item, &weak, 11).await, 11, 11);
    let refused = env.set_stock(&item, &weak, 12).await;
    refused.is(412, "version_mismatch");
    let list = format!("{weak}, {}", env.version(&item).await);
    is_stocked(&env.set_stock(&item, &list, 13).await, 13, 13);
    is_stocked(&env.set_stock(&item, "*", 14).await, 14, 14);
    is_stocked(&env.set_stock(&item, "*", 14).await, 14, 14);
}

#[tested_in(open(Options::reconciled()))]
async fn a_bad_change_is_refused_by_the_name_of_the_field_and_changes_nothing(env: Env) {
    let item = env.create(json!({ "stock": 10 })).await;
    let version = env.version(&item).await;
    let moves = [
        (json!({}), "add"),
        (json!({ "add": 1, "withdraw": 1 }), "add"),
        (add(0), "add"),
        (json!({ "add": -1 }), "add"),
        (json!({ "add": 1_000_000_000_000_u64 }), "add"),
        (take(0), "withdraw"),
        (json!({ "withdraw": "all" }), "withdraw"),
        (json!({ "put": 1 }), "put"),
    ];
    for (request, field) in moves {
        let refused = env.move_stock(0, &item, "key", &request).await;
        refused.blames(field);
    }
    let keyless = env.stock_request(0, Method::POST, &item).json(&add(1));
    Answer::of(keyless).await.blames("Idempotency-Key");
    for body in [
        json!({}),
        json!({ "stock": -1 }),
        json!({ "stock": null }),
        json!({ "stock": 1_000_000_000_001_u64 }),
    ] {
        let request = env
            .stock_request(0, Method::PUT, &item)
            .header("If-Match", &version)
            .json(&body);
        Answer::of(request).await.blames("stock");
    }
    for value in ["", "x", "\"x\"", "-1", "W/1", "*, \"1\""] {
        let request = env
            .stock_request(0, Method::PUT, &item)
            .header("If-Match", value)
            .json(&json!({ "stock": 1 }));
        Answer::of(request).await.blames("If-Match");
    }
    env.move_stock(0, "no-such-item", "key", &add(1))
        .await
        .is(404, "item_not_found");
    env.move_stock(0, "no-such-item", "key", &take(1))
        .await
        .is(404, "item_not_found");
    for version in ["\"1\"", "*"] {
        let answer = env.set_stock("no-such-item", version, 1).await;
        answer.is(404, "item_not_found");
    }
    for (method, body) in [(Method::POST, add(1)), (Method::PUT, json!({ "stock": 1 }))] {
        let path = format!("/v1/items/{item}/stock");
        let request = env
            .buyer("ann", method, &path)
            .header("Idempotency-Key", "k")
            .header("If-Match", &version);
        Answer::of(request.json(&body)).await.is(403, "forbidden");
    }
    assert_eq!(env.version(&item).await, version);
    assert_eq!(env.units(&item).await, [10, 0, 0]);
    let journal = env.admin_gets(&format!("/v1/items/{item}/journal")).await;
    let entries = journal.rows();
    assert_eq!(entries.len(), 1, "only its creation: {entries:?}");
}

#[tested_in(open(Options::reconciled()))]
async fn no_key_of_a_caller_is_one_of_our_own(env: Env) {
    let item = env.create(json!({ "stock": 10 })).await;
    let version = env.version(&item).await;
    let version: u64 = version.trim_matches('"').parse().unwrap();
    let key = format!("stock-of-version-{}", version + 1);
    let moved = env.move_stock(0, &item, &key, &add(5)).await;
    is_stocked(&moved, 15, 15);
    let version = env.version(&item).await;
    is_stocked(&env.set_stock(&item, &version, 20).await, 20, 20);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_item_gets_no_more_units_than_it_may_have_and_a_repeat_gets_its_answer() {
    const MAX: u64 = domain::Item::MAX_STOCK;
    open(Options::reconciled(), async |env| {
        let later = jiff::Timestamp::now() + jiff::SignedDuration::from_hours(1);
        let waves = json!([{ "at": later, "units": 7 }]);
        let item = json!({ "stock": MAX - 10, "waves": waves });
        let item = env.create(item).await;
        let add = async |key: &str, units: u64| {
            env.move_stock(0, &item, key, &json!({ "add": units }))
                .await
        };
        let too_many = add("a", 4).await;
        let errors = &too_many.is(400, "invalid_request").body["errors"];
        assert_eq!(errors[0]["pointer"], "/add");
        is_stocked(&add("a", 3).await, MAX - 7, MAX - 7);
        is_stocked(&add("a", 3).await, MAX - 7, MAX - 7);
        add("b", 1).await.is(400, "invalid_request");
        let version = env.version(&item).await;
        let set = env.set_stock(&item, &version, MAX).await;
        let errors = &set.is(400, "invalid_request").body["errors"];
        assert_eq!(errors[0]["pointer"], "/stock");
    })
    .await;
}
