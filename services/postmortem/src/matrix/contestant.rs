//! Who takes part: every backend of `lock`, the crate rslock, and the locks of the stories.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A lock, and what it is kept on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Contestant {
    /// The ballot on five servers.
    Redlock,
    /// The same with a queue.
    RedlockFair,
    /// The crate `rslock` on five servers.
    Rslock,
    /// One Redis.
    Redis,
    /// The same in Redisson's format.
    RedisReentrant,
    /// `SET NX PX`, and compare-and-delete.
    SetNxCompare,
    /// `SET NX EX`, and `DEL`.
    SetNxDel,
    /// `SETNX`, and then `EXPIRE`.
    SetnxExpire,
    /// A row of PostgreSQL with an expiry.
    Postgres,
    /// An advisory lock of a session.
    PostgresAdvisory,
    /// A row that is locked by a transaction.
    PostgresForUpdate,
    /// A row of MariaDB with an expiry.
    Mysql,
    /// `GET_LOCK`.
    MysqlAdvisory,
    /// A row that is locked by a transaction.
    MysqlForUpdate,
    /// A row of a file.
    Sqlite,
    /// A lease of etcd.
    Etcd,
    /// An ephemeral node.
    ZooKeeper,
    /// A session of Consul.
    Consul,
    /// Broken on purpose, to show that the matrix notices: everybody gets it.
    #[doc(hidden)]
    AlwaysGranted,
    /// Broken on purpose, to show that the matrix notices: everybody gets the same token.
    #[doc(hidden)]
    SameToken,
}

/// What a lock is kept on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Home {
    FiveRedis,
    OneRedis,
    Postgres,
    MariaDb,
    Sqlite,
    Etcd,
    ZooKeeper,
    Consul,
}

impl Contestant {
    /// All that anybody would use, in the order of the rows.
    pub const ALL: [Self; 18] = [
        Self::SetnxExpire,
        Self::SetNxDel,
        Self::SetNxCompare,
        Self::Rslock,
        Self::Redlock,
        Self::RedlockFair,
        Self::Redis,
        Self::RedisReentrant,
        Self::Postgres,
        Self::PostgresAdvisory,
        Self::PostgresForUpdate,
        Self::Mysql,
        Self::MysqlAdvisory,
        Self::MysqlForUpdate,
        Self::Sqlite,
        Self::Etcd,
        Self::ZooKeeper,
        Self::Consul,
    ];

    /// On the command line and in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Redlock => "redlock",
            Self::RedlockFair => "redlock-fair",
            Self::Rslock => "rslock",
            Self::Redis => "redis",
            Self::RedisReentrant => "redis-reentrant",
            Self::SetNxCompare => "set-nx-compare",
            Self::SetNxDel => "set-nx-del",
            Self::SetnxExpire => "setnx-expire",
            Self::Postgres => "postgres",
            Self::PostgresAdvisory => "postgres-advisory",
            Self::PostgresForUpdate => "postgres-for-update",
            Self::Mysql => "mysql",
            Self::MysqlAdvisory => "mysql-advisory",
            Self::MysqlForUpdate => "mysql-for-update",
            Self::Sqlite => "sqlite",
            Self::Etcd => "etcd",
            Self::ZooKeeper => "zookeeper",
            Self::Consul => "consul",
            Self::AlwaysGranted => "always-granted",
            Self::SameToken => "same-token",
        }
    }

    /// What it is, in a few words.
    pub const fn is(self) -> &'static str {
        match self {
            Self::Redlock => "the ballot of crates/lock on five independent Redis servers",
            Self::RedlockFair => "the same, first come, first served",
            Self::Rslock => {
                "the crate rslock 0.10, Redlock as its page describes it, on five independent Redis servers"
            }
            Self::Redis => "one Redis: SET NX PX and a counter in one script",
            Self::RedisReentrant => "the same in Redisson's format, re-entrant",
            Self::SetNxCompare => "written by hand: SET NX PX, released by compare-and-delete",
            Self::SetNxDel => {
                "written by hand, as in the Maotai story: SET NX EX, released by a plain DEL"
            }
            Self::SetnxExpire => "written by hand: SETNX, then EXPIRE, then DEL",
            Self::Postgres => "a row of PostgreSQL with an expiry, as ShedLock's",
            Self::PostgresAdvisory => "an advisory lock of a PostgreSQL session",
            Self::PostgresForUpdate => {
                "a row that a PostgreSQL transaction has locked (SELECT ... FOR UPDATE)"
            }
            Self::Mysql => "a row of MariaDB with an expiry",
            Self::MysqlAdvisory => "GET_LOCK of a MariaDB session",
            Self::MysqlForUpdate => "a row that a MariaDB transaction has locked",
            Self::Sqlite => "a row of a SQLite file with an expiry",
            Self::Etcd => "a key of etcd under a lease",
            Self::ZooKeeper => "an ephemeral sequential node of ZooKeeper",
            Self::Consul => "a key of Consul under a session",
            Self::AlwaysGranted => "broken on purpose: everybody gets it",
            Self::SameToken => "broken on purpose: everybody gets the same token",
        }
    }

    /// What it was compared on.
    pub const fn on(self) -> &'static str {
        match self.home() {
            Home::FiveRedis => "5 Redis, appendfsync always",
            Home::OneRedis => "1 Redis, appendfsync always",
            Home::Postgres => "PostgreSQL, fsync on",
            Home::MariaDb => "MariaDB, flush at commit",
            Home::Sqlite => "a file",
            Home::Etcd => "1 etcd",
            Home::ZooKeeper => "1 ZooKeeper",
            Home::Consul => "nothing",
        }
    }

    /// Whoever waits for it is woken by nobody, and asks again by itself.
    pub const fn is_asked_again(self) -> bool {
        matches!(
            self,
            Self::SetnxExpire
                | Self::SetNxDel
                | Self::SetNxCompare
                | Self::Rslock
                | Self::Postgres
                | Self::Mysql
                | Self::Sqlite
        )
    }

    pub(super) const fn home(self) -> Home {
        match self {
            Self::Redlock | Self::RedlockFair | Self::Rslock => Home::FiveRedis,
            Self::Redis
            | Self::RedisReentrant
            | Self::SetNxCompare
            | Self::SetNxDel
            | Self::SetnxExpire
            | Self::AlwaysGranted
            | Self::SameToken => Home::OneRedis,
            Self::Postgres | Self::PostgresAdvisory | Self::PostgresForUpdate => Home::Postgres,
            Self::Mysql | Self::MysqlAdvisory | Self::MysqlForUpdate => Home::MariaDb,
            Self::Sqlite => Home::Sqlite,
            Self::Etcd => Home::Etcd,
            Self::ZooKeeper => Home::ZooKeeper,
            Self::Consul => Home::Consul,
        }
    }

    /// Why it does not take part, if it does not.
    pub const fn absent_because(self) -> Option<&'static str> {
        match self {
            Self::Consul => Some(
                "no Consul server is packaged where this is built and run; a double has neither faults nor speed",
            ),
            #[cfg(not(feature = "etcd"))]
            Self::Etcd => {
                Some("not compiled in: its client needs protoc; build with `--features etcd`")
            }
            _ => None,
        }
    }
}

impl fmt::Display for Contestant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
