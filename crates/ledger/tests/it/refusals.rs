//! What the errors of real servers prove: whether anything can have been changed.

use std::{os::unix::fs::MetadataExt, process::Command};

use ledger::{LedgerError, PoolSettings};
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection, SqliteConnection};
use testbed::{Disk, Postgres, eventually_some, free_port, skipped};
use testkit::{Backend, Database};

use crate::env::item;

/// The code of the database's error. The higher bytes of SQLite's codes give a reason.
fn code(error: &LedgerError) -> String {
    let (LedgerError::Database(cause) | LedgerError::Commit(cause)) = error else {
        panic!("{error:?}")
    };
    let cause = cause.as_database_error();
    let code = cause.and_then(|cause| cause.code()).unwrap();
    match code.parse::<u32>() {
        Ok(number) if code.len() < 5 => (number & 0xff).to_string(),
        _ => code.into_owned(),
    }
}

async fn opening(url: &str) -> LedgerError {
    let settings = PoolSettings {
        acquire_timeout: Some(std::time::Duration::from_secs(5)),
        ..PoolSettings::new(1)
    };
    match ledger::connect_with(url, settings).await {
        Ok(_) => panic!("{url} can be opened"),
        Err(error) => error,
    }
}

async fn run(url: &str, sql: &str) -> Result<(), LedgerError> {
    let mut connection = PgConnection::connect(url).await?;
    connection
        .execute(sqlx::raw_sql(AssertSqlSafe(sql)))
        .await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_postgres_refuses_has_changed_nothing() {
    let mut server = Postgres::start().await.unwrap();
    run(
        &server.url("postgres"),
        "CREATE ROLE idle NOLOGIN; CREATE ROLE full_up LOGIN CONNECTION LIMIT 0;
         CREATE ROLE safe LOGIN PASSWORD 'right'",
    )
    .await
    .unwrap();
    let rules = "host all safe 127.0.0.1/32 scram-sha-256\nhost all all 127.0.0.1/32 trust\n";
    std::fs::write(server.dir().join("data/pg_hba.conf"), rules).unwrap();
    server.restart().await.unwrap();

    let at = |login: &str, database: &str| {
        format!("postgres://{login}@127.0.0.1:{}/{database}", server.port())
    };
    for (url, expected) in [
        (at("safe:wrong", "postgres"), "28P01"),
        (at("idle", "postgres"), "28000"),
        (at("nobody", "postgres"), "28000"),
        (at("postgres", "missing"), "3D000"),
        (at("full_up", "postgres"), "53300"),
    ] {
        let error = opening(&url).await;
        assert_eq!(code(&error), expected);
        assert!(
            error.proves_unchanged() && error.is_retryable(),
            "{error:?}"
        );
    }
    let silent = format!(
        "postgres://postgres@127.0.0.1:{}/postgres",
        free_port().await
    );
    let error = opening(&silent).await;
    assert!(
        error.proves_unchanged() && error.is_retryable(),
        "{error:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_statement_that_postgres_refuses_has_changed_nothing() {
    let server = Postgres::start().await.unwrap();
    let url = server.url("postgres");
    run(&url, "CREATE TABLE t (n int)").await.unwrap();
    for (sql, expected) in [
        (
            "SET default_transaction_read_only = on; COMMIT; INSERT INTO t VALUES (1)",
            "25006",
        ),
        (
            "INSERT INTO t VALUES (1); SELECT pg_advisory_lock(n) FROM generate_series(1, 1000000) n",
            "53200",
        ),
    ] {
        let error = run(&url, sql).await.unwrap_err();
        assert_eq!(code(&error), expected);
        assert!(error.proves_unchanged(), "{error:?}");
    }
    let database = Database::postgres_at(url);
    // The session that took all locks may still be ending.
    let delete = async || database.execute("DELETE FROM t").await.ok();
    assert_eq!(eventually_some("the table is free", delete).await, 0);
}

/// The session of a statement is ended, which may have committed already.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shutdown_in_the_middle_of_a_statement_proves_nothing() {
    let server = Postgres::start().await.unwrap();
    let url = server.url("postgres");
    let error = run(&url, "SELECT pg_terminate_backend(pg_backend_pid())").await;
    let error = error.unwrap_err();
    assert_eq!(code(&error), "57P01");
    assert!(
        !error.proves_unchanged() && error.is_retryable(),
        "{error:?}"
    );
}

fn signal(signal: &str, pid: i64) {
    let pid = pid.to_string();
    let sent = Command::new("kill").args([signal, &pid]).status().unwrap();
    assert!(sent.success());
}

/// The process of the session that runs this statement.
async fn session_of(url: &str, sql: &str) -> i64 {
    let mut connection = PgConnection::connect(url).await.unwrap();
    let find = "SELECT pid::int8 FROM pg_stat_activity WHERE query = $1 AND state = 'active'";
    eventually_some("the statement runs", async || {
        let found = sqlx::query_scalar(find).bind(sql);
        found.fetch_optional(&mut connection).await.unwrap()
    })
    .await
}

/// One process of the server dies, so PostgreSQL ends all sessions and recovers. It tells the
/// others with a notice (57P02), and no error follows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_in_the_middle_of_a_statement_proves_nothing() {
    let server = Postgres::start().await.unwrap();
    let url = server.url("postgres");
    let ledger = ledger::connect(&url, 2).await.unwrap();
    ledger.migrate().await.unwrap();
    let statements = ["SELECT pg_sleep(86400)", "SELECT pg_sleep(86401)"];
    let [dying, other] = statements.map(|sql| {
        let url = url.clone();
        tokio::spawn(async move { run(&url, sql).await })
    });
    session_of(&url, statements[1]).await;
    signal("-KILL", session_of(&url, statements[0]).await);
    for ended in [dying, other] {
        let error = ended.await.unwrap().unwrap_err();
        assert!(
            !error.proves_unchanged() && error.is_retryable(),
            "{error:?}"
        );
    }
    eventually_some("the first order after the crash", async || {
        ledger.create_item(&item("vase", 10, 1)).await.ok()
    })
    .await;
}

