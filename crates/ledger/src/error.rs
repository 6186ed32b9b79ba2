//! Errors of the ledger.

pub(crate) mod answers;

use std::time::Duration;

use domain::{CartId, SafetyCheck, SegmentKey};

/// Why a call of the ledger failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LedgerError {
    /// The URL's scheme names no supported database.
    #[error("DATABASE_URL: expected postgres://... or sqlite://..., found the scheme {0:?}")]
    Url(String),
    /// The file of a SQLite ledger does not exist, and was not to be created. Nothing was changed.
    #[error(
        "the file {0} does not exist: correct the path, or create the ledger with `stockade migrate`"
    )]
    NoFile(String),
    /// The database did not answer, or refused. [`LedgerError::proves_unchanged`] tells whether
    /// anything can have been changed.
    #[error("the ledger's database failed")]
    Database(#[source] sqlx::Error),
    /// The commit failed. It is unknown whether anything was changed; read again to find out.
    #[error("the ledger's database failed during a commit")]
    Commit(#[source] sqlx::Error),
    /// The server cannot write. Nothing was changed.
    #[error(transparent)]
    NotWritable(#[from] NotWritable),
    /// A pooler between us and the server gives each transaction to another session. Nothing was
    /// changed.
    #[error(
        "DATABASE_URL leads to a connection pooler in transaction mode, which is not supported: \
         connect to the server itself, or to a pool in session mode (pgbouncer: pool_mode = session)"
    )]
    PoolerMode,
    /// A prepared statement met that of another client, as behind a pooler in transaction mode.
    #[error(
        "DATABASE_URL seems to lead to a connection pooler in transaction mode, which is not \
         supported: connect to the server itself, or to a pool in session mode (pgbouncer: \
         pool_mode = session)"
    )]
    Pooler(#[source] sqlx::Error),
    /// The database did not answer within the timeout. It is unknown whether anything was changed;
    /// read again to find out.
    #[error("the ledger's database did not answer within {0:?}")]
    NoAnswer(Duration),
    /// A statement took or waited longer than its limit, or an operator has canceled it. Nothing
    /// was changed.
    #[error("a statement of the ledger's database was ended: {limit}")]
    TimedOut {
        /// Which limit.
        limit: TimeLimit,
        /// The answer of the database.
        #[source]
        source: sqlx::Error,
    },
    /// The schema could not be migrated to this release.
    #[error("failed to migrate the ledger's schema")]
    Migrate(#[from] sqlx::migrate::MigrateError),
    /// The segment's row has changed since it was read, or another recorder has claimed it. Nothing
    /// was changed; read the row and retry.
    #[error("segment {0} was changed or claimed concurrently")]
    Superseded(SegmentKey),
    /// A line of the cart was changed without its cart. Nothing was changed now; retry.
    #[error("a line of cart {0} was changed concurrently")]
    CartSuperseded(CartId),
    /// The lines of the cart are not in the state that their cart says. Nothing was changed.
    #[error("the lines of cart {0} are not in its state")]
    BrokenCart(CartId),
    /// Some of the orders that were expected to be new are in the ledger already. Nothing was
    /// changed.
    #[error("some of the orders were already recorded")]
    Known,
    /// The entries do not follow from the row: the segment's history is not the recorded one.
    /// Nothing was changed.
    #[error("the outbox of segment {0} does not continue the recorded history")]
    Diverged(SegmentKey),
    /// A higher fencing token has claimed the item. Nothing was changed.
    #[error("fencing token {token} is outdated: token {fence} has claimed the item")]
    Fenced {
        /// The token of the caller.
        token: u64,
        /// The highest token that has claimed the item.
        fence: u64,
    },
    /// The system has no random numbers. Nothing was changed.
    #[error("the system has no random numbers for a key")]
    Random,
    /// A row holds a value that this release does not understand.
    #[error("ledger column {column} contains {found:?}, which this release does not understand")]
    Unreadable {
        /// Name of the column.
        column: &'static str,
        /// The value found there.
        found: String,
    },
}

/// A server that answers and cannot write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the ledger's database cannot write: {0}")]
pub struct NotWritable(pub ReadOnly);

/// Why a server cannot write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReadOnly {
    /// It is in recovery: it follows a primary, or restores a backup.
    #[error("the server is a standby (pg_is_in_recovery), and DATABASE_URL must name the primary")]
    Standby,
    /// A setting of the server, the database or the role.
    #[error("its transactions are read only (default_transaction_read_only)")]
    Transactions,
    /// It has refused a write of this process a moment ago, and there was no commit since.
    #[error("its disk is full (53100)")]
    FullDisk,
}

/// A limit of PostgreSQL's statements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TimeLimit {
    /// `statement_timeout`, or `pg_cancel_backend`.
    #[error("it ran for too long, or was canceled (57014)")]
    Statement,
    /// `lock_timeout`.
    #[error("it waited for a lock for too long (55P03)")]
    Lock,
}

