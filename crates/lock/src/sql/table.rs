//! The tables and every statement on them. Each statement is atomic and needs no transaction.
//!
//! In a statement, `now` is the time at which the statement began, not the time at which it reached
//! the row. That is safe: an expiry is counted from after our request was sent, and a lock is taken
//! only if it had expired before our request.

use std::{marker::PhantomData, time::Duration};

use sqlx::Error;

use super::dialect::{Dialect, Value, arguments, with_placeholders};
use crate::{
    error::{Answer, InvalidArgument},
    store,
    token::FencingToken,
};

const EXPECTED: &str = "expected TABLE or SCHEMA.TABLE, of ASCII letters, digits and underscores, the table of at most 58";
/// Suffix of the table whose rows are locked by `FOR UPDATE`.
const ROWS_SUFFIX: &str = "_rows";

pub(crate) struct Table<DB> {
    /// The name as it was configured.
    #[cfg(feature = "_session_lock")]
    pub plain: String,
    /// Quoted name of the table of the locks and their tokens.
    locks: String,
    /// Quoted name of the table whose rows `FOR UPDATE` locks.
    pub rows: String,
    acquire: String,
    extend: String,
    release: String,
    #[cfg(feature = "_session_lock")]
    draw_token: String,
    holder: String,
    insert: String,
    database: PhantomData<fn() -> DB>,
}

/// Result of a statement: an error of the database, a refusal, or a value.
pub(crate) type StatementResult<T> = Result<Result<T, Answer>, Error>;

impl<DB: Dialect> Table<DB> {
    pub(crate) fn new(plain: &str) -> Result<Self, InvalidArgument> {
        let quoted = |name: &str| {
            let table = store::Table::new("table", name).map_err(|_| InvalidArgument::Table {
                found: plain.into(),
                expected: EXPECTED,
            });
            table.map(|table| table.quoted(DB::QUOTE))
        };
        let (locks, rows) = (quoted(plain)?, quoted(&format!("{plain}{ROWS_SUFFIX}"))?);
        let (now, last, [before, after]) = (DB::NOW_US, i64::MAX, DB::RETURN_TOKEN);
        let returning = DB::RETURNING
            .map(|returning| format!("{returning}token"))
            .unwrap_or_default();
        let statement = |sql: String| with_placeholders::<DB>(&sql);
        Ok(Self {
            // MySQL assigns from left to right, so the token comes before the owner that it
            // depends on.
            acquire: statement(format!(
                "UPDATE {locks} SET token = {before}CASE WHEN owner = ? THEN token WHEN token < ? THEN ? ELSE token + 1 END{after}, \
                 owner = ?, acquired_at_us = {now}, expires_at_us = {now} + ? \
                 WHERE name = ? AND (owner = ? OR (expires_at_us <= {now} AND token < {last})){returning}"
            )),
            extend: statement(format!(
                "UPDATE {locks} SET expires_at_us = {now} + ? WHERE name = ? AND owner = ? AND expires_at_us > {now}{returning}"
            )),
            release: statement(format!(
                "UPDATE {locks} SET expires_at_us = {now} WHERE name = ? AND owner = ? AND expires_at_us > {now}{returning}"
            )),
            #[cfg(feature = "_session_lock")]
            draw_token: statement(format!(
                "UPDATE {locks} SET token = {before}token + 1{after}, acquired_at_us = {now} WHERE name = ? AND token < {last}{returning}"
            )),
            holder: statement(format!(
                "SELECT token, expires_at_us - {now} FROM {locks} WHERE name = ?"
            )),
            insert: statement(format!(
                "INSERT INTO {locks} (name, owner, token, acquired_at_us, expires_at_us) VALUES (?, '', 0, 0, 0){}",
                DB::ON_CONFLICT_IGNORE
            )),
            #[cfg(feature = "_session_lock")]
            plain: plain.into(),
            locks,
            rows,
            database: PhantomData,
        })
    }

