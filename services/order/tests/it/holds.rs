//! Holds that are extended.

use futures::future::join_all;
use jiff::{SignedDuration, Timestamp};
use reqwest::Method;
use serde_json::{Value, json};
use testkit::tested_in;

use crate::env::{Answer, Env, Options, TestEnv, open, open_each};

async fn extend(env: &TestEnv, buyer: &str, order: &str, seconds: &Value) -> Answer {
    let path = format!("/v1/orders/{order}/hold");
    let request = env.buyer(buyer, Method::POST, &path);
    Answer::of(request.json(&json!({ "seconds": seconds }))).await
}

fn time(order: &Value, field: &str) -> Timestamp {
    order[field].as_str().unwrap().parse().unwrap()
}

#[tested_in(open_each(Options::default().with_instances(2)))]
async fn a_hold_is_extended_up_to_the_items_cap_and_a_repeat_changes_nothing(env: Env) {
    let item = json!({ "stock": 5, "hold_seconds": 60, "max_hold_seconds": 1800, "price": 250 });
    let item = env.create(item).await;
    let placed = env.order(&item, "ann", "k", 2).await;
    let order = placed.is_held().id();
    let created = time(&placed.body, "created_at");
    assert_eq!(
        time(&placed.body, "expires_at"),
        created + SignedDuration::from_secs(60)
    );
    assert_eq!(placed.body["price"], 250);
    assert_eq!(placed.body["amount"], 500);

    // The hold lasts so long already.
    let same = extend(&env, "ann", &order, &json!(30)).await;
    assert_eq!(
        (same.status, &same.body["version"]),
        (200, &json!(1)),
        "{}",
        same.body
    );
    let half_an_hour = json!(1800);
    let extended = join_all((0..6).map(|_| extend(&env, "ann", &order, &half_an_hour))).await;
    for answer in &extended {
        assert_eq!(answer.status, 200, "{}", answer.body);
        assert_eq!(
            time(&answer.body, "expires_at"),
            created + SignedDuration::from_secs(1800)
        );
        assert_eq!(answer.body["version"], 2, "extended once");
    }
    let replayed = env.order(&item, "ann", "k", 2).await;
    assert_eq!(replayed.body["expires_at"], extended[0].body["expires_at"]);
    assert_eq!(replayed.body["created_at"], placed.body["created_at"]);
    let rows = env.admin_gets(&format!("/v1/items/{item}/orders")).await;
    let row = &rows.body["data"][0];
    assert_eq!(row["created_at"], placed.body["created_at"]);
    assert_eq!(row["expires_at"], extended[0].body["expires_at"]);

    for seconds in [
        json!(1801),
        json!(0),
        json!(-1),
        json!("60"),
        json!(1.5),
        json!(null),
    ] {
        let refused = extend(&env, "ann", &order, &seconds).await;
        refused.blames("seconds");
    }
    let too_long = extend(&env, "ann", &order, &json!(1801)).await;
    assert_eq!(too_long.body["errors"][0]["pointer"], "/seconds");
    extend(&env, "bob", &order, &json!(1800))
        .await
        .is(404, "order_not_found");
    env.cancel("ann", &order).await.is_now("cancelled");
    let ended = extend(&env, "ann", &order, &json!(1800)).await;
    assert_eq!(
        ended.is(409, "order_not_extendable").body["state"],
        "cancelled"
    );
}

#[tested_in(open(Options::reconciled()))]
async fn an_extended_hold_outlives_its_first_end(env: Env) {
    // A busy machine may need longer than the first hold lasts.
    let mut holds = [1, 8, 64].into_iter();
    let (kept, lost) = loop {
        let hold = holds.next().expect("an extension before the end of a hold");
        let item = json!({ "stock": 2, "hold_seconds": hold, "max_hold_seconds": 600 });
        let item = env.create(item).await;
        let (kept, lost) = (
            env.hold(&item, "ann", "k").await,
            env.hold(&item, "bob", "k").await,
        );
        let extended = extend(&env, "ann", &kept, &json!(600)).await;
        if extended.status == 200 {
            break (kept, lost);
        }
        extended.is(409, "order_not_extendable");
    };
    env.becomes(&lost, "expired").await;
    assert_eq!(env.state_of(&kept).await, "held");
    let refused = extend(&env, "bob", &lost, &json!(600)).await;
    refused.is(409, "order_not_extendable");
    env.confirm(&kept, "pay-1").await;
}

/// A hoarder would keep units for as long as the cap allows.
#[tested_in(open(Options::default()))]
async fn no_hold_gets_longer_unless_the_item_says_so(env: Env) {
    let item = env.create(json!({ "stock": 2 })).await;
    let order = env.hold(&item, "ann", "k").await;
    let refused = extend(&env, "ann", &order, &json!(901)).await;
    let detail = refused.is(400, "invalid_request").body["detail"].to_string();
    assert!(detail.contains("expected 900 at most"), "{detail}");
    let same = extend(&env, "ann", &order, &json!(900)).await;
    assert_eq!((same.status, &same.body["version"]), (200, &json!(1)));
}
