//! Changes of an item's state, limit and window during a sale, and their journal.

use reqwest::Method;
use serde_json::{Value, json};
use testkit::tested_in;

use crate::env::{Answer, Env, Options, TestEnv, open, open_each};

impl TestEnv {
    async fn patch(&self, item: &str, change: &Value) -> Answer {
        let request = self.admin(Method::PATCH, &format!("/v1/items/{item}"));
        Answer::of(request.json(change)).await
    }
}

#[tested_in(open_each(Options::default().with_instances(2)))]
async fn a_new_limit_takes_effect_immediately_at_every_instance(env: Env) {
    let item = json!({ "stock": 50, "segments": 4, "limit_per_buyer": 1 });
    let item = env.create(item).await;
    let order = async |instance, buyer, key: &str| {
        Answer::of(env.order_at(instance, &item, buyer, key, 1)).await
    };
    for instance in 0..2 {
        order(instance, "warm", "k").await;
    }
    order(1, "ann", "k-1").await.is_held();
    order(1, "ann", "k-2").await.is(409, "buyer_limit_reached");
    let changed = env.patch(&item, &json!({ "limit_per_buyer": 3 })).await;
    assert_eq!(changed.body["limit_per_buyer"], 3);
    order(1, "ann", "k-2").await.is_held();
    order(0, "ann", "k-3").await.is_held();
    order(1, "ann", "k-4").await.is(409, "buyer_limit_reached");
    // A buyer with more units than the new limit keeps them, and gets no more.
    let changed = env.patch(&item, &json!({ "limit_per_buyer": 2 })).await;
    assert_eq!(changed.status, 200);
    order(1, "ann", "k-4").await.is(409, "buyer_limit_reached");
    order(1, "ann", "k-3").await.is_held();
    let unlimited = env.patch(&item, &json!({ "limit_per_buyer": null })).await;
    assert_eq!(unlimited.status, 200);
    assert_eq!(unlimited.body["limit_per_buyer"], Value::Null);
    for key in 4..8 {
        order(key % 2, "ann", &format!("k-{key}")).await.is_held();
    }
    let changes: Vec<_> = env
        .journal(&item, "limit")
        .await
        .into_iter()
        .map(|entry| (entry["before"].clone(), entry["after"].clone()))
        .collect();
    let limits: Vec<_> = changes
        .iter()
        .map(|(before, after)| (&before["limit_per_buyer"], &after["limit_per_buyer"]))
        .collect();
    assert_eq!(
        limits,
        [
            (&json!(2), &Value::Null),
            (&json!(3), &json!(2)),
            (&json!(1), &json!(3))
        ]
    );
    assert_eq!(env.units(&item).await, [50 - 8, 8, 0]);
}

#[tested_in(open_each(Options::default().with_instances(2)))]
async fn a_new_window_takes_effect_immediately_at_every_instance(env: Env) {
    let item = env.create(json!({ "stock": 50, "segments": 4 })).await;
    let order =
        async |instance, key: &str| Answer::of(env.order_at(instance, &item, "ann", key, 1)).await;
    for instance in 0..2 {
        order(instance, &format!("warm-{instance}")).await.is_held();
    }
    let later = env
        .patch(&item, &json!({ "opens_at": "2099-01-01T00:00:00Z" }))
        .await;
    assert_eq!(
        (
            later.status,
            &later.body["opens_at"],
            &later.body["closes_at"]
        ),
        (200, &json!("2099-01-01T00:00:00Z"), &Value::Null)
    );
    assert_eq!(
        order(1, "k").await.is(409, "not_open").body["opens_at"],
        "2099-01-01T00:00:00Z"
    );
    let over = env
        .patch(
            &item,
            &json!({ "opens_at": null, "closes_at": "2020-01-01T00:00:00Z" }),
        )
        .await;
    assert_eq!(over.body["opens_at"], Value::Null);
    assert_eq!(over.body["closes_at"], "2020-01-01T00:00:00Z");
    for instance in 0..2 {
        order(instance, "k").await.is(409, "not_open");
    }
    env.patch(
        &item,
        &json!({ "closes_at": "2099-01-01T00:00:00.123456789Z" }),
    )
    .await;
    order(1, "k").await.is_held();
    let entry = env.journal(&item, "window").await.swap_remove(0);
    assert_eq!(
        entry["before"]["window"]["closes_at"],
        "2020-01-01T00:00:00Z"
    );
    assert_eq!(
        entry["after"]["window"]["closes_at"],
        "2099-01-01T00:00:00.123Z"
    );
    assert_eq!(env.units(&item).await, [47, 3, 0]);
}

