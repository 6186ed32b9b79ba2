//! One MariaDB server.

use std::{fs, path::PathBuf, process::Command};

use testbed::{LocalError, MariaDb, TestbedError, timeout};

use crate::support::is_alive;

/// Runs SQL with `mariadb` and returns what it prints, or its error message.
fn sql(port: u16, db: &str, text: &str) -> Result<String, String> {
    sql_within(timeout().as_secs(), port, db, text)
}

/// The same with a time-out of the connection.
fn sql_within(seconds: u64, port: u16, db: &str, text: &str) -> Result<String, String> {
    let mut command = Command::new("mariadb");
    command.args([
        "--no-defaults",
        "--protocol=tcp",
        "-h127.0.0.1",
        "-uroot",
        "-N",
        "-B",
    ]);
    let output = command
        .arg(format!("--connect-timeout={seconds}"))
        .args([&format!("-P{port}"), "-D", db, "-e", text])
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
    let mut mariadb = MariaDb::start().await.unwrap();
    mariadb.create_database("shop").await.unwrap();
    sql(
        mariadb.port(),
        "shop",
        "CREATE TABLE t (n int) ENGINE=InnoDB; INSERT INTO t SELECT seq FROM mysql.seq_1_to_1000",
    )
    .unwrap();
    let (port, pid) = (mariadb.port(), mariadb.pid());
    mariadb.kill().await.unwrap();
    assert!(sql(port, "shop", "SELECT 1").is_err());
    mariadb.restart().await.unwrap();
    assert_eq!(mariadb.port(), port);
    assert_ne!(mariadb.pid(), pid);
    assert_eq!(sql(port, "shop", "SELECT count(*) FROM t").unwrap(), "1000");
    mariadb.stop().await.unwrap();
}

#[tokio::test]
async fn a_paused_server_is_silent_until_it_is_resumed() {
    let mariadb = MariaDb::start().await.unwrap();
    mariadb.pause().await.unwrap();
    assert!(sql_within(1, mariadb.port(), "mysql", "SELECT 1").is_err());
    mariadb.resume().await.unwrap();
    assert_eq!(sql(mariadb.port(), "mysql", "SELECT 1").unwrap(), "1");
}

#[tokio::test]
async fn a_killed_server_reports_that_it_is_not_running() {
    let mut mariadb = MariaDb::start().await.unwrap();
    mariadb.kill().await.unwrap();
    assert!(matches!(
        mariadb.pause().await,
        Err(TestbedError::Local(LocalError::NotRunning { .. }))
    ));
    mariadb.kill().await.expect("killing twice is killing once");
}

#[tokio::test]
async fn a_dropped_or_stopped_server_is_gone_with_its_folder() {
    let (dropped, stopped) = tokio::join!(MariaDb::start(), MariaDb::start());
    let (dropped, stopped) = (dropped.unwrap(), stopped.unwrap());
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
async fn each_database_has_its_own_url() {
    let mariadb = MariaDb::start().await.unwrap();
    for name in ["a", "with space and `quotes`", "--looks-like-an-option"] {
        mariadb.create_database(name).await.unwrap();
        assert_eq!(
            sql(mariadb.port(), name, "SELECT database()").unwrap(),
            name
        );
    }
    assert_eq!(
        mariadb.create_database("b").await.unwrap(),
        format!("mysql://root@127.0.0.1:{}/b", mariadb.port())
    );
}

#[tokio::test]
async fn a_database_is_not_created_twice() {
    let mariadb = MariaDb::start().await.unwrap();
    mariadb.create_database("a").await.unwrap();
    let error = mariadb.create_database("a").await.unwrap_err();
    assert!(matches!(error, TestbedError::Program { .. }));
    assert!(error.to_string().contains("database exists"), "{error}");
}

#[tokio::test]
async fn commits_are_flushed_and_settings_are_used() {
    let mariadb = MariaDb::builder()
        .config("max_connections", "17")
        .start()
        .await
        .unwrap();
    let settings = [
        ("innodb_flush_log_at_trx_commit", "1"),
        ("max_connections", "17"),
        ("bind_address", "127.0.0.1"),
        ("character_set_server", "utf8mb4"),
    ];
    for (key, value) in settings {
        assert_eq!(
            sql(mariadb.port(), "mysql", &format!("SELECT @@{key}")).unwrap(),
            value,
            "{key}"
        );
    }
}

#[tokio::test]
async fn a_fixed_port_that_is_taken_is_an_error() {
    let first = MariaDb::start().await.unwrap();
    let outcome = MariaDb::builder().port(first.port()).start().await;
    assert!(
        matches!(outcome, Err(TestbedError::Local(LocalError::PortTaken { port })) if port == first.port())
    );
    assert_eq!(sql(first.port(), "mysql", "SELECT 1").unwrap(), "1");
}

#[tokio::test]
async fn concurrently_started_servers_are_different_servers() {
    let (a, b) = tokio::join!(MariaDb::start(), MariaDb::start());
    let (a, b) = (a.unwrap(), b.unwrap());
    assert_ne!(a.port(), b.port());
    a.create_database("only_in_a").await.unwrap();
    assert!(sql(b.port(), "only_in_a", "SELECT 1").is_err());
}

#[tokio::test]
async fn an_interrupted_first_start_is_repaired_and_a_kept_folder_keeps_its_data() {
    let folder = tempfile::tempdir().unwrap();
    let kept = folder.path().join("with a space");
    fs::create_dir_all(kept.join("data.unfinished/mysql")).unwrap();
    let mariadb = MariaDb::builder().dir(&kept).start().await.unwrap();
    mariadb.create_database("a").await.unwrap();
    drop(mariadb);
    let mariadb = MariaDb::builder().dir(&kept).start().await.unwrap();
    assert_eq!(sql(mariadb.port(), "a", "SELECT 1").unwrap(), "1");
}

#[tokio::test]
async fn the_error_of_a_failed_start_quotes_the_log() {
    let error = MariaDb::builder()
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
    let mariadb = tokio::spawn(MariaDb::start()).await.unwrap().unwrap();
    tokio::spawn(mariadb.stop()).await.unwrap().unwrap();
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_server_uses_the_given_clock() {
    let clock = testbed::Clock::new().await.unwrap();
    let mariadb = MariaDb::builder()
        .clock(&clock)
        .await
        .unwrap()
        .start()
        .await
        .unwrap();
    let seconds = || {
        sql(mariadb.port(), "mysql", "SELECT UNIX_TIMESTAMP()")
            .unwrap()
            .parse::<i64>()
            .unwrap()
    };
    let before = seconds();
    clock.set(3_600_000).unwrap();
    // At least the jump, and less than two of them.
    assert!((3600..7200).contains(&(seconds() - before)));
}
