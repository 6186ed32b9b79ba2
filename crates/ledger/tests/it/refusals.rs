//! What the errors of real servers prove: whether anything can have been changed.

use ledger::{LedgerError, PoolSettings};
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection, SqliteConnection};
use testbed::{Postgres, eventually_some, free_port};
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
        acquire_timeout: Some(std::time::Duration::from_secs(1)),
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

    let ledger = database.ledger().await;
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
