//! In what the databases differ, beyond what the storage kit knows already.

use std::future::Future;

use sqlx::{Arguments, AssertSqlSafe, Connection, Database, Error, Executor, error::BoxDynError};

use crate::store;

/// How a database is connected to.
pub(crate) type Options<DB> = <<DB as Database>::Connection as Connection>::Options;

/// A database that keeps locks. Out of reach from outside, so that the list of databases stays ours.
pub trait Dialect: store::Sql {
    /// In errors.
    const BACKEND: &'static str;
    const URL: &'static str;
    /// Microseconds since 1970, by the database's clock, without any time zone.
    const NOW_US: &'static str;
    /// Bytes: upper case, trailing blanks and zeros count, and no two alphabets are the same.
    const NAME_TYPE: &'static str;
    const OWNER_TYPE: &'static str;
    /// The end of an insert that shall change nothing if the row is there.
    const UNLESS_THERE: &'static str;
    /// Around the token in an update, for its answer to tell the token.
    const TELL: [&'static str; 2];
    /// Whether placeholders are numbered.
    const NUMBERED: bool;

    /// The server, without credentials.
    fn label(options: &Options<Self>) -> String;

    /// For a server that is busy, if it is not one that answers by itself.
    fn with_patience(options: Options<Self>, _patience: std::time::Duration) -> Options<Self> {
        options
    }

    fn bind_bytes(arguments: &mut Self::Arguments, bytes: &[u8]) -> Result<(), BoxDynError>;

    fn bind_text(arguments: &mut Self::Arguments, text: &str) -> Result<(), BoxDynError>;

    /// Runs statements without arguments, unprepared.
    fn run(
        connection: &mut Self::Connection,
        sql: String,
    ) -> impl Future<Output = Result<(), Error>> + Send;

    /// The one number that is asked for, if there is a row.
    fn number(
        connection: &mut Self::Connection,
        sql: String,
        arguments: Self::Arguments,
    ) -> impl Future<Output = Result<Option<i64>, Error>> + Send;
}

/// What goes into a statement.
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

/// Statements are written with `?`; no checked name holds one.
pub(crate) fn with_placeholders<DB: Dialect>(sql: &str) -> String {
    if !DB::NUMBERED {
        return sql.into();
    }
    let mut parts = sql.split('?');
    let mut numbered = parts.next().unwrap_or_default().to_owned();
    for (index, part) in parts.enumerate() {
        numbered.push_str(&format!("${}{part}", index + 1));
    }
    numbered
}

/// What is the same text for all of them, but not the same type.
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
    const URL: &'static str = "postgres://USER@HOST:PORT/DATABASE";
    const NOW_US: &'static str =
        "CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT)";
    const NAME_TYPE: &'static str = "BYTEA";
    const OWNER_TYPE: &'static str = "TEXT";
    const UNLESS_THERE: &'static str = " ON CONFLICT DO NOTHING";
    const TELL: [&'static str; 2] = ["", ""];
    const NUMBERED: bool = true;
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

/// `UTC_TIMESTAMP` has no hour twice, which `UNIX_TIMESTAMP(NOW(6))` has where the clocks are set back.
#[cfg(feature = "mysql")]
impl Dialect for sqlx::MySql {
    const BACKEND: &'static str = "MySQL";
    const URL: &'static str = "mysql://USER@HOST:PORT/DATABASE";
    const NOW_US: &'static str = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))";
    const NAME_TYPE: &'static str = "VARBINARY(1024)";
    const OWNER_TYPE: &'static str = "VARCHAR(48) CHARACTER SET ascii COLLATE ascii_bin";
    const UNLESS_THERE: &'static str = " ON DUPLICATE KEY UPDATE name = name";
    const TELL: [&'static str; 2] = ["LAST_INSERT_ID(", ")"];
    const NUMBERED: bool = false;
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

/// Its clock tells milliseconds.
#[cfg(feature = "sqlite")]
impl Dialect for sqlx::Sqlite {
    const BACKEND: &'static str = "SQLite";
    const URL: &'static str = "sqlite://PATH";
    const NOW_US: &'static str = "(CAST(round(unixepoch('subsec') * 1000) AS INTEGER) * 1000)";
    const NAME_TYPE: &'static str = "BLOB";
    const OWNER_TYPE: &'static str = "TEXT";
    const UNLESS_THERE: &'static str = " ON CONFLICT DO NOTHING";
    const TELL: [&'static str; 2] = ["", ""];
    const NUMBERED: bool = true;
    calls!();

    fn label(options: &Options<Self>) -> String {
        options.get_filename().display().to_string()
    }

    fn with_patience(options: Options<Self>, patience: std::time::Duration) -> Options<Self> {
        options.busy_timeout(patience)
    }
}

#[cfg(test)]
mod tests {
    #[test]
    #[cfg(feature = "postgres")]
    fn placeholders_are_numbered_where_the_database_wants_it() {
        assert_eq!(
            super::with_placeholders::<sqlx::Postgres>("a = ? AND b = ?"),
            "a = $1 AND b = $2"
        );
    }

    #[test]
    #[cfg(feature = "mysql")]
    fn placeholders_are_left_as_they_are_where_the_database_wants_it() {
        assert_eq!(
            super::with_placeholders::<sqlx::MySql>("a = ? AND b = ?"),
            "a = ? AND b = ?"
        );
    }
}
