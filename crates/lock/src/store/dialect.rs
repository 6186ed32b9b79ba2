//! The differences of the databases: quotes, how an update returns the version that it wrote, and
//! how the latest state of a row is read.

use std::future::Future;

use sqlx::{Database, Error, error::BoxDynError};

/// A database with fenced tables: `sqlx::Postgres`, `sqlx::MySql` (also for MariaDB),
/// `sqlx::Sqlite`, each with its cargo feature.
pub trait Dialect: Sql {}

impl<DB: Sql> Dialect for DB {}

/// Seals [`Dialect`]: no other crate can add a database.
pub trait Sql: Database {
    const QUOTE: char;
    /// Text before and after the version column that makes the next version.
    const NEXT_VERSION: [&'static str; 2];
    /// Clause between an update and the version column that it returns, if the database has one.
    const RETURNING: Option<&'static str>;
    /// End of a read after an update that matched nothing. It reads the row as the update saw it,
    /// not as the snapshot of the transaction shows it.
    const READ_LATEST: &'static str;
    /// End of a read whose result stays true until the transaction ends.
    const READ_LOCKED: &'static str;

    fn bind_number(arguments: &mut Self::Arguments, number: i64) -> Result<(), BoxDynError>;

    /// Runs an update. Returns the new version of each row that it matched.
    fn update(
        connection: &mut Self::Connection,
        sql: String,
        arguments: Self::Arguments,
    ) -> impl Future<Output = Result<Vec<i64>, Error>> + Send;

    /// Reads fence and version of each row that was found.
    fn read(
        connection: &mut Self::Connection,
        sql: String,
        arguments: Self::Arguments,
    ) -> impl Future<Output = Result<Vec<(i64, i64)>, Error>> + Send;
}

/// The methods whose text is the same for every database, but not their types.
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

/// Fetches all rows, so that the statement has ended and reported its commit before we continue.
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

/// Under REPEATABLE READ, a transaction that has read the row before gets a serialization failure
/// from the update itself.
#[cfg(feature = "postgres")]
impl Sql for sqlx::Postgres {
    const QUOTE: char = '"';
    const READ_LATEST: &'static str = "";
    const READ_LOCKED: &'static str = " FOR SHARE";
    update_returning!();
    number_and_read!();
}

/// In double quotes, SQLite would take the name of a missing column for a string and compare it
/// with the key. Backticks always quote a name.
///
/// SQLite has one writer at a time: a transaction that has read can only write if no other has
/// written since.
#[cfg(feature = "sqlite")]
impl Sql for sqlx::Sqlite {
    const QUOTE: char = '`';
    const READ_LATEST: &'static str = "";
    const READ_LOCKED: &'static str = "";
    update_returning!();
    number_and_read!();
}

/// MySQL has no `RETURNING` for an update, nor have MariaDB 10 and 11. `LAST_INSERT_ID(x)` is x and
/// returns with the answer to the same statement. The version therefore needs no second statement
/// and no transaction.
///
/// Under REPEATABLE READ, the default, an update sees the latest row, but a plain read sees the
/// snapshot of the transaction and would hide the later holder that the update met. A locking read
/// sees the latest row. `FOR UPDATE`, because two transactions that share the row and both upgrade
/// later would deadlock; `LOCK IN SHARE MODE`, because MariaDB has no `FOR SHARE`.
#[cfg(feature = "mysql")]
impl Sql for sqlx::MySql {
    const QUOTE: char = '`';
    const NEXT_VERSION: [&'static str; 2] = ["LAST_INSERT_ID(", " + 1)"];
    const RETURNING: Option<&'static str> = None;
    const READ_LATEST: &'static str = " FOR UPDATE";
    const READ_LOCKED: &'static str = " LOCK IN SHARE MODE";

    /// The version always changes, so matched rows (which sqlx counts) and changed rows are the
    /// same.
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
