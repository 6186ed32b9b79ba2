//! One PostgreSQL server.

use std::{fs, io, process::Command, time::Duration};

use testbed::{Postgres, TestbedError, postgres::PostgresKind};

use crate::{
    contract::Probe,
    support::{eventually, is_alive, reachable_folder},
};

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

impl Probe for PostgresKind {
    const WRITES: u32 = 1000;
    const KEPT: &'static str = "kept";
    const WRONG_SETTING: (&'static str, &'static str) = ("no_such_setting", "1");
    const COMPLAINT: &'static str = "no_such_setting";

    fn url(server: &Postgres) -> String {
        server.url("shop")
    }

    async fn write(server: &Postgres) {
        let url = server.create_database("shop").await.unwrap();
        sql(
            &url,
            "CREATE TABLE t (n int); INSERT INTO t SELECT generate_series(1, 1000)",
        )
        .unwrap();
    }

    async fn written(server: &Postgres, _timeout: Duration) -> io::Result<u32> {
        match sql(&server.url("shop"), "SELECT count(*) FROM t") {
            Ok(count) => Ok(count.parse().unwrap()),
            Err(error) if error.contains(r#"database "shop" does not exist"#) => Ok(0),
            Err(error) => Err(io::Error::other(error)),
        }
    }
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
