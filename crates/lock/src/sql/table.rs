//! The table, and every statement on it. Each is atomic by itself, and none needs a transaction.
//!
//! What a reader could get wrong: `now` is when the statement began, not when it got through to the row. That is on the safe side: an
//! expiry is counted from after our request was sent, and a lock is only taken that was over before we asked.

use std::{marker::PhantomData, time::Duration};

use sqlx::Error;

use super::dialect::{Dialect, Value, arguments, with_placeholders};
use crate::{
    FencingToken,
    error::{Answer, InvalidArgument},
    store,
};

const EXPECTED: &str = "expected TABLE or SCHEMA.TABLE, of ASCII letters, digits and underscores, the table of at most 58";
/// Of the table whose rows are locked by `FOR UPDATE`.
const ROWS: &str = "_rows";

pub(crate) struct Table<DB> {
    /// As the user wrote it.
    #[cfg(any(feature = "postgres", feature = "mysql"))]
    pub plain: String,
    /// Quoted, with the locks and their tokens.
    locks: String,
    /// Quoted, with nothing but names.
    pub rows: String,
    acquire: String,
    extend: String,
    release: String,
    #[cfg(any(feature = "postgres", feature = "mysql"))]
    mint: String,
    look: String,
    add: String,
    database: PhantomData<fn() -> DB>,
}

/// What a statement on a name came to.
pub(crate) type Asked<T> = Result<Result<T, Answer>, Error>;

impl<DB: Dialect> Table<DB> {
    pub(crate) fn new(plain: &str) -> Result<Self, InvalidArgument> {
        let quoted = |name: &str| {
            let table = store::Table::new("table", name).map_err(|_| InvalidArgument::Table {
                found: plain.into(),
                expected: EXPECTED,
            });
            table.map(|table| table.quoted(DB::QUOTE))
        };
        let (locks, rows) = (quoted(plain)?, quoted(&format!("{plain}{ROWS}"))?);
        let (now, last, [tell, told]) = (DB::NOW_US, i64::MAX, DB::TELL);
        let returning = DB::RETURNING
            .map(|returning| format!("{returning}token"))
            .unwrap_or_default();
        let statement = |sql: String| with_placeholders::<DB>(&sql);
        Ok(Self {
            // MySQL assigns from left to right: the token comes before the owner that it depends on.
            acquire: statement(format!(
                "UPDATE {locks} SET token = {tell}CASE WHEN owner = ? THEN token ELSE token + 1 END{told}, \
                 owner = ?, acquired_at_us = {now}, expires_at_us = {now} + ? \
                 WHERE name = ? AND (owner = ? OR (expires_at_us <= {now} AND token < {last})){returning}"
            )),
            extend: statement(format!(
                "UPDATE {locks} SET expires_at_us = {now} + ? WHERE name = ? AND owner = ? AND expires_at_us > {now}{returning}"
            )),
            release: statement(format!(
                "UPDATE {locks} SET expires_at_us = {now} WHERE name = ? AND owner = ? AND expires_at_us > {now}{returning}"
            )),
            #[cfg(any(feature = "postgres", feature = "mysql"))]
            mint: statement(format!(
                "UPDATE {locks} SET token = {tell}token + 1{told}, acquired_at_us = {now} WHERE name = ? AND token < {last}{returning}"
            )),
            look: statement(format!(
                "SELECT token, expires_at_us - {now} FROM {locks} WHERE name = ?"
            )),
            add: statement(format!(
                "INSERT INTO {locks} (name, owner, token, acquired_at_us, expires_at_us) VALUES (?, '', 0, 0, 0){}",
                DB::UNLESS_THERE
            )),
            #[cfg(any(feature = "postgres", feature = "mysql"))]
            plain: plain.into(),
            locks,
            rows,
            database: PhantomData,
        })
    }

    /// The statements that make the tables: of the locks, and of the rows that are locked by `FOR UPDATE`.
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

    /// The token, which is the same for the same owner.
    pub(crate) async fn acquire(
        &self,
        connection: &mut DB::Connection,
        name: &str,
        owner: &str,
        ttl: Duration,
    ) -> Asked<FencingToken> {
        let bytes = name.as_bytes();
        let values = [
            Value::Text(owner),
            Value::Text(owner),
            us(ttl),
            Value::Bytes(bytes),
            Value::Text(owner),
        ];
        self.draw(connection, &self.acquire, &values, bytes).await
    }

