//! Databases that have been migrated once, and are copied for each test: a migration costs more
//! than most tests.

use std::{fs, path::Path, time::Duration};

use sqlx::{AssertSqlSafe, Connection, PgConnection, SqliteConnection};
use tokio::sync::OnceCell;

use super::Database;
use crate::servers::{new_name, shared_postgres};

/// A copy of the template on the PostgreSQL server that tests share.
pub(super) async fn copy_postgres() -> Database {
    static TEMPLATE: OnceCell<String> = OnceCell::const_new();
    let template = TEMPLATE.get_or_init(postgres_template).await;
    let (server, name) = (shared_postgres().await, new_name());
    // `createdb` would start a program for each test, and say the same.
    let copy = format!("CREATE DATABASE {name} TEMPLATE {template}");
    let copy = sqlx::raw_sql(AssertSqlSafe(copy));
    let mut connection = PgConnection::connect(&server.url("postgres"))
        .await
        .unwrap();
    copy.execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();
    Database::postgres_at(server.url(&name))
}

/// The name of a migrated database to which nothing is connected, and nothing can connect.
async fn postgres_template() -> String {
    let (server, name) = (shared_postgres().await, new_name());
    let url = server.create_database(&name).await.unwrap();
    Database::postgres_at(url).migrate().await;
    let mut connection = PgConnection::connect(&server.url("postgres"))
        .await
        .unwrap();
    let close = format!("ALTER DATABASE {name} WITH ALLOW_CONNECTIONS false");
    let close = sqlx::raw_sql(AssertSqlSafe(close));
    close.execute(&mut connection).await.unwrap();
    // A session ends a moment after it has been told to.
    let end = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = $1";
    loop {
        let left = sqlx::query_scalar::<_, i64>(end).bind(&name);
        if left.fetch_one(&mut connection).await.unwrap() == 0 {
            return name;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A copy of the template in a folder of its own.
pub(super) async fn copy_sqlite() -> Database {
    static TEMPLATE: OnceCell<Vec<u8>> = OnceCell::const_new();
    let template = TEMPLATE.get_or_init(sqlite_template).await;
    let database = Database::empty_sqlite();
    let path = path_of(&database);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, template).unwrap();
    database
}

/// The content of a migrated database in a file.
async fn sqlite_template() -> Vec<u8> {
    let database = Database::empty_sqlite();
    database.migrate().await;
    let mut connection = SqliteConnection::connect(&database.url).await.unwrap();
    // What is in the log would be missing in a copy.
    let checkpoint = sqlx::query_as("PRAGMA wal_checkpoint(TRUNCATE)");
    let (busy, _, _): (i64, i64, i64) = checkpoint.fetch_one(&mut connection).await.unwrap();
    assert_eq!(busy, 0, "the log of the template is in use");
    connection.close().await.unwrap();
    fs::read(path_of(&database)).unwrap()
}

fn path_of(database: &Database) -> &Path {
    Path::new(database.url.trim_start_matches("sqlite://"))
}
