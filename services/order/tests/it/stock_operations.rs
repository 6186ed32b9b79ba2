//! Making units more or fewer while they sell.

use std::time::Duration;

use futures::future::join_all;
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};

use crate::shop::{ADMIN, Answer, Options, Shop, open, open_each};

impl Shop {
    fn stock_request(&self, instance: usize, method: Method, item: &str) -> RequestBuilder {
        self.at(instance, method, &format!("/items/{item}/stock"))
            .bearer_auth(ADMIN)
    }

    pub async fn move_stock(&self, instance: usize, item: &str, key: &str, wish: &Value) -> Answer {
        Answer::of(
            self.stock_request(instance, Method::POST, item)
                .header("Idempotency-Key", key)
                .json(wish),
        )
        .await
    }

    async fn set_stock(&self, item: &str, version: &str, stock: u64) -> Answer {
        Answer::of(
            self.stock_request(0, Method::PUT, item)
                .header("If-Match", version)
                .json(&json!({ "stock": stock })),
        )
        .await
    }

    /// The item's `ETag`.
    pub async fn version(&self, item: &str) -> String {
        let shown = Answer::of(self.admin(Method::GET, &format!("/items/{item}"))).await;
        shown
            .header("etag")
            .expect("admins see the version")
            .to_owned()
    }
}

/// That units are where they shall be, and how many.
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

