//! In what the databases differ: quotes, how an update tells the version that it wrote, and how a row is read as it is now.

use std::future::Future;

use sqlx::{Database, Error, error::BoxDynError};

/// A database that the kit works on: `sqlx::Postgres`, `sqlx::MySql` (also for MariaDB), `sqlx::Sqlite`, each with its cargo feature.
pub trait Dialect: Sql {}

impl<DB: Sql> Dialect for DB {}

/// Out of reach from outside, so that the list of databases stays ours.
pub trait Sql: Database {
    const QUOTE: char;
    /// Between the version of the row and what comes after it.
    const NEXT_VERSION: [&'static str; 2];
    /// The end of an update, between it and the version's column, if it has one.
    const RETURNING: Option<&'static str>;
    /// The end of a read after an update that hit nothing: as the update saw the row, and not as the transaction did earlier.
    const AS_IT_IS: &'static str;
    /// The end of a read that shall stay true until the transaction ends.
    const AND_STAYS: &'static str;

    fn bind_number(arguments: &mut Self::Arguments, number: i64) -> Result<(), BoxDynError>;

    /// The new version of each row that was hit.
    fn update(
        connection: &mut Self::Connection,
        sql: String,
        arguments: Self::Arguments,
    ) -> impl Future<Output = Result<Vec<i64>, Error>> + Send;

    /// Fence and version of each row that was found.
    fn read(
        connection: &mut Self::Connection,
        sql: String,
        arguments: Self::Arguments,
    ) -> impl Future<Output = Result<Vec<(i64, i64)>, Error>> + Send;
}

/// What is the same text for all of them, but not the same type.
macro_rules! number_and_read {
    () => {
        fn bind_number(arguments: &mut Self::Arguments, number: i64) -> Result<(), BoxDynError> {
            sqlx::Arguments::add(arguments, number)
        }

        async fn read(
            connection: &mut Self::Connection,
            sql: String,
            arguments: Self::Arguments,
        ) -> Result<Vec<(i64, i64)>, Error> {
            sqlx::query_as_with(sqlx::AssertSqlSafe(sql), arguments)
                .fetch_all(connection)
                .await
        }
    };
}

/// All rows are fetched, so that the statement has come to its end, and has said whether it was committed, before we go on.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
macro_rules! update_returning {
    () => {
        const NEXT_VERSION: [&'static str; 2] = ["", " + 1"];
        const RETURNING: Option<&'static str> = Some(" RETURNING ");

        async fn update(
            connection: &mut Self::Connection,
            sql: String,
            arguments: Self::Arguments,
        ) -> Result<Vec<i64>, Error> {
            sqlx::query_scalar_with(sqlx::AssertSqlSafe(sql), arguments)
                .fetch_all(connection)
                .await
        }
    };
}

/// A transaction that has read the row before, under REPEATABLE READ, gets a serialization failure from the update itself.
#[cfg(feature = "postgres")]
impl Sql for sqlx::Postgres {
    const QUOTE: char = '"';
    const AS_IT_IS: &'static str = "";
    const AND_STAYS: &'static str = " FOR SHARE";
    update_returning!();
    number_and_read!();
}

/// SQLite takes a name in double quotes that is no column for a string, and would compare it with the key; not so one in backticks.
///
/// It has one writer at a time: a transaction that has read can only write if nobody else has written since.
#[cfg(feature = "sqlite")]
impl Sql for sqlx::Sqlite {
    const QUOTE: char = '`';
    const AS_IT_IS: &'static str = "";
    const AND_STAYS: &'static str = "";
    update_returning!();
    number_and_read!();
}

/// MySQL has no `RETURNING` for an update, nor have MariaDB 10 and 11. `LAST_INSERT_ID(x)` is x, and goes back with the answer to
/// this very statement: no second one, and so no transaction, is needed to know the version.
///
/// Under REPEATABLE READ, the default, an update sees the row as it is, but a plain read sees it as the transaction first did, and would
/// deny the successor that the update has run into. A locking read does not. `FOR UPDATE`, because two who share the row and both want it
/// later would deadlock; `LOCK IN SHARE MODE`, because MariaDB does not know `FOR SHARE`.
#[cfg(feature = "mysql")]
impl Sql for sqlx::MySql {
    const QUOTE: char = '`';
    const NEXT_VERSION: [&'static str; 2] = ["LAST_INSERT_ID(", " + 1)"];
    const RETURNING: Option<&'static str> = None;
    const AS_IT_IS: &'static str = " FOR UPDATE";
    const AND_STAYS: &'static str = " LOCK IN SHARE MODE";

    /// The version always changes, so it does not matter whether rows are counted that were hit, as sqlx has it, or that were changed.
    async fn update(
        connection: &mut Self::Connection,
        sql: String,
        arguments: Self::Arguments,
    ) -> Result<Vec<i64>, Error> {
        let done = sqlx::query_with(sqlx::AssertSqlSafe(sql), arguments)
            .execute(connection)
            .await?;
        let version =
            i64::try_from(done.last_insert_id()).map_err(|error| Error::Decode(error.into()))?;
        Ok((0..done.rows_affected()).map(|_| version).collect())
    }

    number_and_read!();
}