    /// The statements that create the tables: of the locks, and of the rows that `FOR UPDATE`
    /// locks.
    pub(crate) fn schema(&self) -> [String; 2] {
        let Self { locks, rows, .. } = self;
        let (name, owner) = (DB::NAME_TYPE, DB::OWNER_TYPE);
        [
            format!(
                "CREATE TABLE IF NOT EXISTS {locks} (\n    name {name} NOT NULL PRIMARY KEY,\n    owner {owner} NOT NULL,\n    \
                 token BIGINT NOT NULL CHECK (token >= 0),\n    acquired_at_us BIGINT NOT NULL,\n    expires_at_us BIGINT NOT NULL\n)"
            ),
            format!("CREATE TABLE IF NOT EXISTS {rows} (name {name} NOT NULL PRIMARY KEY)"),
        ]
    }

    /// Acquires the lock and returns its token, which is above `floor`. The same owner gets the
    /// same token again.
    pub(crate) async fn acquire(
        &self,
        connection: &mut DB::Connection,
        name: &str,
        owner: &str,
        floor: i64,
        ttl: Duration,
    ) -> StatementResult<FencingToken> {
        let bytes = name.as_bytes();
        let values = [
            Value::Text(owner),
            Value::Number(floor),
            Value::Number(floor.saturating_add(1)),
            Value::Text(owner),
            us(ttl),
            Value::Bytes(bytes),
            Value::Text(owner),
        ];
        self.raise_token(connection, &self.acquire, &values, bytes)
            .await
    }

    /// Draws the next token for a session that holds the lock.
    #[cfg(feature = "_session_lock")]
    pub(crate) async fn draw_token(
        &self,
        connection: &mut DB::Connection,
        name: &str,
    ) -> StatementResult<FencingToken> {
        let bytes = name.as_bytes();
        loop {
            match self
                .raise_token(connection, &self.draw_token, &[Value::Bytes(bytes)], bytes)
                .await?
            {
                Err(Answer::Held {
                    fence: Some(fence @ FencingToken::LAST),
                    ..
                }) => return Ok(Err(Answer::TooLow { fence })),
                // Another session inserted the row in between.
                Err(Answer::Held { .. }) => {}
                drawn => return Ok(drawn),
            }
        }
    }

    /// Restarts the lease. Returns whether the owner still held the lock.
    pub(crate) async fn extend(
        &self,
        connection: &mut DB::Connection,
        name: &str,
        owner: &str,
        ttl: Duration,
    ) -> Result<bool, Error> {
        let values = [us(ttl), Value::Bytes(name.as_bytes()), Value::Text(owner)];
        let rows = DB::update(connection, self.extend.clone(), arguments::<DB>(&values)?).await?;
        Ok(!rows.is_empty())
    }

    /// Ends the lease. Returns whether the owner still held the lock.
    pub(crate) async fn release(
        &self,
        connection: &mut DB::Connection,
        name: &str,
        owner: &str,
    ) -> Result<bool, Error> {
        let values = [Value::Bytes(name.as_bytes()), Value::Text(owner)];
        let rows = DB::update(connection, self.release.clone(), arguments::<DB>(&values)?).await?;
        Ok(!rows.is_empty())
    }

    /// Reads the current lease of any owner.
    pub(crate) async fn holder(
        &self,
        connection: &mut DB::Connection,
        name: &str,
    ) -> Result<Option<Answer>, Error> {
        let rows = DB::read(
            connection,
            self.holder.clone(),
            arguments::<DB>(&[Value::Bytes(name.as_bytes())])?,
        )
        .await?;
        Ok(rows
            .first()
            .map(|(token, left_us)| refusal(*token, *left_us)))
    }

