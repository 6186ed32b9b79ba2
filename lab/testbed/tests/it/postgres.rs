//! One PostgreSQL server.

use std::{fs, process::Command};

use testbed::{LocalError, Postgres, TestbedError};

use crate::support::{eventually, is_alive, reachable_folder};

/// Runs SQL with `psql` and returns what it prints, or its error message.
fn sql(url: &str, text: &str) -> Result<String, String> {
    let output = Command::new("psql")
        .args([
            "-X",
            "-w",
            "-q",
            "-A",
            "-t",
            "-v",
            "ON_ERROR_STOP=1",
            "-c",
            text,
            url,
        ])
        .output()
        .unwrap();
    if output.status.success() {
        Ok(String::from_utf8(output.stdout).unwrap().trim().into())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into())
    }
}

#[tokio::test]
async fn commits_survive_kill_and_restart() {
    let mut postgres = Postgres::start().await.unwrap();
    let url = postgres.create_database("shop").await.unwrap();
    sql(
        &url,
        "CREATE TABLE t (n int); INSERT INTO t SELECT generate_series(1, 1000)",
    )
    .unwrap();
    let pid = postgres.pid();
    postgres.kill().await.unwrap();
    assert!(sql(&url, "SELECT 1").is_err());
    postgres.restart().await.unwrap();
    assert_ne!(postgres.pid(), pid);
    assert_eq!(sql(&url, "SELECT count(*) FROM t").unwrap(), "1000");
    postgres.stop().await.unwrap();
}

#[tokio::test]
async fn a_kill_ends_the_sessions_too() {
    let mut postgres = Postgres::start().await.unwrap();
    let url = postgres.url("postgres");
    let mut session = Command::new("psql")
        .args(["-X", "-w", "-c", "SELECT pg_sleep(3600)", &url])
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let sleeping = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'PgSleep'";
    eventually("the session's start", || {
        !sql(&url, sleeping).unwrap().is_empty()
    });
    let backend = sql(&url, sleeping).unwrap().parse().unwrap();
    postgres.kill().await.unwrap();
    assert!(!is_alive(backend));
    assert!(!session.wait().unwrap().success());
}

#[tokio::test]
async fn each_database_has_its_own_url() {
    let postgres = Postgres::start().await.unwrap();
    for name in ["a", "with space and \"quotes\"", "--looks-like-an-option"] {
        postgres.create_database(name).await.unwrap();
    }
    let url = postgres.create_database("b").await.unwrap();
    assert_eq!(
        url,
        format!("postgres://postgres@127.0.0.1:{}/b", postgres.port())
    );
    assert_eq!(sql(&url, "SELECT current_database()").unwrap(), "b");
}

#[tokio::test]
async fn a_database_is_not_created_twice() {
    let postgres = Postgres::start().await.unwrap();
    postgres.create_database("a").await.unwrap();
    let error = postgres.create_database("a").await.unwrap_err();
    assert!(matches!(error, TestbedError::Program { .. }));
    assert!(error.to_string().contains("already exists"), "{error}");
}

#[tokio::test]
async fn databases_can_be_created_concurrently() {
    let postgres = Postgres::start().await.unwrap();
    let (a, b, c) = tokio::join!(
        postgres.create_database("a"),
        postgres.create_database("b"),
        postgres.create_database("c")
    );
    assert!(a.is_ok() && b.is_ok() && c.is_ok());
}

#[tokio::test]
async fn commits_are_flushed_and_settings_are_used() {
    let postgres = Postgres::builder()
        .config("max_connections", "17")
        .start()
        .await
        .unwrap();
    let url = postgres.url("postgres");
    for (key, value) in [
        ("fsync", "on"),
        ("synchronous_commit", "on"),
        ("max_connections", "17"),
        ("unix_socket_directories", ""),
    ] {
        assert_eq!(sql(&url, &format!("SHOW {key}")).unwrap(), value, "{key}");
    }
}

