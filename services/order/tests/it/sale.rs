//! Many concurrent buyers.

use std::{
    collections::HashSet,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
};

use futures::future::join_all;
use serde_json::json;
use testkit::tested_in;

use crate::env::{Answer, Env, Options, TestEnv, open_each};

/// Sold units, and refusals by code, in the answers to a crowd.
struct Tally {
    orders: HashSet<String>,
    units: u64,
    sold_out: usize,
    limited: usize,
}

impl Tally {
    fn of(answers: &[Answer]) -> Self {
        let mut tally = Self {
            orders: HashSet::new(),
            units: 0,
            sold_out: 0,
            limited: 0,
        };
        for answer in answers {
            match (answer.status, answer.code()) {
                (201, _) => {
                    if tally.orders.insert(answer.id()) {
                        tally.units += answer.body["quantity"].as_u64().unwrap();
                    }
                }
                (409, "sold_out") => tally.sold_out += 1,
                (409, "buyer_limit_reached") => tally.limited += 1,
                _ => panic!("{answer:?}"),
            }
        }
        tally
    }
}

async fn crowd(env: &TestEnv, item: &str, buyers: usize, instances: usize) -> Vec<Answer> {
    let orders = (0..buyers).map(|buyer| {
        Answer::of(env.order_at(buyer % instances, item, &format!("buyer-{buyer}"), "k", 1))
    });
    join_all(orders).await
}

#[tested_in(open_each(Options::default().with_instances(2)))]
async fn a_crowd_gets_exactly_the_stock_with_any_number_of_segments(env: Env) {
    for (stock, segments, buyers) in [
        (40, 1, 150),
        (40, 3, 150),
        (41, 8, 150),
        (3, 8, 100),
        (1, 8, 64),
    ] {
        let item = json!({ "stock": stock, "segments": segments });
        let item = env.create(item).await;
        let tally = Tally::of(&crowd(&env, &item, buyers, 2).await);
        assert_eq!(
            (tally.units, tally.sold_out),
            (stock, buyers - usize::try_from(stock).unwrap()),
            "{segments} segments"
        );
        let shown = env.anyone_gets(&format!("/v1/items/{item}")).await.body;
        assert_eq!(
            (&shown["sold_out"], &shown["available"], &shown["held"]),
            (&json!(true), &json!(0), &json!(stock))
        );
    }
}

#[tested_in(open_each(Options::default().with_instances(3)))]
async fn the_last_unit_is_sold_once(env: Env) {
    for round in 0..5 {
        let item = json!({ "stock": 1, "segments": 1 + round });
        let item = env.create(item).await;
        let tally = Tally::of(&crowd(&env, &item, 64, 3).await);
        assert_eq!((tally.units, tally.sold_out), (1, 63));
    }
}

#[tested_in(open_each(Options::default().with_instances(3)))]
async fn concurrent_retries_at_several_instances_are_one_order(env: Env) {
    let item = env.create(json!({ "stock": 20, "segments": 3 })).await;
    for key in ["a", "b", "c"] {
        let retries =
            (0..30).map(|retry| Answer::of(env.order_at(retry % 3, &item, "ann", key, 1)));
        let answers = join_all(retries).await;
        assert!(
            answers
                .iter()
                .all(|answer| answer.status == 201 && answer.body == answers[0].body),
            "{answers:?}"
        );
        let first_time = answers
            .iter()
            .filter(|answer| answer.header("idempotent-replayed").is_none())
            .count();
        assert_eq!(first_time, 1, "all but one are replays");
    }
    assert_eq!(env.settled_audit(&item).await["held"], 3);
}

#[tested_in(open_each(Options::default().with_instances(3)))]
async fn a_buyer_never_holds_more_than_the_limit(env: Env) {
    // Small segments, so that many orders spill over.
    let item = json!({ "stock": 16, "segments": 8, "limit_per_buyer": 2 });
    let item = env.create(item).await;
    let keys = 0..10;
    let orders = keys.flat_map(|key| {
        let env = &env;
        let item = &item;
        (0..6).map(move |buyer| {
            Answer::of(env.order_at(
                key % 3,
                item,
                &format!("buyer-{buyer}"),
                &format!("key-{key}"),
                1,
            ))
        })
    });
    let answers = join_all(orders).await;
    let tally = Tally::of(&answers);
    assert_eq!(
        (tally.units, tally.limited),
        (12, 48),
        "six buyers, two each"
    );
    // An order above the limit is refused completely, and so is one that would exceed it.
    let refused = env.order(&item, "carol", "three", 3).await;
    refused.is(409, "buyer_limit_reached");
    env.order(&item, "carol", "one", 1).await.is_held();
    let refused = env.order(&item, "carol", "two", 2).await;
    refused.is(409, "buyer_limit_reached");
}

