//! Why a call returned no outcome.

use sqlx::error::DatabaseError;

/// Why a call returned no outcome.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// A name that cannot be used in a statement. Nothing was sent.
    #[error("{field} is {found:?}; expected {expected}")]
    Name {
        /// Field of the builder, or "an assigned column".
        field: &'static str,
        /// The given name.
        found: String,
        /// What is expected.
        expected: &'static str,
    },
    /// A value that cannot be encoded. Nothing was sent.
    #[error("the value for {column:?} cannot be sent")]
    Value {
        /// Column of the value.
        column: String,
        /// Error of the encoder.
        source: sqlx::error::BoxDynError,
    },
    /// The database refused and nothing was changed, or it did not answer and the outcome is
    /// unknown.
    #[error("the store failed")]
    Database(#[from] sqlx::Error),
    /// The key column is not unique. Outside a transaction all of these rows were changed.
    #[error("{rows} rows have this key; expected at most one")]
    KeyNotUnique {
        /// Number of matched rows.
        rows: usize,
    },
    /// The row matches but was not updated: it was inserted a moment ago, or a trigger or a policy
    /// of the database prevents the update. Nothing was changed.
    #[error("the row matches, but the database did not update it")]
    NotUpdated,
}

impl StoreError {
    /// Whether a retry of the same call may succeed. A retry is safe in any case: a claim may be
    /// repeated, and a write is never applied twice. Inside a transaction, repeat the whole
    /// transaction.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Database(error) => is_transient(error),
            Self::NotUpdated => true,
            Self::Name { .. } | Self::Value { .. } | Self::KeyNotUnique { .. } => false,
        }
    }
}

pub(crate) fn is_transient(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(_) | sqlx::Error::PoolTimedOut | sqlx::Error::WorkerCrashed => true,
        sqlx::Error::Database(error) => {
            error.code().is_some_and(|code| is_transient_code(&code))
                || mysql_number(error.as_ref()).is_some_and(is_transient_number)
        }
        _ => false,
    }
}

/// Whether the connection leads to a server that takes no writes, or no longer: another one may
/// have the address by now. Such a connection is not worth keeping.
pub(crate) fn is_of_wrong_server(error: &sqlx::Error) -> bool {
    let sqlx::Error::Database(error) = error else {
        return false;
    };
    error
        .code()
        .is_some_and(|code| WRONG_SERVER_CODES.contains(&&*code))
        || mysql_number(error.as_ref()).is_some_and(|number| WRONG_SERVER_NUMBERS.contains(&number))
}

/// SQLSTATE: a read-only transaction, as on a standby; shutdown by the administrator or by a crash;
/// a server that is starting.
const WRONG_SERVER_CODES: [&str; 4] = ["25006", "57P01", "57P02", "57P03"];

/// MySQL and MariaDB: shutdown (1053), `--read-only` (1290), a read-only transaction (1792), the
/// mode `READ ONLY` (1836).
const WRONG_SERVER_NUMBERS: [u16; 4] = [1053, 1290, 1792, 1836];

/// SQLSTATE: connection lost or refused (08), read-only transaction (25006), transaction lost a
/// conflict (40), resources exhausted (53), lock not available in time (55P03), server shutting
/// down or starting (57P). SQLite codes are numbers with details in their higher bytes: busy (5) or
/// locked (6).
fn is_transient_code(code: &str) -> bool {
    match code.parse::<u32>() {
        Ok(number) if code.len() < 5 => matches!(number & 0xff, 5 | 6),
        _ => {
            code.len() == 5
                && ["08", "25006", "40", "53", "55P03", "57P"]
                    .iter()
                    .any(|class| code.starts_with(class))
        }
    }
}

/// Errors for which MySQL and MariaDB have no specific SQLSTATE: the row has changed since the
/// snapshot (1020), the wait for its lock timed out (1205), the server takes no writes.
fn is_transient_number(number: u16) -> bool {
    matches!(number, 1020 | 1205) || WRONG_SERVER_NUMBERS.contains(&number)
}

#[cfg(feature = "mysql")]
fn mysql_number(error: &dyn DatabaseError) -> Option<u16> {
    error
        .try_downcast_ref::<sqlx::mysql::MySqlDatabaseError>()
        .map(sqlx::mysql::MySqlDatabaseError::number)
}

#[cfg(not(feature = "mysql"))]
fn mysql_number(_: &dyn DatabaseError) -> Option<u16> {
    None
}

#[cfg(test)]
mod tests {
    use super::is_transient_code;

    #[test]
    fn transient_errors_are_told_from_permanent_ones() {
        for transient in [
            "5", "6", "261", "517", "40001", "40P01", "08006", "08004", "53300", "55P03", "57P01",
            "57P03", "25006",
        ] {
            assert!(is_transient_code(transient), "{transient}");
        }
        for permanent in [
            "1", "8", "19", "2067", "42P01", "42703", "23514", "22003", "57014", "HY000", "", "?",
        ] {
            assert!(!is_transient_code(permanent), "{permanent}");
        }
    }
}
