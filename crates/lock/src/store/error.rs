//! What can go wrong on the way to the row and back.

use sqlx::error::DatabaseError;

/// Why there is no outcome.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// A name that is not used in a statement. Nothing was sent.
    #[error("{field} is {found:?}; expected {expected}")]
    Name {
        /// Of the builder, or "an assigned column".
        field: &'static str,
        /// What was given.
        found: String,
        /// What would work.
        expected: &'static str,
    },
    /// A value that has no form on the wire. Nothing was sent.
    #[error("the value for {column:?} cannot be sent")]
    Value {
        /// That it was for.
        column: String,
        /// Why not.
        source: sqlx::error::BoxDynError,
    },
    /// The database refused, and nothing was changed; or it did not answer, and nobody knows whether something was.
    #[error("the store failed")]
    Database(#[from] sqlx::Error),
    /// The key column is not unique. Outside a transaction all of these rows were changed.
    #[error("{rows} rows have this key; expected at most one")]
    KeyNotUnique {
        /// That were hit.
        rows: usize,
    },
    /// The row is there and matches, and still was not hit: it appeared a moment ago, or a trigger or a policy of the database keeps it as
    /// it is. Nothing was changed.
    #[error("the row matches, but the database did not update it")]
    NotUpdated,
}

impl StoreError {
    /// Whether the same call may succeed later. It is safe to repeat either way: a claim may be repeated, and a write is never applied twice.
    /// In a transaction, it is the transaction that must be repeated.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Database(error) => is_passing(error),
            Self::NotUpdated => true,
            Self::Name { .. } | Self::Value { .. } | Self::KeyNotUnique { .. } => false,
        }
    }
}

pub(crate) fn is_passing(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(_) | sqlx::Error::PoolTimedOut | sqlx::Error::WorkerCrashed => true,
        sqlx::Error::Database(error) => {
            error.code().is_some_and(|code| is_passing_code(&code))
                || mysql_number(error.as_ref()).is_some_and(is_passing_number)
        }
        _ => false,
    }
}

/// SQLSTATE: the connection was lost or refused (08), the transaction lost against another (40), too little of something (53), a lock was
/// not to be had in time (55P03), the server goes down or comes up (57P). SQLite, whose codes are numbers and say more in their higher
/// bytes: busy (5) or locked (6).
fn is_passing_code(code: &str) -> bool {
    match code.parse::<u32>() {
        Ok(number) if code.len() < 5 => matches!(number & 0xff, 5 | 6),
        _ => {
            code.len() == 5
                && ["08", "40", "53", "55P03", "57P"]
                    .iter()
                    .any(|class| code.starts_with(class))
        }
    }
}

/// What MySQL and MariaDB have no SQLSTATE for: the row has changed since the snapshot (1020), the wait for its lock took too long (1205).
fn is_passing_number(number: u16) -> bool {
    matches!(number, 1020 | 1205)
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
    use super::is_passing_code;

    #[test]
    fn what_passes_is_told_from_what_stays() {
        for passing in [
            "5", "6", "261", "517", "40001", "40P01", "08006", "08004", "53300", "55P03", "57P01",
            "57P03",
        ] {
            assert!(is_passing_code(passing), "{passing}");
        }
        for lasting in [
            "1", "8", "19", "2067", "42P01", "42703", "23514", "22003", "57014", "HY000", "", "?",
        ] {
            assert!(!is_passing_code(lasting), "{lasting}");
        }
    }
}
