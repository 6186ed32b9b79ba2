//! Limits of the rate of requests, over HTTP.

use std::{
    num::NonZeroU32,
    time::{Duration, Instant},
};

use futures::future::join_all;
use order::{ForwardedHeader, Limits, Rate, RateLimits};
use reqwest::Method;
use serde_json::json;
use testkit::tested_in;

use crate::env::{Answer, Env, Options, TestEnv, open, patient};

const HOUR: Duration = Duration::from_secs(3600);

fn rate(interval: Duration, burst: u32) -> Option<Rate> {
    Rate::new(interval, NonZeroU32::new(burst)?)
}

fn limited(rates: RateLimits) -> Options {
    let limits = Limits { rates, ..patient() };
    Options {
        limits,
        ..Options::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_buyer_above_the_rate_is_refused_and_others_buy() {
    let rates = RateLimits {
        buyer: rate(HOUR, 5),
        exempt_items: vec!["rates-exempt".parse().unwrap()],
        ..RateLimits::default()
    };
    open(limited(rates), async |env| {
        let item = env.create(json!({ "stock": 100 })).await;
        let began = Instant::now();
        let keys: Vec<_> = (0..40).map(|n| format!("key-{n}")).collect();
        let flood = join_all(keys.iter().map(|key| env.order(&item, "ann", key, 1))).await;
        let held = flood.iter().filter(|answer| answer.status == 201).count();
        assert_eq!(held, 5, "the burst");
        for answer in flood.into_iter().filter(|answer| answer.status != 201) {
            let answer = answer.is(429, "too_many_requests");
            let seconds: u32 = answer.header("retry-after").unwrap().parse().unwrap();
            let passed = u32::try_from(began.elapsed().as_secs()).unwrap() + 1;
            assert!((3600 - passed..=3600).contains(&seconds), "{seconds}");
            assert_eq!(
                answer.header("ratelimit-policy"),
                Some("\"buyer\";q=5;w=18000")
            );
            let left = format!("\"buyer\";r=0;t={seconds}");
            assert_eq!(answer.header("ratelimit"), Some(&*left));
        }
        for n in 0..20 {
            let placed = env.order(&item, &format!("buyer-{n}"), "k", 1).await;
            placed.is_held();
        }
        // The limit is the buyer's, on each path that needs the buyer's token.
        let refused = env.buyer_gets("ann", "/v1/orders/x").await;
        refused.is(429, "too_many_requests");
        // An item that is exempt.
        Answer::of(env.buyer("ann", Method::POST, "/v1/items/rates-exempt/orders"))
            .await
            .is(400, "invalid_request");
        assert_eq!(env.settled_audit(&item).await["held"], 25);
    })
    .await;
}

#[tested_in(open(limited(RateLimits {
    buyer: rate(Duration::from_millis(500), 1),
    ..RateLimits::default()
})))]
async fn a_rate_admits_again_after_the_time_that_it_told(env: Env) {
    let item = env.create(json!({ "stock": 100 })).await;
    let mut refused = 0;
    for n in 0..4 {
        let key = format!("key-{n}");
        loop {
            let answer = env.order(&item, "ann", &key, 1).await;
            if answer.status == 201 {
                break;
            }
            let told = answer.is(429, "too_many_requests");
            assert_eq!(told.header("retry-after"), Some("1"));
            refused += 1;
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }
    assert!(refused <= 3, "after the time, the next one is admitted");
    assert_eq!(env.settled_audit(&item).await["held"], 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cart_counts_as_many_requests_as_it_has_lines() {
    let of_buyer = RateLimits {
        buyer: rate(HOUR, 5),
        ..RateLimits::default()
    };
    // The items are created over the same connection, so the peer has more.
    let of_peer = RateLimits {
        peer: rate(HOUR, 8),
        ..RateLimits::default()
    };
    for (rates, policy) in [
        (of_buyer, "\"buyer\";q=5;w=18000"),
        (of_peer, "\"peer\";q=8;w=28800"),
    ] {
        open(limited(rates), async |env| {
            let began = Instant::now();
            let mut items = Vec::new();
            for _ in 0..3 {
                items.push(env.create(json!({ "stock": 9 })).await);
            }
            let lines: Vec<_> = items.iter().map(|item| (&**item, 1)).collect();
            env.cart("ann", "k", &lines).await.is_held();
            let refused = env.cart("ann", "l", &lines).await;
            refused.is(429, "too_many_requests");
            assert_eq!(refused.header("ratelimit-policy"), Some(policy));
            assert!(refused.header("ratelimit").is_some());
            let seconds: u32 = refused.header("retry-after").unwrap().parse().unwrap();
            let passed = u32::try_from(began.elapsed().as_secs()).unwrap() + 1;
            assert!((3600 - passed..=7200).contains(&seconds), "{seconds}");
            for item in &items {
                let id = item.parse().unwrap();
                let ledger = &env.engines[0].ledger;
                let orders = ledger.list_item_orders(&id, None, None, 9).await.unwrap();
                assert_eq!(orders.rows.len(), 1, "nothing was written");
                env.forget_item(item);
            }
        })
        .await;
    }
}

#[tested_in(open(limited(RateLimits {
    peer: rate(HOUR, 6),
    ..RateLimits::default()
})))]
async fn a_read_of_several_items_counts_as_many_requests_as_it_reads(env: Env) {
    let items_named = async |ids: &str| {
        let path = format!("/v1/items:batch?ids={ids}");
        env.anyone_gets(&path).await
    };
    let first = items_named("a,b,c,d").await;
    assert_eq!((first.status, &first.body["data"]), (200, &json!([])));
    items_named("e,f,g").await.is(429, "too_many_requests");
    // The refused request has been counted itself.
    assert_eq!(items_named("h").await.status, 200);
    items_named("i").await.is(429, "too_many_requests");
}

