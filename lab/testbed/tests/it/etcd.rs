//! One etcd server.

use std::{path::PathBuf, time::Duration};

use testbed::{Etcd, LocalError, TestbedError, timeout};

use crate::support::{SILENCE, exchange_within, is_alive};

/// Sends a request to the JSON gateway. Keys and values are in base 64: `YQ==` is `a`, `MQ==` is
/// `1`.
fn post(etcd: &Etcd, path: &str, body: &str) -> std::io::Result<String> {
    post_within(timeout(), etcd, path, body)
}

fn post_within(timeout: Duration, etcd: &Etcd, path: &str, body: &str) -> std::io::Result<String> {
    let head = format!(
        "POST /v3/{path} HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    exchange_within(timeout, etcd.port(), format!("{head}{body}").as_bytes())
}

fn put_a(etcd: &Etcd) {
    let answer = post(etcd, "kv/put", r#"{"key":"YQ==","value":"MQ=="}"#).unwrap();
    assert!(answer.contains(r#""revision":"2""#), "{answer}");
}

fn has_a(etcd: &Etcd) -> bool {
    post(etcd, "kv/range", r#"{"key":"YQ=="}"#)
        .unwrap()
        .contains(r#""value":"MQ==""#)
}

#[tokio::test]
async fn acknowledged_writes_survive_kill_and_restart() {
    let mut etcd = Etcd::start().await.unwrap();
    assert!(!has_a(&etcd));
    put_a(&etcd);
    let (url, pid) = (etcd.url(), etcd.pid());
    etcd.kill().await.unwrap();
    assert!(post(&etcd, "kv/range", "{}").is_err());
    etcd.restart().await.unwrap();
    assert_eq!(etcd.url(), url);
    assert_ne!(etcd.pid(), pid);
    assert!(has_a(&etcd));
    etcd.stop().await.unwrap();
}

#[tokio::test]
async fn a_lease_may_be_as_short_as_a_second() {
    let etcd = Etcd::start().await.unwrap();
    let answer = post(&etcd, "lease/grant", r#"{"TTL":1}"#).unwrap();
    assert!(answer.contains(r#""TTL":"1""#), "{answer}");
}

#[tokio::test]
async fn a_paused_server_is_silent_until_it_is_resumed() {
    let etcd = Etcd::start().await.unwrap();
    etcd.pause().await.unwrap();
    assert!(post_within(SILENCE, &etcd, "kv/range", "{}").is_err());
    etcd.resume().await.unwrap();
    put_a(&etcd);
}

#[tokio::test]
async fn a_killed_server_reports_that_it_is_not_running() {
    let mut etcd = Etcd::start().await.unwrap();
    etcd.kill().await.unwrap();
    assert!(matches!(
        etcd.pause().await,
        Err(TestbedError::Local(LocalError::NotRunning { .. }))
    ));
    etcd.kill().await.expect("killing twice is killing once");
}

#[tokio::test]
async fn a_dropped_or_stopped_server_is_gone_with_its_folder() {
    let (dropped, stopped) = (Etcd::start().await.unwrap(), Etcd::start().await.unwrap());
    let left = [&dropped, &stopped].map(|server| (server.pid(), PathBuf::from(server.dir())));
    assert!(
        left.iter()
            .all(|(pid, folder)| is_alive(*pid) && folder.exists())
    );
    drop(dropped);
    stopped.stop().await.unwrap();
    assert!(
        left.iter()
            .all(|(pid, folder)| !is_alive(*pid) && !folder.exists())
    );
}

#[tokio::test]
async fn another_etcd_on_a_fixed_port_is_not_taken_for_ours() {
    let first = Etcd::start().await.unwrap();
    let outcome = Etcd::builder().port(first.port()).start().await;
    assert!(
        matches!(outcome, Err(TestbedError::Local(LocalError::PortTaken { port })) if port == first.port())
    );
    put_a(&first);
}

#[tokio::test]
async fn concurrently_started_servers_are_different_servers() {
    let (a, b, c) = tokio::join!(Etcd::start(), Etcd::start(), Etcd::start());
    let (a, b, c) = (a.unwrap(), b.unwrap(), c.unwrap());
    assert!(a.port() != b.port() && b.port() != c.port() && a.port() != c.port());
    put_a(&a);
    assert!(!has_a(&b) && !has_a(&c));
}

#[tokio::test]
async fn a_kept_folder_keeps_its_data_on_another_port() {
    let folder = tempfile::tempdir().unwrap();
    let kept = folder.path().join("with a space");
    let etcd = Etcd::builder().dir(&kept).start().await.unwrap();
    put_a(&etcd);
    let port = etcd.port();
    etcd.stop().await.unwrap();
    let etcd = Etcd::builder().dir(&kept).start().await.unwrap();
    assert_ne!(etcd.port(), port);
    assert!(has_a(&etcd));
}

#[tokio::test]
async fn the_error_of_a_failed_start_quotes_the_log() {
    let error = Etcd::builder()
        .config("election-timeout", "11")
        .start()
        .await
        .err()
        .unwrap();
    assert!(matches!(
        error,
        TestbedError::Local(LocalError::EndedAtStart { .. })
    ));
    assert!(
        error.to_string().contains("election-timeout[11ms]"),
        "{error}"
    );
}

#[tokio::test]
async fn a_start_can_be_spawned() {
    let etcd = tokio::spawn(Etcd::start()).await.unwrap().unwrap();
    tokio::spawn(etcd.stop()).await.unwrap().unwrap();
}