#[tested_in(open(Options::default()))]
async fn absent_fields_stay_and_an_equal_value_is_no_change(env: Env) {
    let closes = "2099-01-01T00:00:00Z";
    let item = json!({ "stock": 5, "limit_per_buyer": 2, "closes_at": closes });
    let item = env.create(item).await;
    let version = env.version(&item).await;
    for same in [
        json!({}),
        json!({ "limit_per_buyer": 2 }),
        json!({ "closes_at": closes }),
        json!({ "opens_at": null }),
    ] {
        let answer = env.patch(&item, &same).await;
        assert_eq!(
            (answer.status, answer.header("etag")),
            (200, Some(&*version)),
            "{same}"
        );
    }
    let answer = env.patch(&item, &json!({ "limit_per_buyer": 4 })).await;
    assert_eq!(answer.body["closes_at"], json!(closes));
    assert_eq!(answer.body["limit_per_buyer"], 4);
    assert_ne!(answer.header("etag"), Some(&*version));
    assert_eq!(
        env.admin_gets(&format!("/v1/items/{item}/journal"))
            .await
            .rows()
            .len(),
        2,
        "its creation and one change"
    );
    let late = env
        .admin(Method::PATCH, &format!("/v1/items/{item}"))
        .header("If-Match", &version)
        .json(&json!({ "limit_per_buyer": 5 }));
    Answer::of(late).await.is(412, "version_mismatch");
    let seen = env.version(&item).await;
    let now = env
        .admin(Method::PATCH, &format!("/v1/items/{item}"))
        .header("If-Match", &seen)
        .json(&json!({ "limit_per_buyer": 5 }));
    assert_eq!(Answer::of(now).await.body["limit_per_buyer"], 5);
}

#[tested_in(open(Options::default()))]
async fn a_weak_version_one_of_a_list_and_any_are_conditions_too(env: Env) {
    let item = env.create(json!({ "stock": 5 })).await;
    let (path, state) = (
        format!("/v1/items/{item}"),
        format!("/v1/items/{item}/state"),
    );
    let patch = async |conditions: &[String], limit: u32| {
        let request = env.admin(Method::PATCH, &path);
        let request = conditions.iter().fold(request, |request, condition| {
            request.header("If-Match", condition)
        });
        Answer::of(request.json(&json!({ "limit_per_buyer": limit }))).await
    };
    for (round, limit) in (0..6).zip(10..) {
        let now = env.version(&item).await;
        let earlier = "\"999999\"".to_owned();
        let conditions = match round {
            0 => vec![format!("W/{now}")],
            1 => vec![format!("{now}, {earlier}")],
            2 => vec![earlier, now],
            3 => vec!["*".to_owned()],
            4 => vec![now.replace('"', "")],
            _ => vec![format!("\"{}-gzip\"", now.trim_matches('"'))],
        };
        let changed = patch(&conditions, limit).await;
        assert_eq!(changed.status, 200, "{conditions:?}: {changed:?}");
        assert_eq!(changed.body["limit_per_buyer"], limit, "{conditions:?}");
    }
    let seen = env.version(&item).await;
    for late in ["W/\"999999\"", "\"999998\", \"999999\""] {
        let refused = patch(&[late.to_owned()], 1).await;
        refused.is_of(412, "version_mismatch", "If-Match");
    }
    for malformed in ["", "\"x\"", "W/1", "*, \"1\""] {
        let refused = patch(&[malformed.to_owned()], 1).await;
        refused.blames("If-Match");
    }
    assert_eq!(env.version(&item).await, seen, "nothing was changed");
    let paused = env
        .admin(Method::PUT, &state)
        .header("If-Match", format!("W/{seen}"))
        .json(&json!({ "state": "paused" }));
    assert_eq!(Answer::of(paused).await.body["state"], "paused");
    let none = env
        .admin(Method::PATCH, "/v1/items/no-such-item")
        .header("If-Match", "*")
        .json(&json!({ "limit_per_buyer": 1 }));
    Answer::of(none).await.is(404, "item_not_found");
}

#[tested_in(open(Options::default()))]
async fn a_state_for_another_version_is_not_set(env: Env) {
    let item = env.create(json!({ "stock": 5 })).await;
    let path = format!("/v1/items/{item}/state");
    let set = async |version: &str, state: &str| {
        let request = env.admin(Method::PUT, &path).header("If-Match", version);
        Answer::of(request.json(&json!({ "state": state }))).await
    };
    let seen = env.version(&item).await;
    let paused = env.set_state(&item, "paused").await;
    assert_eq!(paused.header("etag"), Some(&*env.version(&item).await));
    assert_ne!(paused.header("etag"), Some(&*seen));
    set(&seen, "closed")
        .await
        .is_of(412, "version_mismatch", "If-Match");
    set("x", "closed").await.blames("If-Match");
    assert_eq!(env.journal(&item, "state").await.len(), 1);
    let seen = env.version(&item).await;
    for _ in 0..2 {
        let open = set(&seen, "open").await;
        assert_eq!(
            (open.status, &open.body["state"]),
            (200, &json!("open")),
            "a repeat finds the change already made"
        );
        assert_eq!(open.header("etag"), Some(&*env.version(&item).await));
    }
    assert_eq!(env.journal(&item, "state").await.len(), 2);
}