    /// Raises the token. The row is inserted if it is missing.
    async fn raise_token(
        &self,
        connection: &mut DB::Connection,
        sql: &str,
        values: &[Value<'_>],
        name: &[u8],
    ) -> StatementResult<FencingToken> {
        loop {
            let rows = DB::update(connection, sql.to_owned(), arguments::<DB>(values)?).await?;
            if let Some(token) = rows.first() {
                return Ok(FencingToken::new(*token)
                    .ok_or_else(|| Answer::Unreadable(format!("token {token}"))));
            }
            let rows = DB::read(
                connection,
                self.holder.clone(),
                arguments::<DB>(&[Value::Bytes(name)])?,
            )
            .await?;
            if let Some((token, left_us)) = rows.first() {
                return Ok(Err(refusal(*token, *left_us)));
            }
            DB::update(
                connection,
                self.insert.clone(),
                arguments::<DB>(&[Value::Bytes(name)])?,
            )
            .await?;
        }
    }
}

/// Why a lock with this row was not acquired.
fn refusal(token: i64, left_us: i64) -> Answer {
    let remaining = Duration::from_micros(u64::try_from(left_us).unwrap_or(0));
    match FencingToken::new(token) {
        Some(fence @ FencingToken::LAST) if remaining.is_zero() => Answer::TooLow { fence },
        fence => Answer::Held {
            remaining: Some(remaining),
            fence,
        },
    }
}

fn us(duration: Duration) -> Value<'static> {
    Value::Number(i64::try_from(duration.as_micros()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use sqlx::Connection;

    use super::*;

    const LEASE: Duration = Duration::from_secs(60);

    /// An owner that repeats its request after a lost answer is recognised. Another owner is
    /// refused until the lease ends.
    async fn an_owner_that_repeats_its_request_keeps_its_token<DB: Dialect>(url: &str) {
        let connection = &mut DB::Connection::connect(url).await.unwrap();
        let table = Table::<DB>::new("locks").unwrap();
        for _ in 0..2 {
            DB::run(connection, table.schema()[0].clone())
                .await
                .unwrap();
        }
        let mut acquire =
            async |owner: &str, ttl| table.acquire(connection, "a", owner, 0, ttl).await.unwrap();
        assert_eq!(acquire("one", LEASE).await.unwrap(), FencingToken::FIRST);
        assert_eq!(acquire("one", LEASE).await.unwrap(), FencingToken::FIRST);
        let refused = acquire("other", LEASE).await.unwrap_err();
        let held = |answer: &Answer| matches!(answer, Answer::Held { remaining: Some(left), fence: Some(FencingToken::FIRST) } if *left <= LEASE);
        assert!(held(&refused), "{refused}");
        assert_eq!(
            acquire("one", Duration::ZERO).await.unwrap(),
            FencingToken::FIRST
        );
        assert_eq!(acquire("other", LEASE).await.unwrap().get(), 2);
        assert!(
            acquire("one", LEASE).await.is_err(),
            "another owner has acquired the lock since"
        );
        assert!(
            !table.extend(connection, "a", "one", LEASE).await.unwrap()
                && !table.release(connection, "a", "one").await.unwrap()
        );
        assert!(
            table.extend(connection, "a", "other", LEASE).await.unwrap()
                && table.release(connection, "a", "other").await.unwrap()
        );
        assert!(
            !table.extend(connection, "a", "other", LEASE).await.unwrap()
                && !table.release(connection, "a", "other").await.unwrap()
        );
        // A database that was restored from a backup has fewer tokens than it has issued.
        for (floor, token) in [(40, 41), (40, 42), (7, 43)] {
            let owner = format!("above {floor} as {token}");
            let acquired = table
                .acquire(connection, "a", &owner, floor, Duration::ZERO)
                .await
                .unwrap();
            assert_eq!(acquired.unwrap().get(), token, "{owner}");
        }
    }

    #[cfg(feature = "postgres")]
    #[tokio::test]
    async fn an_owner_that_repeats_its_request_keeps_its_token_on_postgres() {
        let server = testbed::Postgres::start().await.unwrap();
        an_owner_that_repeats_its_request_keeps_its_token::<sqlx::Postgres>(
            &server.url("postgres"),
        )
        .await;
    }

    #[cfg(feature = "mysql")]
    #[tokio::test]
    async fn an_owner_that_repeats_its_request_keeps_its_token_on_mariadb() {
        let server = testbed::MariaDb::start().await.unwrap();
        let url = server.create_database("locks").await.unwrap();
        an_owner_that_repeats_its_request_keeps_its_token::<sqlx::MySql>(&url).await;
    }

    #[cfg(feature = "sqlite")]
    #[tokio::test]
    async fn an_owner_that_repeats_its_request_keeps_its_token_on_sqlite() {
        an_owner_that_repeats_its_request_keeps_its_token::<sqlx::Sqlite>("sqlite::memory:").await;
    }
}