#[tokio::test(flavor = "multi_thread")]
async fn added_units_can_be_bought_and_a_repeat_adds_nothing() {
    open_each(
        Options {
            instances: 2,
            ..Options::reconciled()
        },
        async |shop| {
            let item = shop.create(json!({ "stock": 10, "segments": 3 })).await;
            let before = shop.version(&item).await;
            let adds = join_all((0..8).map(|n| {
                let (shop, item) = (&shop, &item);
                async move {
                    shop.move_stock(n % 2, item, "key-1", &json!({ "add": 5 }))
                        .await
                }
            }));
            for answer in adds.await {
                is_stocked(&answer, 15, 15);
            }
            assert_ne!(shop.version(&item).await, before);
            let again = shop
                .move_stock(1, &item, "key-1", &json!({ "add": 5 }))
                .await;
            is_stocked(&again, 15, 15);
            assert_eq!(again.header("etag"), Some(&*shop.version(&item).await));
            is_stocked(
                &shop
                    .move_stock(0, &item, "key-2", &json!({ "add": 1 }))
                    .await,
                16,
                16,
            );
            for n in 0..16 {
                shop.hold(&item, &format!("buyer-{n}"), "k").await;
            }
            shop.order(&item, "ann", "k", 1).await.is(409, "sold_out");
            let entries = shop.journal(&item, "top_up").await;
            let told: Vec<_> = entries
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
                told,
                [
                    (&admin, &json!(15), &json!(16)),
                    (&admin, &json!(10), &json!(15))
                ],
                "the latest first"
            );
        },
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_units_that_nobody_has_are_taken_back() {
    open_each(
        Options {
            instances: 2,
            ..Options::reconciled()
        },
        async |shop| {
            let item = shop.create(json!({ "stock": 10, "segments": 3 })).await;
            let held = shop.hold(&item, "ann", "k").await;
            let paid = shop.hold(&item, "bob", "k").await;
            shop.pay(&paid, "pay-1").await.is_now("confirmed");
            is_stocked(
                &shop
                    .move_stock(0, &item, "key-1", &json!({ "take_back": 3 }))
                    .await,
                7,
                5,
            );
            is_stocked(
                &shop
                    .move_stock(1, &item, "key-1", &json!({ "take_back": 3 }))
                    .await,
                7,
                5,
            );
            is_stocked(
                &shop
                    .move_stock(1, &item, "key-2", &json!({ "take_back": 100 }))
                    .await,
                2,
                0,
            );
            shop.order(&item, "carol", "k", 1).await.is(409, "sold_out");
            assert_eq!(
                shop.units(&item).await,
                [0, 1, 1],
                "what somebody has is somebody's"
            );
            shop.cancel("ann", &held).await.is_now("cancelled");
            assert_eq!(shop.units(&item).await, [1, 0, 1]);
            // The same request again: what it took it took then, whatever has come back since.
            for key in ["key-1", "key-2"] {
                let wish = if key == "key-1" {
                    json!({ "take_back": 3 })
                } else {
                    json!({ "take_back": 100 })
                };
                is_stocked(&shop.move_stock(0, &item, key, &wish).await, 2, 1);
            }
            let taken = shop.journal(&item, "taken_back").await;
            assert!(
                taken
                    .iter()
                    .all(|entry| entry["actor"] == "reconciler" && entry["token"].is_u64()),
                "{taken:?}"
            );
            let asked = shop.journal(&item, "take_back").await;
            assert_eq!(asked.len(), 2, "{asked:?}");
            let units: u64 = taken
                .iter()
                .map(|entry| {
                    entry["before"]["stock"].as_u64().unwrap()
                        - entry["after"]["stock"].as_u64().unwrap()
                })
                .sum();
            assert_eq!(units, 8);
        },
    )
    .await;
}

/// Where nothing could be taken there is a change all the same: its repeat must not take what came back since.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_found_nothing_to_take_finds_nothing_when_it_is_repeated() {
    open_each(Options::reconciled(), async |shop| {
        let item = shop.create(json!({ "stock": 2, "segments": 2 })).await;
        let orders = [
            shop.hold(&item, "ann", "k").await,
            shop.hold(&item, "bob", "k").await,
        ];
        is_stocked(
            &shop
                .move_stock(0, &item, "key-1", &json!({ "take_back": 5 }))
                .await,
            2,
            0,
        );
        shop.cancel("ann", &orders[0]).await.is_now("cancelled");
        assert_eq!(shop.units(&item).await, [1, 1, 0]);
        is_stocked(
            &shop
                .move_stock(0, &item, "key-1", &json!({ "take_back": 5 }))
                .await,
            2,
            1,
        );
        is_stocked(
            &shop
                .move_stock(0, &item, "key-2", &json!({ "take_back": 5 }))
                .await,
            1,
            0,
        );
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn units_come_and_go_in_a_rush_and_the_sums_hold() {
    open_each(
        Options {
            instances: 2,
            ..Options::reconciled()
        },
        async |shop| {
            let item = shop.create(json!({ "stock": 100, "segments": 4 })).await;
            let orders =
                join_all((0..150).map(|n| {
                    Answer::of(shop.order_at(n % 2, &item, &format!("buyer-{n}"), "k", 1))
                }));
            let (shop, item) = (&shop, &item);
            let adds = join_all((0..5).map(|n| async move {
                shop.move_stock(n % 2, item, &format!("add-{n}"), &json!({ "add": 7 }))
                    .await
            }));
            let takes = join_all((0..5).map(|n| async move {
                shop.move_stock(
                    n % 2,
                    item,
                    &format!("take-{n}"),
                    &json!({ "take_back": 11 }),
                )
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
            let [available, still_held, _] = shop.units(item).await;
            let taken = shop.journal(item, "taken_back").await;
            let taken: u64 = taken
                .iter()
                .map(|entry| {
                    entry["before"]["stock"].as_u64().unwrap()
                        - entry["after"]["stock"].as_u64().unwrap()
                })
                .sum();
            eprintln!("{held} held, {taken} of 55 taken back, {available} left");
            assert_eq!((still_held, available + held), (held, 135 - taken));
        },
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_stock_is_set_by_whoever_has_seen_the_latest_version() {
    open_each(Options::reconciled(), async |shop| {
        let item = shop.create(json!({ "stock": 10, "segments": 3 })).await;
        shop.hold(&item, "ann", "k").await;
        let seen = shop.version(&item).await;
        is_stocked(&shop.set_stock(&item, &seen, 15).await, 15, 14);
        let late = shop.set_stock(&item, &seen, 20).await;
        assert_eq!(late.is(412, "version_mismatch").body["field"], "If-Match");
        let seen = shop.version(&item).await;
        is_stocked(&shop.set_stock(&item, &seen, 15).await, 15, 14);
        assert_eq!(shop.version(&item).await, seen, "it had that stock");
        is_stocked(&shop.set_stock(&item, &seen, 4).await, 4, 3);
        let seen = shop.version(&item).await;
        let refused = shop.set_stock(&item, &seen, 0).await;
        assert_eq!(refused.is(409, "not_enough_unsold").body["field"], "stock");
        is_stocked(
            &shop.set_stock(&item, &shop.version(&item).await, 1).await,
            1,
            0,
        );
        let unseen = shop
            .stock_request(0, Method::PUT, &item)
            .json(&json!({ "stock": 3 }));
        assert_eq!(
            Answer::of(unseen).await.is(428, "if_match_required").body["field"],
            "If-Match"
        );
        assert_eq!(shop.units(&item).await, [0, 1, 0]);
        let actions: Vec<_> = shop
            .journal(&item, "top_up")
            .await
            .into_iter()
            .chain(shop.journal(&item, "take_back").await)
            .collect();
        assert_eq!(actions.len(), 3, "{actions:?}");
    })
    .await;
}

/// Nobody carries units until the test lets a reconciler in.
fn unreconciled() -> Options {
    Options {
        instances: 2,
        ..Options::default()
    }
}

async fn reconcile(shop: &Shop) {
    shop.start_reconciler(Options::reconciled().reconciler.unwrap())
        .await;
}

/// Waits until what was asked to be taken back has left.
async fn taken_back(shop: &Shop, item: &str) {
    while Answer::of(shop.admin(Method::GET, &format!("/items/{item}")))
        .await
        .body["taking_back"]
        != 0
    {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn asked_to_take_back(shop: &Shop, item: &str) {
    while shop.journal(item, "take_back").await.is_empty() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn while_units_are_being_taken_back_the_stock_cannot_be_set() {
    open_each(unreconciled(), async |shop| {
        let item = shop.create(json!({ "stock": 100, "segments": 3 })).await;
        let taking = shop.set_stock(&item, &shop.version(&item).await, 50).await;
        assert_eq!(
            (
                taking.status,
                &taking.body["stock"],
                &taking.body["taking_back"]
            ),
            (202, &json!(100), &json!(50)),
            "{taking:?}"
        );
        let seen = shop.version(&item).await;
        assert_eq!(taking.header("etag"), Some(&*seen));
        for wanted in [50, 100, 120, 0] {
            let refused = shop.set_stock(&item, &seen, wanted).await;
            assert_eq!(
                refused.is(409, "take_back_open").header("retry-after"),
                Some("1")
            );
        }
        let public = Answer::of(shop.anyone(Method::GET, &format!("/items/{item}"))).await;
        assert!(public.body.get("taking_back").is_none(), "{public:?}");
        reconcile(&shop).await;
        taken_back(&shop, &item).await;
        assert_eq!(shop.units(&item).await, [50, 0, 0]);
        shop.set_stock(&item, &seen, 50)
            .await
            .is(412, "version_mismatch");
        is_stocked(
            &shop.set_stock(&item, &shop.version(&item).await, 50).await,
            50,
            50,
        );
        assert_eq!(shop.journal(&item, "take_back").await.len(), 1);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_sets_the_stock_is_told_when_buyers_were_faster() {
    // How many are bought before those that should go have left, and what is said of it.
    for (bought, status, stock) in [(3, 200, 4), (8, 202, 8), (10, 409, 10)] {
        open_each(unreconciled(), async |shop| {
            let item = shop.create(json!({ "stock": 10, "segments": 1 })).await;
            let seen = shop.version(&item).await;
            let buying = async {
                asked_to_take_back(&shop, &item).await;
                for buyer in 0..bought {
                    shop.hold(&item, &format!("buyer-{buyer}"), "k").await;
                }
                reconcile(&shop).await;
            };
            let (set, ()) = tokio::join!(shop.set_stock(&item, &seen, 4), buying);
            if status == 409 {
                assert_eq!(set.is(409, "not_enough_unsold").body["field"], "stock");
            } else {
                assert_eq!(
                    (set.status, &set.body["stock"], &set.body["taking_back"]),
                    (status, &json!(stock), &json!(0)),
                    "{set:?}"
                );
            }
            assert_eq!(shop.units(&item).await, [stock - bought, bought, 0]);
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_several_who_set_the_stock_of_one_version_one_does() {
    open_each(
        Options {
            instances: 2,
            ..Options::reconciled()
        },
        async |shop| {
            let item = shop.create(json!({ "stock": 10, "segments": 3 })).await;
            for _ in 0..5 {
                let (seen, stock) = (shop.version(&item).await, shop.units(&item).await[0]);
                let wishes = (1..=6).map(|more| stock + more);
                let sets = join_all(wishes.clone().map(|wanted| {
                    let request = shop
                        .stock_request(usize::try_from(wanted % 2).unwrap(), Method::PUT, &item)
                        .header("If-Match", &seen);
                    Answer::of(request.json(&json!({ "stock": wanted })))
                }));
                let mut done = Vec::new();
                for (wanted, answer) in wishes.zip(sets.await) {
                    if answer.status == 412 {
                        answer.is(412, "version_mismatch");
                    } else {
                        is_stocked(&answer, wanted, wanted);
                        done.push(wanted);
                    }
                }
                assert_eq!(done.len(), 1, "{done:?}");
            }
        },
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_stands_for_another_change_of_stock_is_refused_and_nothing_is_changed() {
    open_each(
        Options {
            instances: 2,
            ..Options::reconciled()
        },
        async |shop| {
            let item = shop.create(json!({ "stock": 10, "segments": 3 })).await;
            let (add, take) = (
                |units: u64| json!({ "add": units }),
                |units: u64| json!({ "take_back": units }),
            );
            is_stocked(&shop.move_stock(0, &item, "key-1", &add(5)).await, 15, 15);
            shop.hold(&item, "ann", "k").await;
            // More than there are.
            is_stocked(&shop.move_stock(1, &item, "key-2", &take(20)).await, 1, 0);
            let version = shop.version(&item).await;
            for (key, wish) in [
                ("key-1", add(6)),
                ("key-1", add(4)),
                ("key-1", take(5)),
                ("key-2", take(14)),
                ("key-2", take(21)),
                ("key-2", add(20)),
            ] {
                let refused = shop.move_stock(1, &item, key, &wish).await;
                assert_eq!(
                    refused.is(422, "idempotency_key_reused").body["field"],
                    "Idempotency-Key",
                    "{key} {wish}"
                );
            }
            for (key, wish) in [("key-1", add(5)), ("key-2", take(20))] {
                is_stocked(&shop.move_stock(0, &item, key, &wish).await, 1, 0);
            }
            assert_eq!(
                (shop.version(&item).await, shop.units(&item).await),
                (version, [0, 1, 0])
            );
        },
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_move_that_names_another_version_moves_nothing() {
    open(Options::reconciled(), async |shop| {
        let item = shop.create(json!({ "stock": 10 })).await;
        let seen = shop.version(&item).await;
        shop.move_stock(0, &item, "key-1", &json!({ "add": 1 }))
            .await;
        let request = |key: &str, version: &str| {
            let request = shop
                .stock_request(0, Method::POST, &item)
                .header("Idempotency-Key", key)
                .header("If-Match", version);
            request.json(&json!({ "take_back": 1 }))
        };
        Answer::of(request("key-2", &seen))
            .await
            .is(412, "version_mismatch");
        let now = shop.version(&item).await;
        is_stocked(&Answer::of(request("key-2", &now)).await, 10, 10);
        is_stocked(&Answer::of(request("key-2", &now)).await, 10, 10);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_change_is_refused_by_the_name_of_the_field_and_changes_nothing() {
    open(Options::reconciled(), async |shop| {
        let item = shop.create(json!({ "stock": 10 })).await;
        let version = shop.version(&item).await;
        let moves = [
            (json!({}), "add"),
            (json!({ "add": 1, "take_back": 1 }), "add"),
            (json!({ "add": 0 }), "add"),
            (json!({ "add": -1 }), "add"),
            (json!({ "add": 1_000_000_000_000_u64 }), "add"),
            (json!({ "take_back": 0 }), "take_back"),
            (json!({ "take_back": "all" }), "take_back"),
            (json!({ "put": 1 }), "put"),
        ];
        for (wish, field) in moves {
            let refused = shop.move_stock(0, &item, "key", &wish).await;
            assert_eq!(
                refused.is(400, "invalid_request").body["field"],
                field,
                "{wish}"
            );
        }
        let keyless = shop
            .stock_request(0, Method::POST, &item)
            .json(&json!({ "add": 1 }));
        assert_eq!(
            Answer::of(keyless).await.is(400, "invalid_request").body["field"],
            "Idempotency-Key"
        );
        for wish in [
            json!({}),
            json!({ "stock": -1 }),
            json!({ "stock": null }),
            json!({ "stock": 1_000_000_000_001_u64 }),
        ] {
            let request = shop
                .stock_request(0, Method::PUT, &item)
                .header("If-Match", &version)
                .json(&wish);
            assert_eq!(
                Answer::of(request).await.is(400, "invalid_request").body["field"],
                "stock",
                "{wish}"
            );
        }
        for value in ["", "x", "\"x\"", "*", "-1", "W/\"1\""] {
            let request = shop
                .stock_request(0, Method::PUT, &item)
                .header("If-Match", value)
                .json(&json!({ "stock": 1 }));
            assert_eq!(
                Answer::of(request).await.is(400, "invalid_request").body["field"],
                "If-Match",
                "{value:?}"
            );
        }
        shop.move_stock(0, "no-such-item", "key", &json!({ "add": 1 }))
            .await
            .is(404, "item_not_found");
        shop.move_stock(0, "no-such-item", "key", &json!({ "take_back": 1 }))
            .await
            .is(404, "item_not_found");
        shop.set_stock("no-such-item", "\"1\"", 1)
            .await
            .is(404, "item_not_found");
        for (method, body) in [
            (Method::POST, json!({ "add": 1 })),
            (Method::PUT, json!({ "stock": 1 })),
        ] {
            let path = format!("/items/{item}/stock");
            let request = shop
                .buyer("ann", method, &path)
                .header("Idempotency-Key", "k")
                .header("If-Match", &version);
            Answer::of(request.json(&body))
                .await
                .is(401, "unauthorized");
        }
        assert_eq!(
            (shop.version(&item).await, shop.units(&item).await),
            (version, [10, 0, 0])
        );
        let journal = Answer::of(shop.admin(Method::GET, &format!("/items/{item}/journal"))).await;
        assert_eq!(journal.body, json!([]), "nothing was changed");
    })
    .await;
}