#[tested_in(open_each(Options::default().with_instances(2)))]
async fn a_winner_can_repeat_the_order_after_the_item_is_sold_out(env: Env) {
    let item = json!({ "stock": 30, "segments": 4, "limit_per_buyer": 1 });
    let item = env.create(item).await;
    let first = crowd(&env, &item, 100, 2).await;
    let second = crowd(&env, &item, 100, 2).await;
    for (first, second) in first.iter().zip(&second) {
        if first.status == 201 {
            assert_eq!((second.status, &second.body), (201, &first.body));
            assert_eq!(second.header("idempotent-replayed"), Some("true"));
        } else {
            second.is(409, "sold_out");
        }
    }
    let winner = first
        .iter()
        .position(|answer| answer.status == 201)
        .unwrap();
    env.order(&item, &format!("buyer-{winner}"), "another", 1)
        .await
        .is(409, "buyer_limit_reached");
}

#[tested_in(open_each(Options::default().with_instances(2)))]
async fn the_audit_finds_no_drift_at_any_moment_of_a_sale(env: Env) {
    let item = env.create(json!({ "stock": 5000, "segments": 4 })).await;
    let (over, audits) = (AtomicBool::new(false), AtomicUsize::new(0));
    let sale = async {
        // Repeats until several audits are done, however long one takes on this machine.
        for wave in 0.. {
            if wave >= 4 && audits.load(Ordering::Relaxed) > 7 {
                break;
            }
            assert!(wave < 50, "the sale ended before it was audited");
            let orders = (0..100).map(|n| {
                Answer::of(env.order_at(
                    n % 2,
                    &item,
                    &format!("buyer-{n}"),
                    &format!("k-{wave}"),
                    1,
                ))
            });
            for answer in join_all(orders).await {
                answer.is_held();
            }
        }
        over.store(true, Ordering::Relaxed);
    };
    let auditor = async {
        let paths = ["", "?full=true"].map(|full| format!("/v1/items/{item}/audit{full}"));
        for path in paths.iter().cycle() {
            if over.load(Ordering::Relaxed) {
                break;
            }
            let answer = env.admin_gets(path).await;
            if answer.status == 503 {
                // Ignore an audit that timed out on a busy machine.
                continue;
            }
            let audit = answer.body;
            assert_eq!(
                (&audit["drift"], &audit["oversold"], &audit["ok"]),
                (&json!(0), &json!(0), &json!(true)),
                "{audit:#}"
            );
            audits.fetch_add(1, Ordering::Relaxed);
        }
    };
    tokio::join!(sale, auditor);
}

#[tested_in(open_each(Options::default()))]
async fn orders_for_two_units_do_not_block_orders_for_the_last_single_units(env: Env) {
    let item = env.create(json!({ "stock": 4, "segments": 4 })).await;
    let crowd = (0..200).map(|n| Answer::of(env.order_at(0, &item, &format!("two-{n}"), "k", 2)));
    let ones = (0..4).map(|n| Answer::of(env.order_at(0, &item, &format!("one-{n}"), "k", 1)));
    let (crowd, ones) = tokio::join!(join_all(crowd), join_all(ones));
    for answer in crowd {
        answer.is(409, "sold_out");
    }
    for answer in ones {
        answer.is_held();
    }
}

#[tested_in(open_each(Options::default()))]
async fn an_audit_says_when_all_orders_were_compared(env: Env) {
    let item = env.create(json!({ "stock": 4, "segments": 2 })).await;
    let audit = async |query: &str| {
        let path = format!("/v1/items/{item}/audit{query}");
        env.admin_gets(&path).await
    };
    let placed = Answer::of(env.order_at(0, &item, "ann", "k", 1)).await;
    placed.is_held();
    env.settled_by(&format!("/v1/items/{item}/audit")).await;
    assert!(!env.has_sums(&item).await);
    let full = audit("?full=true").await.body;
    assert_eq!(full["orders_checked"]["current"], true, "{full:#}");
    assert!(env.has_sums(&item).await);
    let brief = audit("?full=false").await.body;
    assert_eq!(brief, full, "nothing has changed");
    let placed = Answer::of(env.order_at(0, &item, "bob", "k", 1)).await;
    placed.is_held();
    let moved = env.settled_by(&format!("/v1/items/{item}/audit")).await;
    assert_eq!(moved["held"], 2, "{moved:#}");
    assert_eq!(
        moved["orders_checked"],
        json!({ "at": full["orders_checked"]["at"], "current": false })
    );
    for wrong in ["?full", "?full=yes", "?Full=true", "?full=true&full=true"] {
        audit(wrong).await.is(400, "invalid_request");
    }
}