/// All errors of `sqlx` pass here, which is why the doubt about connections begins here.
impl From<sqlx::Error> for LedgerError {
    fn from(error: sqlx::Error) -> Self {
        answers::note(&error);
        if let Some(limit) = answers::time_limit(&error) {
            Self::TimedOut {
                limit,
                source: error,
            }
        } else if answers::is_of_pooler(&error) {
            Self::Pooler(error)
        } else {
            Self::Database(error)
        }
    }
}

impl LedgerError {
    /// The error of a migration. Those that have ended stay.
    pub(crate) fn migration(error: sqlx::migrate::MigrateError) -> Self {
        use sqlx::migrate::MigrateError::{Execute, ExecuteMigration};
        match error {
            Execute(error) | ExecuteMigration(error, _)
                if answers::time_limit(&error).is_some() =>
            {
                error.into()
            }
            error => error.into(),
        }
    }

    /// The error of a commit, after which nothing is known.
    pub(crate) fn commit(error: sqlx::Error) -> Self {
        answers::note(&error);
        Self::Commit(error)
    }

    /// Whether it is proven that the call changed nothing, so that its caller may say so. `false`:
    /// something may have been changed.
    pub fn proves_unchanged(&self) -> bool {
        match self {
            Self::Database(error) => answers::proves_unchanged(error),
            Self::Commit(_)
            | Self::Pooler(_)
            | Self::NoAnswer(_)
            | Self::Migrate(_)
            | Self::Unreadable { .. } => false,
            Self::Url(_)
            | Self::NoFile(_)
            | Self::TimedOut { .. }
            | Self::NotWritable(_)
            | Self::PoolerMode
            | Self::Superseded(_)
            | Self::CartSuperseded(_)
            | Self::BrokenCart(_)
            | Self::Known
            | Self::Diverged(_)
            | Self::Fenced { .. }
            | Self::Random => true,
        }
    }

    /// Whether the database would have answered any other call the same: it takes no writes, or
    /// gave no connection. Nothing was changed.
    pub fn is_of_all(&self) -> bool {
        match self {
            Self::Database(error) => answers::proves_unchanged(error),
            Self::NotWritable(_) => true,
            _ => false,
        }
    }

    /// Whether the server itself has said that it takes nothing now. A connection that was not had
    /// in time says less: the pool may have been full.
    pub fn is_said_by_server(&self) -> bool {
        let by_server = match self {
            Self::Database(error) => error.as_database_error().is_some(),
            error => matches!(error, Self::NotWritable(_)),
        };
        by_server && self.is_of_all()
    }

    /// Whether repeating the same call may succeed.
    pub fn is_retryable(&self) -> bool {
        matches!(
            self,
            Self::Database(_)
                | Self::Commit(_)
                | Self::NotWritable(_)
                | Self::Pooler(_)
                | Self::NoAnswer(_)
                | Self::TimedOut { .. }
                | Self::Superseded(_)
                | Self::CartSuperseded(_)
                | Self::Known
        ) && !self.is_refused()
    }

    /// Whether the database refused a value (by a constraint, or because it cannot represent it).
    /// Such a call can never succeed.
    pub fn is_refused(&self) -> bool {
        let (Self::Database(error) | Self::Commit(error)) = self else {
            return false;
        };
        let code = error.as_database_error().and_then(|error| error.code());
        code.is_some_and(|code| is_refusal(&code))
    }
}

/// Only the highest token that has claimed an item may change it.
pub(crate) fn check_fence(token: u64, fence: u64) -> Result<(), LedgerError> {
    if fence == token || !SafetyCheck::FenceClaim.is_enabled() {
        Ok(())
    } else {
        Err(LedgerError::Fenced { token, fence })
    }
}

/// PostgreSQL: the classes "data exception" and "integrity constraint violation". SQLite:
/// SQLITE_CONSTRAINT, whose low byte is 19.
fn is_refusal(code: &str) -> bool {
    match code.parse::<u32>() {
        Ok(number) if code.len() < 5 => number & 0xff == 19,
        _ => code.len() == 5 && (code.starts_with("22") || code.starts_with("23")),
    }
}

#[cfg(test)]
mod tests {
    use super::is_refusal;

    #[test]
    fn constraints_are_refusals_and_faults_are_not() {
        for refusal in [
            "19", "275", "1811", "2067", "23505", "23514", "22P05", "22003",
        ] {
            assert!(is_refusal(refusal), "{refusal}");
        }
        for fault in [
            "5", "517", "13", "57P01", "40001", "08006", "53300", "", "?",
        ] {
            assert!(!is_refusal(fault), "{fault}");
        }
    }
}