#[tokio::test]
async fn concurrently_started_servers_are_different_servers() {
    let (a, b) = tokio::join!(Postgres::start(), Postgres::start());
    let (a, b) = (a.unwrap(), b.unwrap());
    assert_ne!(a.port(), b.port());
    a.create_database("only_in_a").await.unwrap();
    assert!(sql(&b.url("only_in_a"), "SELECT 1").is_err());
}

#[tokio::test]
async fn a_fixed_port_that_is_taken_is_an_error() {
    let first = Postgres::start().await.unwrap();
    let outcome = Postgres::builder().port(first.port()).start().await;
    assert!(matches!(
        outcome,
        Err(TestbedError::Local(LocalError::PortTaken { .. }))
    ));
}

#[tokio::test]
async fn a_kept_folder_keeps_its_data() {
    let folder = reachable_folder();
    let kept = folder.path().join("kept");
    let postgres = Postgres::builder().dir(&kept).start().await.unwrap();
    postgres.create_database("a").await.unwrap();
    drop(postgres);
    let postgres = Postgres::builder().dir(&kept).start().await.unwrap();
    assert_eq!(sql(&postgres.url("a"), "SELECT 1").unwrap(), "1");
}

#[tokio::test]
async fn an_interrupted_first_start_is_repaired() {
    let folder = reachable_folder();
    fs::create_dir_all(folder.path().join("kept/data.unfinished/base")).unwrap();
    let postgres = Postgres::builder()
        .dir(folder.path().join("kept"))
        .start()
        .await
        .unwrap();
    assert_eq!(sql(&postgres.url("postgres"), "SELECT 1").unwrap(), "1");
}

#[tokio::test]
async fn the_error_of_a_failed_start_quotes_the_log() {
    let error = Postgres::builder()
        .config("no_such_setting", "1")
        .start()
        .await
        .err()
        .unwrap();
    assert!(matches!(
        error,
        TestbedError::Local(LocalError::EndedAtStart { .. })
    ));
    assert!(error.to_string().contains("no_such_setting"), "{error}");
}

#[tokio::test]
async fn a_start_can_be_spawned() {
    let postgres = tokio::spawn(Postgres::start()).await.unwrap().unwrap();
    tokio::spawn(postgres.stop()).await.unwrap().unwrap();
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_server_uses_the_given_clock() {
    let clock = testbed::Clock::new().await.unwrap();
    let postgres = Postgres::builder()
        .clock(&clock)
        .await
        .unwrap()
        .start()
        .await
        .unwrap();
    let seconds = || {
        sql(
            &postgres.url("postgres"),
            "SELECT floor(extract(epoch FROM clock_timestamp()))",
        )
        .unwrap()
        .parse::<i64>()
        .unwrap()
    };
    let before = seconds();
    clock.set(60_000).unwrap();
    assert!((60..=70).contains(&(seconds() - before)));
}

#[tokio::test]
async fn a_standby_follows_and_writes_only_after_its_promotion() {
    let mut primary = Postgres::start().await.unwrap();
    let url = primary.create_database("shop").await.unwrap();
    sql(&url, "CREATE TABLE t (n int); INSERT INTO t VALUES (1)").unwrap();
    let mut standby = primary.standby().await.unwrap();
    let copy = standby.url("shop");
    let count = || sql(&copy, "SELECT count(*) FROM t").unwrap();
    assert_eq!(count(), "1");
    sql(&url, "INSERT INTO t VALUES (2)").unwrap();
    eventually("the second row", || count() == "2");
    let refused = sql(&copy, "INSERT INTO t VALUES (3)").unwrap_err();
    assert!(refused.contains("read-only transaction"), "{refused}");
    standby.restart().await.unwrap();
    assert_eq!(sql(&copy, "SELECT pg_is_in_recovery()").unwrap(), "t");
    primary.kill().await.unwrap();
    standby.promote().await.unwrap();
    sql(&copy, "INSERT INTO t VALUES (3)").unwrap();
    assert_eq!(count(), "3");
}