    /// The next token, for somebody who has the lock by other means.
    #[cfg(any(feature = "postgres", feature = "mysql"))]
    pub(crate) async fn mint(
        &self,
        connection: &mut DB::Connection,
        name: &str,
    ) -> Asked<FencingToken> {
        let bytes = name.as_bytes();
        loop {
            match self
                .draw(connection, &self.mint, &[Value::Bytes(bytes)], bytes)
                .await?
            {
                Err(Answer::Held {
                    fence: Some(fence @ FencingToken::LAST),
                    ..
                }) => return Ok(Err(Answer::TooLow { fence })),
                // Somebody else made the row in between.
                Err(Answer::Held { .. }) => {}
                drawn => return Ok(drawn),
            }
        }
    }

    /// Whether it was still ours.
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

    /// Whether it was still ours.
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

    /// Who has the lock; not whether it is we.
    pub(crate) async fn look(
        &self,
        connection: &mut DB::Connection,
        name: &str,
    ) -> Result<Option<Answer>, Error> {
        let rows = DB::read(
            connection,
            self.look.clone(),
            arguments::<DB>(&[Value::Bytes(name.as_bytes())])?,
        )
        .await?;
        Ok(rows
            .first()
            .map(|(token, left_us)| standing(*token, *left_us)))
    }

    /// Raises the token, in a row that is made when there is none.
    async fn draw(
        &self,
        connection: &mut DB::Connection,
        sql: &str,
        values: &[Value<'_>],
        name: &[u8],
    ) -> Asked<FencingToken> {
        loop {
            let rows = DB::update(connection, sql.to_owned(), arguments::<DB>(values)?).await?;
            if let Some(token) = rows.first() {
                return Ok(FencingToken::new(*token)
                    .ok_or_else(|| Answer::Unreadable(format!("token {token}"))));
            }
            let rows = DB::read(
                connection,
                self.look.clone(),
                arguments::<DB>(&[Value::Bytes(name)])?,
            )
            .await?;
            if let Some((token, left_us)) = rows.first() {
                return Ok(Err(standing(*token, *left_us)));
            }
            DB::update(
                connection,
                self.add.clone(),
                arguments::<DB>(&[Value::Bytes(name)])?,
            )
            .await?;
        }
    }
}

/// Of a lock that we did not get.
fn standing(token: i64, left_us: i64) -> Answer {
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

    /// Whoever asks again, because the answer was lost, is the same; an owner that is not is refused, and comes next.
    async fn an_owner_that_asks_again_keeps_its_token<DB: Dialect>(url: &str) {
        let connection = &mut DB::Connection::connect(url).await.unwrap();
        let table = Table::<DB>::new("locks").unwrap();
        for _ in 0..2 {
            DB::run(connection, table.schema()[0].clone())
                .await
                .unwrap();
        }
        let mut acquire =
            async |owner: &str, ttl| table.acquire(connection, "a", owner, ttl).await.unwrap();
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
        assert!(acquire("one", LEASE).await.is_err(), "it is too late now");
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
    }

    #[cfg(feature = "postgres")]
    #[tokio::test]
    async fn an_owner_that_asks_again_keeps_its_token_on_postgres() {
        let server = testbed::Postgres::start().await.unwrap();
        an_owner_that_asks_again_keeps_its_token::<sqlx::Postgres>(&server.url("postgres")).await;
    }

    #[cfg(feature = "mysql")]
    #[tokio::test]
    async fn an_owner_that_asks_again_keeps_its_token_on_mariadb() {
        let server = testbed::MariaDb::start().await.unwrap();
        let url = server.create_database("locks").await.unwrap();
        an_owner_that_asks_again_keeps_its_token::<sqlx::MySql>(&url).await;
    }

    #[cfg(feature = "sqlite")]
    #[tokio::test]
    async fn an_owner_that_asks_again_keeps_its_token_on_sqlite() {
        an_owner_that_asks_again_keeps_its_token::<sqlx::Sqlite>("sqlite::memory:").await;
    }
}