/// The server waits for a session before it stops, and takes no new one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_stops_has_refused_a_new_connection() {
    let mut server = Postgres::start().await.unwrap();
    let url = server.url("postgres");
    let open = PgConnection::connect(&url).await.unwrap();
    signal("-TERM", server.pid().into());
    let refused = eventually_some("a connection that is refused", async || {
        let settings = PoolSettings::new(1);
        ledger::connect_with(&url, settings).await.err()
    })
    .await;
    assert_eq!(code(&refused), "57P03");
    assert!(
        refused.proves_unchanged() && refused.is_retryable(),
        "{refused:?}"
    );
    drop(open);
    server.restart().await.unwrap();
    ledger::connect(&url, 1).await.unwrap();
}

/// The log of the server has another disk: a server that cannot write its log crashes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_has_changed_nothing() {
    let disk = match Disk::mount(64).await {
        Ok(disk) => disk,
        Err(error) => return skipped(&error.to_string()),
    };
    let server = Postgres::start().await.unwrap();
    let owner = std::fs::metadata(server.dir().join("data")).unwrap();
    std::os::unix::fs::chown(disk.path(), Some(owner.uid()), Some(owner.gid())).unwrap();
    let create = format!(
        "CREATE TABLESPACE small LOCATION '{}'",
        disk.path().display()
    );
    let url = server.url("postgres");
    run(&url, &create).await.unwrap();
    run(&url, "CREATE DATABASE shop TABLESPACE small")
        .await
        .unwrap();
    let ledger = ledger::connect(&server.url("shop"), 2).await.unwrap();
    ledger.migrate().await.unwrap();

    disk.fill().unwrap();
    let error = ledger.create_item(&item("vase", 10, 1)).await.unwrap_err();
    assert_eq!(code(&error), "53100");
    assert!(
        error.proves_unchanged() && error.is_retryable(),
        "{error:?}"
    );
    disk.make_room().unwrap();
    ledger.create_item(&item("vase", 10, 1)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_failure_of_a_commit_proves_nothing() {
    let database = Database::new(Backend::Postgres).await;
    let ledger = database.ledger().await;
    for code_of_commit in ["25006", "53100"] {
        let refuse = format!(
            "CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
             BEGIN RAISE EXCEPTION 'refused' USING ERRCODE = '{code_of_commit}'; END $$;
             CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON items
             DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION refuse()"
        );
        database.execute(&refuse).await.unwrap();
        let error = ledger.create_item(&item("vase", 10, 1)).await.unwrap_err();
        assert!(matches!(error, LedgerError::Commit(_)), "{error:?}");
        assert_eq!(code(&error), code_of_commit);
        assert!(
            !error.proves_unchanged() && error.is_retryable(),
            "{error:?}"
        );
        database
            .execute("DROP TRIGGER refuse ON items")
            .await
            .unwrap();
    }
    ledger.create_item(&item("vase", 10, 1)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sqlite_file_that_cannot_be_written_has_changed_nothing() {
    let database = Database::new(Backend::Sqlite).await;
    let error = {
        let read_only = format!("{}?mode=ro", database.url);
        let ledger = ledger::connect(&read_only, 1).await.unwrap();
        let error = ledger.check_writable().await.unwrap_err();
        assert!(error.proves_unchanged(), "{error:?}");
        ledger.create_item(&item("vase", 10, 1)).await.unwrap_err()
    };
    assert_eq!(code(&error), "8");
    assert!(
        error.proves_unchanged() && error.is_retryable(),
        "{error:?}"
    );

    // With the product's own time-out: a ledger of other tests is more patient with another writer.
    let ledger = ledger::connect(&database.url, 1).await.unwrap();
    let mut other = SqliteConnection::connect(&database.url).await.unwrap();
    other.execute("BEGIN IMMEDIATE").await.unwrap();
    let error = ledger.create_item(&item("vase", 10, 1)).await.unwrap_err();
    assert_eq!(code(&error), "5");
    assert!(
        error.proves_unchanged() && error.is_retryable(),
        "{error:?}"
    );
    other.execute("ROLLBACK").await.unwrap();
    ledger.check_writable().await.unwrap();

    let folder = tempfile::tempdir().unwrap();
    let error = opening(&format!("sqlite://{}", folder.path().display())).await;
    assert_eq!(code(&error), "14");
    assert!(
        error.proves_unchanged() && error.is_retryable(),
        "{error:?}"
    );
}
