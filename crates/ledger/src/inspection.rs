//! What a ledger's database says of itself, for operators who prepare a sale.

/// The database, its settings and its clock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatabaseReport {
    /// Its name and version, such as `PostgreSQL 15.4`.
    pub version: String,
    /// Settings with which a crash of the server may lose what it has acknowledged.
    pub unsafe_settings: Vec<&'static str>,
    /// Its connections. `None`: it is a file, and has no limit.
    pub connections: Option<DatabaseConnections>,
    /// For what a commit of this process waits: `synchronous_commit`, or SQLite's `synchronous`.
    pub commit_waits_for: String,
    /// Servers that follow this one.
    pub replicas: Vec<DatabaseReplica>,
    /// Milliseconds since 1970 by its clock. `None`: it uses the clock of this machine.
    pub now_ms: Option<i64>,
}

/// The connections of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DatabaseConnections {
    /// How many clients may have, without those that are kept for the server's owner.
    pub most: u32,
    /// How many are open now, the one of this report included.
    pub used: u32,
}

/// A server that follows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatabaseReplica {
    /// Its name, as it calls itself.
    pub name: String,
    /// Such as `streaming, async`. `None`: only `pg_read_all_stats` may see it.
    pub state: Option<String>,
    /// Bytes of the log that it has not applied. `None`: only `pg_read_all_stats` may see it.
    pub behind_bytes: Option<u64>,
}
