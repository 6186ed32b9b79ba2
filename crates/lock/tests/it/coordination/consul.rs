//! The test double of Consul.

use lock::{ConsulBuilder, Lock, LockError};
use testbed::in_time;
use testkit_macros::tested_in;
use tokio::time::sleep;

use super::{refuses_duration, refuses_url};
use crate::{
    contract::{TestEnv, consul::ConsulEnv, consul_double::Consul},
    stalls::unless_stalled,
    support::{becomes, is_free, ms, name},
};

#[tested_in(unless_stalled(ConsulEnv::LEASE))]
async fn the_token_is_the_lock_index_of_the_server() {
    let (env, name) = (ConsulEnv::shared().await, name("token"));
    let lock = env.client().await;
    for index in 1..=3 {
        let guard = lock.acquire(&name).await.unwrap();
        let entry = env.entry(&name).await.unwrap();
        assert_eq!(
            (guard.token().get(), entry["LockIndex"].as_i64()),
            (index, Some(index))
        );
        assert!(entry["Session"].is_string());
        guard.release().await.unwrap();
        let entry = env
            .entry(&name)
            .await
            .expect("a release leaves the key, and with it the index");
        assert!(entry.get("Session").is_none() && entry["LockIndex"] == index);
    }
}

#[tested_in(unless_stalled(ConsulEnv::LEASE))]
async fn no_session_is_left_behind() {
    let (env, name) = (ConsulEnv::own().await, name("sessions"));
    let (one, other) = (env.client().await, env.client().await);
    let guard = one.acquire(&name).await.unwrap().renewed();
    assert!(other.try_acquire(&name).await.is_err());
    assert!(other.acquire_within(&name, ms(200)).await.is_err());
    becomes("only the holder has a session", async || {
        env.consul().sessions() == 1
    })
    .await;
    guard.release().await.unwrap();
    // Cancelled after different times, at different steps.
    for us in (0..10_000).step_by(500) {
        let wait = std::time::Duration::from_micros(us);
        let _ = tokio::time::timeout(wait, one.acquire(&name)).await;
    }
    becomes("no client has a session", async || {
        env.consul().sessions() == 0
    })
    .await;
    is_free(other.try_acquire(&name)).await;
}

/// An attempt writes into the log of the cluster; waiting does not.
#[tested_in(unless_stalled(ConsulEnv::LEASE))]
async fn waiters_make_no_attempts_while_the_lock_is_held() {
    let (env, name) = (ConsulEnv::own().await, name("waits"));
    let guard = env.client().await.acquire(&name).await.unwrap().renewed();
    let other = env.client().await;
    let waiter = tokio::spawn({
        let name = name.clone();
        async move { other.acquire(&name).await }
    });
    // Longer than one blocking query.
    sleep(ConsulEnv::LEASE * 3 / 2).await;
    assert_eq!(env.consul().acquires(), 1);
    guard.release().await.unwrap();
    let next = in_time("the turn of the waiter", waiter).await.unwrap();
    let next = next.unwrap();
    assert_eq!(env.consul().acquires(), 2);
    next.release().await.unwrap();
}

/// A plain write changes the key and wakes all blocking queries.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plain_write_to_the_key_is_neither_a_loss_nor_a_release() {
    let (env, name) = (ConsulEnv::shared().await, name("other writes"));
    let guard = env.patient_client().await.acquire(&name).await.unwrap();
    let other = env.patient_client().await;
    let waiting = other.acquire_within(&name, ms(700));
    let writing = async {
        for _ in 0..3 {
            sleep(ms(100)).await;
            assert_eq!(
                reqwest::Client::new()
                    .put(env.key(&name))
                    .body("x")
                    .send()
                    .await
                    .unwrap()
                    .status(),
                200
            );
        }
    };
    let (waited, ()) = tokio::join!(waiting, writing);
    assert!(matches!(waited, Err(LockError::Held { .. })));
    assert!(!guard.is_lost());
    guard.release().await.unwrap();
}

/// No program should delete the key: that takes the lock from its holder.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deleted_key_is_a_loss_and_its_tokens_start_again() {
    let (env, name) = (ConsulEnv::shared().await, name("deleted"));
    let lock = env.patient_client().await;
    is_free(lock.acquire(&name)).await;
    let guard = lock.acquire(&name).await.unwrap();
    reqwest::Client::new()
        .delete(env.key(&name))
        .send()
        .await
        .unwrap();
    in_time("the report of the loss", guard.lost()).await;
    assert!(matches!(guard.release().await, Err(LockError::Lost { .. })));
    let guard = lock.acquire(&name).await.unwrap();
    assert_eq!(guard.token().get(), 1, "as the documentation warns");
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_that_the_servers_refuse_is_reported_with_their_reason() {
    // The client expects a lower limit than the server has.
    let server = Consul::start(ms(5000));
    let lock = ConsulBuilder::new(server.url())
        .session_ttl_min(ms(20))
        .lease(ms(2000))
        .build()
        .await
        .unwrap();
    let error = lock.acquire(&name("refused")).await.unwrap_err();
    assert!(
        matches!(error, LockError::NoQuorum { .. })
            && error.to_string().contains("Invalid Session TTL"),
        "{error}"
    );
}

#[tokio::test]
async fn invalid_settings_are_refused() {
    for url in [
        "",
        "127.0.0.1:8500",
        "https://host",
        "http://user@host",
        "http://host/v1",
        "http://host?x=1",
    ] {
        refuses_url(url, ConsulBuilder::new(url).build().await);
    }
    let builder = ConsulBuilder::new("http://127.0.0.1:1");
    for prefix in ["", "/locks", "locks/", "a//b", "a/../b", "a b", "ä"] {
        refuses_url(prefix, builder.clone().prefix(prefix).build().await);
    }
    assert!(builder.clone().prefix("a/b-c").build().await.is_ok());
    refuses_duration("lease", builder.clone().lease(ms(9_999)).build().await);
    refuses_duration(
        "lock_delay",
        builder.clone().lock_delay(ms(60_001)).build().await,
    );
    refuses_duration("timeout", builder.clone().timeout(ms(10_000)).build().await);
    assert!(!format!("{:?}", builder.token("secret")).contains("secret"));
}
