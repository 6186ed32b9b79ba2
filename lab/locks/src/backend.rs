//! The locks that are compared: every backend of `lock`, and the baselines that users would take
//! instead (the crate `rslock` and locks written by hand).

use std::fmt;

use serde::{Deserialize, Serialize};

/// A lock together with the servers that keep it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Backend {
    /// The Redlock of `lock`, on five servers.
    Redlock,
    /// The Redlock of `lock` with a FIFO queue.
    RedlockFair,
    /// The crate `rslock`, on five servers.
    Rslock,
    /// One Redis server.
    Redis,
    /// One Redis server, in Redisson's format.
    RedisReentrant,
    /// `SET NX PX`, released by compare-and-delete.
    SetNxCompare,
    /// `SET NX EX`, released by `DEL`.
    SetNxDel,
    /// `SETNX` followed by `EXPIRE`.
    SetnxExpire,
    /// A PostgreSQL row with an expiry.
    Postgres,
    /// An advisory lock of a PostgreSQL session.
    PostgresAdvisory,
    /// A row locked by a PostgreSQL transaction.
    PostgresForUpdate,
    /// A MariaDB row with an expiry.
    Mysql,
    /// `GET_LOCK` of a MariaDB session.
    MysqlAdvisory,
    /// A row locked by a MariaDB transaction.
    MysqlForUpdate,
    /// A SQLite row with an expiry.
    Sqlite,
    /// A key under an etcd lease.
    Etcd,
    /// An ephemeral ZooKeeper node.
    ZooKeeper,
    /// A key under a Consul session.
    Consul,
    /// Broken on purpose, to test the verdict: every contender acquires it.
    #[doc(hidden)]
    AlwaysGranted,
    /// Broken on purpose, to test the verdict: every holder gets the same token.
    #[doc(hidden)]
    SameToken,
}

/// The servers that keep a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum ServerKind {
    FiveRedis,
    OneRedis,
    Postgres,
    MariaDb,
    Sqlite,
    Etcd,
    ZooKeeper,
    Consul,
}

/// How a waiter learns that the lock is free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Waiting {
    /// A release wakes it.
    Notified,
    /// It tries again at intervals.
    Polling,
}

/// One row of the table of backends.
struct Profile {
    name: &'static str,
    servers: ServerKind,
    waiting: Waiting,
    description: &'static str,
}

const fn profile(
    name: &'static str,
    servers: ServerKind,
    waiting: Waiting,
    description: &'static str,
) -> Profile {
    Profile {
        name,
        servers,
        waiting,
        description,
    }
}

impl Backend {
    /// Every backend that a user would take, in the order of the table rows.
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

    #[rustfmt::skip]
    const fn profile(self) -> Profile {
        use ServerKind::{Consul, Etcd, FiveRedis, MariaDb, OneRedis, Postgres, Sqlite, ZooKeeper};
        use Waiting::{Notified, Polling};
        match self {
            Self::Redlock => profile("redlock", FiveRedis, Notified,
                "the Redlock of crates/lock on five independent Redis servers"),
            Self::RedlockFair => profile("redlock-fair", FiveRedis, Notified,
                "the same with a FIFO queue"),
            Self::Rslock => profile("rslock", FiveRedis, Polling,
                "the crate rslock 0.10, Redlock as its page describes it, on five independent Redis servers"),
            Self::Redis => profile("redis", OneRedis, Notified,
                "one Redis: SET NX PX and a counter in one script"),
            Self::RedisReentrant => profile("redis-reentrant", OneRedis, Notified,
                "the same in Redisson's format, re-entrant"),
            Self::SetNxCompare => profile("set-nx-compare", OneRedis, Polling,
                "written by hand: SET NX PX, released by compare-and-delete"),
            Self::SetNxDel => profile("set-nx-del", OneRedis, Polling,
                "written by hand, as in the Maotai case: SET NX EX, released by a plain DEL"),
            Self::SetnxExpire => profile("setnx-expire", OneRedis, Polling,
                "written by hand: SETNX, then EXPIRE, then DEL"),
            Self::Postgres => profile("postgres", Postgres, Polling,
                "a PostgreSQL row with an expiry, as in ShedLock"),
            Self::PostgresAdvisory => profile("postgres-advisory", Postgres, Notified,
                "an advisory lock of a PostgreSQL session"),
            Self::PostgresForUpdate => profile("postgres-for-update", Postgres, Notified,
                "a row that a PostgreSQL transaction has locked (SELECT ... FOR UPDATE)"),
            Self::Mysql => profile("mysql", MariaDb, Polling,
                "a MariaDB row with an expiry"),
            Self::MysqlAdvisory => profile("mysql-advisory", MariaDb, Notified,
                "GET_LOCK of a MariaDB session"),
            Self::MysqlForUpdate => profile("mysql-for-update", MariaDb, Notified,
                "a row that a MariaDB transaction has locked"),
            Self::Sqlite => profile("sqlite", Sqlite, Polling,
                "a row with an expiry in a SQLite file"),
            Self::Etcd => profile("etcd", Etcd, Notified,
                "an etcd key under a lease"),
            Self::ZooKeeper => profile("zookeeper", ZooKeeper, Notified,
                "an ephemeral sequential node of ZooKeeper"),
            Self::Consul => profile("consul", Consul, Notified,
                "a Consul key under a session"),
            Self::AlwaysGranted => profile("always-granted", OneRedis, Notified,
                "broken on purpose: every contender acquires it"),
            Self::SameToken => profile("same-token", OneRedis, Notified,
                "broken on purpose: every holder gets the same token"),
        }
    }

    /// Name on the command line, in JSON and in tables.
    pub const fn name(self) -> &'static str {
        self.profile().name
    }

    /// One line that says how the lock works.
    pub const fn description(self) -> &'static str {
        self.profile().description
    }

    /// The servers of the comparison, with the setting that decides what survives a crash.
    pub const fn deployment(self) -> &'static str {
        match self.server_kind() {
            ServerKind::FiveRedis => "5 Redis, appendfsync always",
            ServerKind::OneRedis => "1 Redis, appendfsync always",
            ServerKind::Postgres => "PostgreSQL, fsync on",
            ServerKind::MariaDb => "MariaDB, flush at commit",
            ServerKind::Sqlite => "a file",
            ServerKind::Etcd => "1 etcd",
            ServerKind::ZooKeeper => "1 ZooKeeper",
            ServerKind::Consul => "nothing",
        }
    }

    /// Whether waiters poll. If not, a release wakes them.
    pub const fn polls(self) -> bool {
        matches!(self.profile().waiting, Waiting::Polling)
    }

    pub(crate) const fn server_kind(self) -> ServerKind {
        self.profile().servers
    }

    /// Why the comparison leaves this backend out; `None` if it takes part.
    pub const fn absence_reason(self) -> Option<&'static str> {
        match self {
            Self::Consul => Some(
                "no Consul server is packaged for the test machines, and a test double has neither real faults nor real speed",
            ),
            #[cfg(not(feature = "etcd"))]
            Self::Etcd => {
                Some("not compiled in: its client needs protoc; build with `--features etcd`")
            }
            _ => None,
        }
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
