//! The differences of the databases for locks, in addition to those for [fenced
//! tables](crate::store).

use std::future::Future;

use sqlx::{Arguments, AssertSqlSafe, Connection, Database, Error, Executor, error::BoxDynError};

use crate::store;

/// Connection options of a database.
pub(crate) type Options<DB> = <<DB as Database>::Connection as Connection>::Options;

/// A database that stores locks. The trait is sealed: no other crate can add a database.
pub trait Dialect: store::Sql {
    /// Name of the database in errors.
    const BACKEND: &'static str;
    /// Form of its URL, for errors.
    const URL: &'static str;
    /// Microseconds since 1970 by the database's clock, independent of time zones.
    const NOW_US: &'static str;
    /// Bytes: names are compared byte by byte, without collation or trimming.
    const NAME_TYPE: &'static str;
    const OWNER_TYPE: &'static str;
    /// End of an insert that changes nothing if the row exists.
    const ON_CONFLICT_IGNORE: &'static str;
    /// Around the new token in an update, so that the answer returns it.
    const RETURN_TOKEN: [&'static str; 2];
    /// Whether placeholders are numbered (`$1`) or plain (`?`).
    const NUMBERED_PLACEHOLDERS: bool;

    /// Name of the server in errors, without credentials.
    fn label(options: &Options<Self>) -> String;

    /// Options of our own pool. `busy_timeout` is how long the client waits for a locked file.
    /// Servers answer by themselves.
    fn adapt(options: Options<Self>, _busy_timeout: std::time::Duration) -> Options<Self> {
        options
    }

    fn bind_bytes(arguments: &mut Self::Arguments, bytes: &[u8]) -> Result<(), BoxDynError>;

    fn bind_text(arguments: &mut Self::Arguments, text: &str) -> Result<(), BoxDynError>;

    /// Runs statements without arguments, unprepared.
    fn run(
        connection: &mut Self::Connection,
        sql: String,
    ) -> impl Future<Output = Result<(), Error>> + Send;

    /// The number in the first row, if there is a row.
    fn number(
        connection: &mut Self::Connection,
        sql: String,
        arguments: Self::Arguments,
    ) -> impl Future<Output = Result<Option<i64>, Error>> + Send;
}

/// A bound argument of a statement.
pub(crate) enum Value<'a> {
    Bytes(&'a [u8]),
    Text(&'a str),
    Number(i64),
}

pub(crate) fn arguments<DB: Dialect>(values: &[Value<'_>]) -> Result<DB::Arguments, Error> {
    let mut arguments = DB::Arguments::default();
    for value in values {
        match value {
            Value::Bytes(bytes) => DB::bind_bytes(&mut arguments, bytes),
            Value::Text(text) => DB::bind_text(&mut arguments, text),
            Value::Number(number) => DB::bind_number(&mut arguments, *number),
        }
        .map_err(Error::Encode)?;
    }
    Ok(arguments)
}

/// Turns `?` into the placeholders of the database. Validated names never contain a `?`.
pub(crate) fn with_placeholders<DB: Dialect>(sql: &str) -> String {
    if !DB::NUMBERED_PLACEHOLDERS {
        return sql.into();
    }
    let mut parts = sql.split('?');
    let mut numbered = parts.next().unwrap_or_default().to_owned();
    for (index, part) in parts.enumerate() {
        numbered.push_str(&format!("${}{part}", index + 1));
    }
    numbered
}

/// The methods whose text is the same for every database, but not their types.
macro_rules! calls {
    () => {
        fn bind_bytes(arguments: &mut Self::Arguments, bytes: &[u8]) -> Result<(), BoxDynError> {
            arguments.add(bytes)
        }

        fn bind_text(arguments: &mut Self::Arguments, text: &str) -> Result<(), BoxDynError> {
            arguments.add(text)
        }

        async fn run(connection: &mut Self::Connection, sql: String) -> Result<(), Error> {
            connection
                .execute(sqlx::raw_sql(AssertSqlSafe(sql)))
                .await
                .map(drop)
        }

        async fn number(
            connection: &mut Self::Connection,
            sql: String,
            arguments: Self::Arguments,
        ) -> Result<Option<i64>, Error> {
            sqlx::query_scalar_with(AssertSqlSafe(sql), arguments)
                .fetch_optional(connection)
                .await
        }
    };
}

#[cfg(feature = "postgres")]
impl Dialect for sqlx::Postgres {
    const BACKEND: &'static str = "PostgreSQL";
    /// Form of its URL, for errors.
    const URL: &'static str = "postgres://USER@HOST:PORT/DATABASE";
    const NOW_US: &'static str =
        "CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT)";
    const NAME_TYPE: &'static str = "BYTEA";
    const OWNER_TYPE: &'static str = "TEXT";
    const ON_CONFLICT_IGNORE: &'static str = " ON CONFLICT DO NOTHING";
    const RETURN_TOKEN: [&'static str; 2] = ["", ""];
    const NUMBERED_PLACEHOLDERS: bool = true;
    calls!();

    fn label(options: &Options<Self>) -> String {
        format!(
            "{}:{}/{}",
            options.get_host(),
            options.get_port(),
            options.get_database().unwrap_or_default()
        )
    }

    /// `sqlx` sends a setting for floats in the first message, which poolers refuse. Locks have
    /// none.
    fn adapt(options: Options<Self>, _busy_timeout: std::time::Duration) -> Options<Self> {
        options.extra_float_digits(None::<i8>)
    }
}

/// `UTC_TIMESTAMP`, because `UNIX_TIMESTAMP(NOW(6))` repeats an hour at the end of daylight saving
/// time.
#[cfg(feature = "mysql")]
impl Dialect for sqlx::MySql {
    const BACKEND: &'static str = "MySQL";
    /// Form of its URL, for errors.
    const URL: &'static str = "mysql://USER@HOST:PORT/DATABASE";
    const NOW_US: &'static str = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))";
    const NAME_TYPE: &'static str = "VARBINARY(1024)";
    const OWNER_TYPE: &'static str = "VARCHAR(48) CHARACTER SET ascii COLLATE ascii_bin";
    const ON_CONFLICT_IGNORE: &'static str = " ON DUPLICATE KEY UPDATE name = name";
    const RETURN_TOKEN: [&'static str; 2] = ["LAST_INSERT_ID(", ")"];
    const NUMBERED_PLACEHOLDERS: bool = false;
    calls!();

    fn label(options: &Options<Self>) -> String {
        format!(
            "{}:{}/{}",
            options.get_host(),
            options.get_port(),
            options.get_database().unwrap_or_default()
        )
    }
}

/// Its clock has a resolution of a millisecond.
#[cfg(feature = "sqlite")]
impl Dialect for sqlx::Sqlite {
    const BACKEND: &'static str = "SQLite";
    /// Form of its URL, for errors.
    const URL: &'static str = "sqlite://PATH";
    const NOW_US: &'static str = "(CAST(round(unixepoch('subsec') * 1000) AS INTEGER) * 1000)";
    const NAME_TYPE: &'static str = "BLOB";
    const OWNER_TYPE: &'static str = "TEXT";
    const ON_CONFLICT_IGNORE: &'static str = " ON CONFLICT DO NOTHING";
    const RETURN_TOKEN: [&'static str; 2] = ["", ""];
    const NUMBERED_PLACEHOLDERS: bool = true;
    calls!();

    fn label(options: &Options<Self>) -> String {
        options.get_filename().display().to_string()
    }

    fn adapt(options: Options<Self>, busy_timeout: std::time::Duration) -> Options<Self> {
        options.busy_timeout(busy_timeout)
    }
}

#[cfg(test)]
mod tests {
    #[test]
    #[cfg(feature = "postgres")]
    fn postgres_statements_get_numbered_placeholders() {
        assert_eq!(
            super::with_placeholders::<sqlx::Postgres>("a = ? AND b = ?"),
            "a = $1 AND b = $2"
        );
    }

    #[test]
    #[cfg(feature = "mysql")]
    fn mysql_statements_keep_plain_placeholders() {
        assert_eq!(
            super::with_placeholders::<sqlx::MySql>("a = ? AND b = ?"),
            "a = ? AND b = ?"
        );
    }
}
