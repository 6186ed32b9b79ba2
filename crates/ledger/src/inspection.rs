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
