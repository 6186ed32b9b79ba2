//! Sources of a connection.

use std::{future::Future, ops::DerefMut};

use sqlx::{Error, Pool, Transaction, pool::PoolConnection};

use super::Dialect;

/// A pool, a connection, a pooled connection or a transaction.
///
/// It replaces `sqlx::Acquire<'_>`, whose lifetime parameter makes futures that hold it impossible
/// to spawn: the compiler erases lifetimes inside of futures and then does not find the
/// implementation.
pub trait Source: Send {
    /// Database of the connection.
    type Database: Dialect;
    /// Held for one operation.
    type Connection: DerefMut<Target = <Self::Database as sqlx::Database>::Connection> + Send;

    /// Takes a connection.
    fn connection(self) -> impl Future<Output = Result<Self::Connection, Error>> + Send;

    /// Called after an answer of a server that takes no writes. A pool must not hand the connection
    /// out again. Default: nothing, because the caller owns the connection.
    fn distrust(_connection: &mut Self::Connection) {}
}

impl<DB: Dialect> Source for &Pool<DB> {
    type Database = DB;
    type Connection = PoolConnection<DB>;

    async fn connection(self) -> Result<Self::Connection, Error> {
        self.acquire().await
    }

    fn distrust(connection: &mut Self::Connection) {
        connection.close_on_drop();
    }
}

impl<'c, DB: Dialect> Source for &'c mut PoolConnection<DB> {
    type Database = DB;
    type Connection = &'c mut DB::Connection;

    async fn connection(self) -> Result<Self::Connection, Error> {
        Ok(self)
    }
}

impl<'c, DB: Dialect> Source for &'c mut Transaction<'_, DB> {
    type Database = DB;
    type Connection = &'c mut DB::Connection;

    async fn connection(self) -> Result<Self::Connection, Error> {
        Ok(self)
    }
}

macro_rules! connection {
    ($database:ty, $connection:ty) => {
        impl<'c> Source for &'c mut $connection {
            type Database = $database;
            type Connection = Self;

            async fn connection(self) -> Result<Self::Connection, Error> {
                Ok(self)
            }
        }
    };
}

#[cfg(feature = "postgres")]
connection!(sqlx::Postgres, sqlx::PgConnection);
#[cfg(feature = "mysql")]
connection!(sqlx::MySql, sqlx::MySqlConnection);
#[cfg(feature = "sqlite")]
connection!(sqlx::Sqlite, sqlx::SqliteConnection);
