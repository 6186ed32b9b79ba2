//! What can go wrong with the ledger.

use std::time::Duration;

use devices::Device;
use domain::SegmentKey;

/// Why the ledger did not do what it was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LedgerError {
    /// The URL's scheme is not one of ours.
    #[error("DATABASE_URL: expected postgres://... or sqlite://..., found the scheme {0:?}")]
    Url(String),
    /// The database did not answer, or refused. Nothing was changed, unless it happened during a commit: then the outcome is
    /// unknown, and re-reading the checkpoint tells.
    #[error("the ledger's database failed")]
    Database(#[from] sqlx::Error),
    /// The database did not answer for so long, and was given up. Whether anything was changed is unknown; reading again tells.
    #[error("the ledger's database did not answer within {0:?}")]
    NoAnswer(Duration),
    /// The schema could not be brought up to date.
    #[error("the ledger's schema could not be migrated")]
    Migrate(#[from] sqlx::migrate::MigrateError),
    /// The segment's row was changed, or somebody else records it, since it was read. Nothing was changed; read again.
    #[error("segment {0} was changed by somebody else meanwhile")]
    Superseded(SegmentKey),
    /// Some of the orders that were to be new are in the ledger already. Nothing was changed.
    #[error("some of the orders are recorded already")]
    Known,
    /// The entries do not follow from the row: the segment's history is not the one that was recorded. Nothing was changed.
    #[error("the outbox of segment {0} does not continue what the ledger has recorded")]
    Diverged(SegmentKey),
    /// Another fencing token has the authority over the item. Nothing was changed.
    #[error("token {token} has no authority over the item, token {fence} has")]
    Fenced {
        /// The token that was shown.
        token: u64,
        /// The highest that has claimed the item.
        fence: u64,
    },
    /// A row holds what this release does not understand.
    #[error("the ledger holds {found:?} in {column}, which this release does not know")]
    Unreadable {
        /// The column.
        column: &'static str,
        /// What stood there.
        found: String,
    },
}

impl LedgerError {
    /// Whether the same call may be made again as it is.
    pub fn is_retryable(&self) -> bool {
        matches!(
            self,
            Self::Database(_) | Self::NoAnswer(_) | Self::Superseded(_) | Self::Known
        ) && !self.is_refused()
    }

    /// Whether the database refused what it was given (a constraint, a value that it cannot hold), and so always will.
    pub fn is_refused(&self) -> bool {
        let Self::Database(error) = self else {
            return false;
        };
        let code = error.as_database_error().and_then(|error| error.code());
        code.is_some_and(|code| is_refusal(&code))
    }
}

/// Whoever has the highest token has the authority over the item, and nobody else.
pub(crate) fn check_authority(token: u64, fence: u64) -> Result<(), LedgerError> {
    if fence == token || !devices::is_on(Device::FenceClaim) {
        Ok(())
    } else {
        Err(LedgerError::Fenced { token, fence })
    }
}

/// Postgres: the classes "data exception" and "integrity constraint violation". SQLite: SQLITE_CONSTRAINT, whose low byte is 19.
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
