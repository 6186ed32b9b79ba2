//! One MariaDB server.

use std::{
    fs,
    io::{self, ErrorKind},
    process::Command,
    time::Duration,
};

use testbed::{MariaDb, TestbedError, mariadb::MariaDbKind, timeout};

use crate::contract::Probe;

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

impl Probe for MariaDbKind {
    const WRITES: u32 = 1000;
    const SILENCE_IS: ErrorKind = ErrorKind::Other;
    const WRONG_SETTING: (&'static str, &'static str) = ("no_such_setting", "1");
    const COMPLAINT: &'static str = "no_such_setting";

    fn url(server: &MariaDb) -> String {
        server.url("shop")
    }

    async fn write(server: &MariaDb) {
        server.create_database("shop").await.unwrap();
        let table = "CREATE TABLE t (n int) ENGINE=InnoDB; \
                     INSERT INTO t SELECT seq FROM mysql.seq_1_to_1000";
        sql(server.port(), "shop", table).unwrap();
    }

    async fn written(server: &MariaDb, timeout: Duration) -> io::Result<u32> {
        let seconds = timeout.as_secs().max(1);
        match sql_within(seconds, server.port(), "shop", "SELECT count(*) FROM t") {
            Ok(count) => Ok(count.parse().unwrap()),
            Err(error) if error.contains("Unknown database 'shop'") => Ok(0),
            Err(error) => Err(io::Error::other(error)),
        }
    }
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