async fn status_of(env: &TestEnv, path: &str, forwarded: &str) -> u16 {
    let request = env.anyone(Method::GET, path);
    Answer::of(request.header("Forwarded", forwarded))
        .await
        .status
}

#[tested_in(open(limited(RateLimits {
    peer: rate(HOUR, 10),
    ..RateLimits::default()
})))]
async fn a_peer_above_the_rate_is_refused_without_a_token_and_probes_are_answered(env: Env) {
    for n in 0..30 {
        // No proxy is trusted, so the header changes nothing.
        let status = status_of(&env, "/v1/items/unknown", &format!("for=192.0.2.{n}")).await;
        assert_eq!(status, if n < 10 { 404 } else { 429 }, "request {n}");
    }
    for path in ["/healthz", "/readyz", "/metrics"] {
        assert_eq!(status_of(&env, path, "").await, 200, "{path}");
    }
}

fn behind_a_proxy(forwarded_header: ForwardedHeader) -> Options {
    limited(RateLimits {
        peer: rate(HOUR, 2),
        trusted_proxies: vec!["127.0.0.0/8".parse().unwrap()],
        forwarded_header,
        ..RateLimits::default()
    })
}

#[tested_in(open(behind_a_proxy(ForwardedHeader::Forwarded)))]
async fn behind_a_trusted_proxy_each_client_has_its_own_limit(env: Env) {
    for client in ["192.0.2.1", "192.0.2.2", "\"[2001:db8::1]:80\""] {
        for expected in [404, 404, 429] {
            let forwarded = format!("for=198.51.100.1, for={client}");
            let status = status_of(&env, "/v1/items/unknown", &forwarded).await;
            assert_eq!(status, expected, "{client}");
        }
    }
}

#[tested_in(open(behind_a_proxy(ForwardedHeader::default())))]
async fn a_client_chooses_no_address_with_the_header_that_its_proxy_passes_on(env: Env) {
    let status = async |client: &str, forwarded: &str| {
        let request = env
            .anyone(Method::GET, "/v1/items/unknown")
            .header("X-Forwarded-For", client)
            .header("Forwarded", forwarded);
        Answer::of(request).await.status
    };
    for (n, expected) in [404, 404, 429, 429, 429].into_iter().enumerate() {
        let forwarded = format!("for=192.0.2.{n}");
        assert_eq!(status("203.0.113.9", &forwarded).await, expected, "{n}");
    }
    assert_eq!(status("203.0.113.9", "for=unknown").await, 429);
    for n in 0..5 {
        let status = status(&format!("192.0.2.{n}"), "").await;
        assert_eq!(status, 404, "an address that another client named");
    }
}

#[tested_in(open(behind_a_proxy(ForwardedHeader::Forwarded)))]
async fn a_proxy_that_names_no_client_has_the_limit_of_its_own_address(env: Env) {
    for (forwarded, expected) in [
        ("for=unknown", 404),
        ("for=192.0.2.1, for=_hidden", 404),
        ("for=unknown", 429),
        ("garbage", 429),
        ("for=192.0.2.1", 404),
    ] {
        let status = status_of(&env, "/v1/items/unknown", forwarded).await;
        assert_eq!(status, expected, "{forwarded}");
    }
}

#[tested_in(open(limited(RateLimits {
    peer: rate(HOUR, 2),
    buyer: rate(HOUR, 3),
    trusted_proxies: vec!["127.0.0.0/8".parse().unwrap()],
    exempt_peers: vec!["10.0.0.0/8".parse().unwrap()],
    ..RateLimits::default()
})))]
async fn a_client_of_an_exempt_network_has_no_limit_and_a_buyer_behind_it_has(env: Env) {
    let from = async |client: &str, buyer: Option<&str>| {
        let path = "/v1/orders";
        let request = match buyer {
            Some(buyer) => env.buyer(buyer, Method::GET, path),
            None => env.anyone(Method::GET, path),
        };
        let request = request.header("X-Forwarded-For", client);
        Answer::of(request).await.status
    };
    for _ in 0..20 {
        assert_eq!(from("10.1.2.3", None).await, 401);
    }
    for expected in [401, 401, 429] {
        assert_eq!(from("10.1.2.3, 192.0.2.1", None).await, expected);
    }
    for expected in [200, 200, 200, 429] {
        assert_eq!(from("10.1.2.3", Some("ann")).await, expected);
    }
}