#[tested_in(open(Options::default()))]
async fn a_bad_change_of_an_item_is_refused_by_the_name_of_the_field_and_changes_nothing(env: Env) {
    let item = json!({ "stock": 5, "opens_at": "2020-01-01T00:00:00Z" });
    let item = env.create(item).await;
    let version = env.version(&item).await;
    let table = [
        (json!({ "limit_per_buyer": 0 }), "limit_per_buyer"),
        (json!({ "limit_per_buyer": "two" }), "limit_per_buyer"),
        (json!({ "opens_at": "tomorrow" }), "opens_at"),
        (
            json!({ "opens_at": "2027-07-01T10:00:00+01:00[Europe/Berlin]" }),
            "opens_at",
        ),
        (
            json!({ "closes_at": "2027-07-01T10:00:00Z[No/Where]" }),
            "closes_at",
        ),
        (json!({ "opens_at": "1970-01-01T00:00:00Z" }), "opens_at"),
        (json!({ "closes_at": "9999-01-01T00:00:00Z" }), "closes_at"),
        // Earlier than the item's other time.
        (json!({ "closes_at": "2019-01-01T00:00:00Z" }), "closes_at"),
        (
            json!({ "opens_at": "2021-01-01T00:00:00Z", "closes_at": "2021-01-01T00:00:00Z" }),
            "closes_at",
        ),
        (json!({ "stock": 7 }), "stock"),
        (json!({ "title": "Other" }), "title"),
    ];
    for (change, field) in table {
        let refused = env.patch(&item, &change).await;
        refused.blames(field);
    }
    env.patch("no-such-item", &json!({ "limit_per_buyer": 1 }))
        .await
        .is(404, "item_not_found");
    let by_buyer = env
        .buyer("ann", Method::PATCH, &format!("/v1/items/{item}"))
        .json(&json!({ "limit_per_buyer": 1 }));
    Answer::of(by_buyer).await.is(403, "forbidden");
    assert_eq!(env.version(&item).await, version);
    let path = format!("/v1/items/{item}/journal");
    let journal = env.admin_gets(&path).await;
    let entries = journal.rows();
    assert_eq!(entries.len(), 1, "only its creation: {entries:?}");
}

#[tested_in(open(Options::reconciled()))]
async fn the_journal_shows_admins_all_changes_newest_first(env: Env) {
    let item = json!({ "stock": 5, "limit_per_buyer": 1 });
    let item = env.create(item).await;
    for state in ["paused", "paused", "closed", "open"] {
        assert_eq!(env.set_state(&item, state).await.status, 200);
    }
    env.patch(
        &item,
        &json!({ "limit_per_buyer": 2, "opens_at": "2020-01-01T00:00:00Z" }),
    )
    .await;
    env.move_stock(0, &item, "k", &json!({ "add": 1 })).await;
    let path = format!("/v1/items/{item}/journal");
    let journal = env.admin_gets(&path).await.body;
    let entries = journal["data"].as_array().unwrap();
    let actions: Vec<_> = entries
        .iter()
        .map(|entry| entry["action"].as_str().unwrap())
        .collect();
    assert_eq!(
        actions,
        [
            "top_up",
            "limit,window",
            "state",
            "state",
            "state",
            "create"
        ],
        "an equal value is no change"
    );
    let states: Vec<_> = entries[2..5]
        .iter()
        .map(|entry| (&entry["before"]["state"], &entry["after"]["state"]))
        .collect();
    let [open, paused, closed] = ["open", "paused", "closed"].map(|state| json!(state));
    assert_eq!(
        states,
        [(&closed, &open), (&paused, &closed), (&open, &paused)]
    );
    assert!(
        entries
            .windows(2)
            .all(|pair| pair[0]["id"].as_u64() > pair[1]["id"].as_u64())
    );
    for entry in entries {
        assert!(
            entry["at"]
                .as_str()
                .unwrap()
                .parse::<jiff::Timestamp>()
                .is_ok()
        );
        assert_eq!(entry["actor"], "admin");
        assert_eq!(entry["token"], Value::Null);
        assert!(
            entry["after"]["version"].as_u64() > entry["before"]["version"].as_u64(),
            "{entry}"
        );
    }
    env.buyer_gets("ann", &path).await.is(403, "forbidden");
    env.anyone_gets(&path).await.is(401, "unauthorized");
    let refused = env.admin_gets("/v1/items/no-such-item/journal").await;
    refused.is(404, "item_not_found");
}
