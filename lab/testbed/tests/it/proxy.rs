//! A proxy between a client and a server.

use std::time::{Duration, Instant};

use ::redis::{aio::MultiplexedConnection, cmd};
use testbed::{Proxy, Redis, Traffic, eventually};

use crate::support::{ask, has};

async fn redis_behind_a_proxy() -> (Redis, Proxy, String) {
    let redis = Redis::start().await.unwrap();
    let proxy = Proxy::start(redis.port()).await.unwrap();
    let url = format!("redis://127.0.0.1:{}", proxy.port());
    (redis, proxy, url)
}

async fn set(url: &str, key: &str) -> ::redis::RedisResult<()> {
    ask(url, cmd("SET").arg(key).arg(1)).await
}

/// Whether a client that sets `a` gets no answer.
async fn gives_up(connection: &mut MultiplexedConnection) -> bool {
    let set = cmd("SET").arg("a").arg(1).to_owned();
    let answer = set.exec_async(connection);
    let answer = tokio::time::timeout(Duration::from_millis(200), answer).await;
    answer.is_err()
}

async fn receives(redis: &Redis, key: &str) {
    eventually("the arrival of the write", async || has(redis, key).await).await;
}

#[tokio::test]
async fn long_traffic_passes() {
    let (_redis, _proxy, url) = redis_behind_a_proxy().await;
    let long = "x".repeat(1_000_000);
    let () = ask(&url, cmd("SET").arg("a").arg(&long)).await.unwrap();
    assert_eq!(
        ask::<String>(&url, cmd("GET").arg("a")).await.unwrap(),
        long
    );
}

#[tokio::test]
async fn held_traffic_arrives_after_its_sender_has_given_up() {
    let (redis, proxy, url) = redis_behind_a_proxy().await;
    // A new connection starts with a handshake. Only the command must be held, so it is sent on an
    // existing connection.
    let mut connection = testbed::patient_connection(&url).await.unwrap();
    proxy.set(Traffic::Hold);
    assert!(gives_up(&mut connection).await && !has(&redis, "a").await);
    proxy.set(Traffic::Pass);
    receives(&redis, "a").await;
    assert!(set(&url, "b").await.is_ok());
}

#[tokio::test]
async fn a_command_whose_answer_is_held_is_carried_out() {
    let (redis, proxy, url) = redis_behind_a_proxy().await;
    let mut connection = testbed::patient_connection(&url).await.unwrap();
    proxy.set(Traffic::HoldAnswers);
    assert!(gives_up(&mut connection).await);
    receives(&redis, "a").await;
}

#[tokio::test]
async fn a_held_request_is_lost_by_a_reset() {
    let (redis, proxy, url) = redis_behind_a_proxy().await;
    let mut connection = testbed::patient_connection(&url).await.unwrap();
    proxy.set(Traffic::HoldRequests);
    assert!(gives_up(&mut connection).await);
    proxy.set(Traffic::Reset);
    assert!(
        set(&url, "b").await.unwrap_err().is_io_error(),
        "new connections are cut"
    );
    proxy.set(Traffic::Pass);
    set(&url, "c").await.unwrap();
    assert_eq!(
        (
            has(&redis, "a").await,
            has(&redis, "b").await,
            has(&redis, "c").await
        ),
        (false, false, true)
    );
}

#[tokio::test]
async fn delayed_traffic_arrives_later() {
    let (_redis, proxy, url) = redis_behind_a_proxy().await;
    let mut connection = testbed::patient_connection(&url).await.unwrap();
    proxy.set(Traffic::Delay(Duration::from_millis(60)));
    let sent = Instant::now();
    let () = cmd("SET")
        .arg("a")
        .arg(1)
        .query_async(&mut connection)
        .await
        .unwrap();
    assert!(
        sent.elapsed() >= Duration::from_millis(120),
        "there and back: {:?}",
        sent.elapsed()
    );
}

#[tokio::test]
async fn another_target_gets_the_new_connections_and_not_the_old_ones() {
    let (redis, proxy, url) = redis_behind_a_proxy().await;
    let other = Redis::start().await.unwrap();
    let mut old = testbed::patient_connection(&url).await.unwrap();
    proxy.set_target(other.port());
    set(&url, "new").await.unwrap();
    let () = cmd("SET")
        .arg("old")
        .arg(1)
        .query_async(&mut old)
        .await
        .unwrap();
    assert!(has(&other, "new").await && !has(&other, "old").await);
    assert!(has(&redis, "old").await && !has(&redis, "new").await);
}

#[tokio::test]
async fn dropping_a_proxy_cuts_its_connections() {
    let (_redis, proxy, url) = redis_behind_a_proxy().await;
    let mut connection = testbed::patient_connection(&url).await.unwrap();
    drop(proxy);
    assert!(cmd("PING").exec_async(&mut connection).await.is_err());
    assert!(set(&url, "a").await.is_err());
}
