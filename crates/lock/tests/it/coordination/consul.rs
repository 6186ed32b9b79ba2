//! Consul, or rather its double.

use std::time::Instant;

use lock::{ConsulBuilder, InvalidArgument, LockError};
use tokio::time::{sleep, timeout};

use crate::{
    contract::{PATIENCE, Site, consul::ConsulSite},
    site::{becomes, ms, name},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_token_is_the_lock_index_of_the_server() {
    let (site, name) = (ConsulSite::shared().await, name("token"));
    let lock = site.client().await;
    for index in 1..=3 {
        let guard = lock.acquire(&name).await.unwrap();
        let entry = site.entry(&name).await.unwrap();
        assert_eq!(
            (guard.token().get(), entry["LockIndex"].as_i64()),
            (index, Some(index))
        );
        assert!(entry["Session"].is_string());
        guard.release().await.unwrap();
        let entry = site
            .entry(&name)
            .await
            .expect("a release leaves the key, and with it the index");
        assert!(entry.get("Session").is_none() && entry["LockIndex"] == index);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_session_is_left_behind() {
    let (site, name) = (ConsulSite::own().await, name("sessions"));
    let (one, other) = (site.client().await, site.client().await);
    let guard = one.acquire(&name).await.unwrap().renewed();
    assert!(other.try_acquire(&name).await.is_err());
    assert!(other.acquire_within(&name, ms(200)).await.is_err());
    becomes("only the holder has one", async || {
        site.consul().sessions() == 1
    })
    .await;
    guard.release().await.unwrap();
    // Cancelled wherever it may be.
    for us in (0..10_000).step_by(500) {
        let _ = timeout(std::time::Duration::from_micros(us), one.acquire(&name)).await;
    }
    becomes("nobody has one", async || site.consul().sessions() == 0).await;
    other
        .try_acquire(&name)
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
}

/// To ask is to write into the log of the cluster; to wait is not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn those_who_wait_do_not_ask() {
    let (site, name) = (ConsulSite::own().await, name("waits"));
    let guard = site.client().await.acquire(&name).await.unwrap().renewed();
    let other = site.client().await;
    let waiter = tokio::spawn({
        let name = name.clone();
        async move { other.acquire(&name).await }
    });
    // For longer than one question waits.
    sleep(ConsulSite::LEASE * 3 / 2).await;
    assert_eq!(site.consul().acquires(), 1);
    let since = Instant::now();
    guard.release().await.unwrap();
    let next = timeout(PATIENCE, waiter).await.unwrap().unwrap().unwrap();
    assert!(
        since.elapsed() < ms(1000) && site.consul().acquires() == 2,
        "{:?}",
        since.elapsed()
    );
    next.release().await.unwrap();
}

/// A write that knows nothing of the lock changes the key under everybody who watches it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_that_frees_nothing_is_no_loss_and_no_release() {
    let (site, name) = (ConsulSite::shared().await, name("other writes"));
    let guard = site.client().await.acquire(&name).await.unwrap();
    let other = site.client().await;
    let waiting = other.acquire_within(&name, ms(700));
    let writing = async {
        for _ in 0..3 {
            sleep(ms(100)).await;
            assert_eq!(
                reqwest::Client::new()
                    .put(site.key(&name))
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

/// Nobody should delete it. Whoever does takes the lock from its holder.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_is_deleted_is_a_loss_and_its_tokens_begin_anew() {
    let (site, name) = (ConsulSite::shared().await, name("deleted"));
    let lock = site.client().await;
    lock.acquire(&name).await.unwrap().release().await.unwrap();
    let guard = lock.acquire(&name).await.unwrap();
    reqwest::Client::new()
        .delete(site.key(&name))
        .send()
        .await
        .unwrap();
    timeout(ms(500), guard.lost()).await.expect("it is told");
    assert!(matches!(guard.release().await, Err(LockError::Lost { .. })));
    let guard = lock.acquire(&name).await.unwrap();
    assert_eq!(guard.token().get(), 1, "as the documentation warns");
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_that_the_servers_refuse_is_an_error_that_says_so() {
    let site = ConsulSite::shared().await;
    let lock = ConsulBuilder::new(site.consul().url())
        .session_ttl_min(ms(20))
        .lease(ms(50))
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
async fn bad_settings_are_refused() {
    for url in [
        "",
        "127.0.0.1:8500",
        "https://host",
        "http://user@host",
        "http://host/v1",
        "http://host?x=1",
    ] {
        assert!(
            matches!(
                ConsulBuilder::new(url).build().await,
                Err(InvalidArgument::Url { .. })
            ),
            "{url:?}"
        );
    }
    let builder = ConsulBuilder::new("http://127.0.0.1:1");
    for prefix in ["", "/locks", "locks/", "a//b", "a/../b", "a b", "ä"] {
        assert!(
            matches!(
                builder.clone().prefix(prefix).build().await,
                Err(InvalidArgument::Url { .. })
            ),
            "{prefix:?}"
        );
    }
    assert!(builder.clone().prefix("a/b-c").build().await.is_ok());
    assert!(matches!(
        builder.clone().lease(ms(9_999)).build().await,
        Err(InvalidArgument::Duration {
            setting: "lease",
            ..
        })
    ));
    assert!(matches!(
        builder.clone().lock_delay(ms(60_001)).build().await,
        Err(InvalidArgument::Duration {
            setting: "lock_delay",
            ..
        })
    ));
    assert!(matches!(
        builder.clone().timeout(ms(10_000)).build().await,
        Err(InvalidArgument::Duration {
            setting: "timeout",
            ..
        })
    ));
    assert!(!format!("{:?}", builder.token("secret")).contains("secret"));
}
