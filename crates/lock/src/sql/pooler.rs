//! Connection poolers in transaction mode, which no lock can use.
//!
//! Such a pooler gives each transaction to any of its sessions. Prepared statements then meet those
//! of other clients. Worse, two clients that share a session would both get its advisory lock.

use sqlx::Error;

/// What the answer is instead of the database's own text, which names a statement.
#[derive(Debug, thiserror::Error)]
#[error(
    "a connection pooler in transaction mode is between us and the database, and no lock can use \
     one: connect to the server itself, or to a pool in session mode (pgbouncer: pool_mode = session)"
)]
pub(crate) struct PoolerMode;

/// A statement exists already, or does not. Each connection names its own, so a server never says
/// so.
const STATEMENT_CODES: [&str; 2] = ["42P05", "26000"];
/// Whether only a pooler explains the error.
pub(crate) fn explains(error: &Error) -> bool {
    let code = error.as_database_error().and_then(|error| error.code());
    code.is_some_and(|code| STATEMENT_CODES.contains(&&*code))
}
