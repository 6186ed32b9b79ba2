//! What an error of a database proves: whether anything can have been changed, and whether the
//! connection leads to the wrong server.
//!
//! The table is about statements and about connecting. The failure of a commit proves nothing,
//! whatever its code: the server may have committed before it failed. The failure to get a
//! connection, or to begin a transaction on it, proves everything, whatever its code: nothing else
//! was sent ([`nothing_sent`]).

use std::io;

use sqlx::postgres::{PgDatabaseError, PgSeverity};

use super::{LedgerError, TimeLimit};
use crate::postgres::{doubt_connections, remember_full_disk};

/// What a code of a database means.
struct Answer {
    code: &'static str,
    meaning: &'static str,
    /// Nothing was changed: the transaction was not begun, or has been rolled back.
    proves_unchanged: bool,
    /// Another server may have the address by now, or this one is not what it was.
    is_of_wrong_server: bool,
}

const fn row(
    code: &'static str,
    meaning: &'static str,
    proves_unchanged: bool,
    is_of_wrong_server: bool,
) -> Answer {
    Answer {
        code,
        meaning,
        proves_unchanged,
        is_of_wrong_server,
    }
}

/// The code of PostgreSQL.
const DISK_FULL: &str = "53100";

/// Codes of PostgreSQL. The administrator's shutdown may reach a statement that has already
/// committed and waits for a replica, so it proves nothing.
const POSTGRES: [Answer; 12] = [
    row("08001", "connection not made", true, false),
    row("25006", "read-only transaction", true, true),
    row("28000", "login not allowed", true, false),
    row("28P01", "wrong password", true, false),
    row("3D000", "no such database", true, false),
    row(DISK_FULL, "disk full", true, false),
    row("53200", "out of memory", true, false),
    row("53300", "too many connections", true, false),
    row("57P01", "shutdown by the administrator", false, true),
    row("57P02", "shutdown by a crash", false, true),
    row("57P03", "cannot connect now", true, true),
    row("57P04", "database dropped", false, true),
];

/// Codes of SQLite, by their low byte: the other bytes give the reason. A file has no address.
const SQLITE: [Answer; 4] = [
    row("5", "locked by another process", true, false),
    row("8", "read-only file", true, false),
    row("13", "disk full", true, false),
    row("14", "file cannot be opened", true, false),
];

/// Codes that PostgreSQL itself never gives to `sqlx`, which names its statements per connection: a
/// statement that exists already, and one that does not.
const OF_POOLER: [&str; 2] = ["42P05", "26000"];

fn find(code: &str) -> Option<&'static Answer> {
    let low_byte = match code.parse::<u32>() {
        Ok(number) if code.len() < 5 => Some((number & 0xff).to_string()),
        _ => None,
    };
    match low_byte {
        Some(code) => SQLITE.iter().find(|answer| answer.code == code),
        None => POSTGRES.iter().find(|answer| answer.code == code),
    }
}

fn answer(error: &sqlx::Error) -> Option<&'static Answer> {
    find(&error.as_database_error()?.code()?)
}

/// Whether nothing was changed by the call that failed, outside of a commit.
pub(crate) fn proves_unchanged(error: &sqlx::Error) -> bool {
    match error {
        // No connection was had, so nothing was sent.
        sqlx::Error::PoolTimedOut
        | sqlx::Error::PoolClosed
        | sqlx::Error::Configuration(_)
        | sqlx::Error::Tls(_) => true,
        // Only an attempt to connect is refused.
        sqlx::Error::Io(error) => {
            error.kind() == io::ErrorKind::ConnectionRefused || is_nothing_sent(error)
        }
        _ => !is_panic(error) && answer(error).is_some_and(|answer| answer.proves_unchanged),
    }
}

/// The error of getting a connection, or of beginning a transaction on it.
#[derive(Debug, thiserror::Error)]
#[error("nothing was sent: {0}")]
struct NothingSent(#[source] sqlx::Error);

/// Marks the error of getting a connection, or of beginning a transaction on it, so that it proves
/// that nothing was changed. An error that says what to do stays as it is.
pub(crate) fn nothing_sent(error: sqlx::Error) -> LedgerError {
    if proves_unchanged(&error) || is_of_pooler(&error) || time_limit(&error).is_some() {
        return error.into();
    }
    note(&error);
    sqlx::Error::Io(io::Error::other(NothingSent(error))).into()
}

fn is_nothing_sent(error: &io::Error) -> bool {
    error
        .get_ref()
        .is_some_and(|error| error.is::<NothingSent>())
}

/// Whether the whole server has crashed. A disk that is full may do that in the middle of a commit
/// without a transaction of ours.
fn is_panic(error: &sqlx::Error) -> bool {
    let postgres = error
        .as_database_error()
        .and_then(|error| error.try_downcast_ref::<PgDatabaseError>());
    postgres.is_some_and(|error| matches!(error.severity(), PgSeverity::Panic))
}

/// Whether the connection leads to a server that is not, or no longer, the one to write to.
pub(crate) fn is_of_wrong_server(error: &sqlx::Error) -> bool {
    answer(error).is_some_and(|answer| answer.is_of_wrong_server)
}

/// Whether only a pooler between us and the server explains the error.
pub(super) fn is_of_pooler(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(|error| error.code());
    code.is_some_and(|code| OF_POOLER.contains(&&*code))
}

/// The limit that has ended the statement. A statement in a commit is not ended: PostgreSQL stops
/// its clock before.
pub(super) fn time_limit(error: &sqlx::Error) -> Option<TimeLimit> {
    match &*error.as_database_error()?.code()? {
        "57014" => Some(TimeLimit::Statement),
        "55P03" => Some(TimeLimit::Lock),
        _ => None,
    }
}

/// Lets the pools drop their connections after an answer of a wrong server, and remembers a full
/// disk.
pub(super) fn note(error: &sqlx::Error) {
    if answer(error).is_some_and(|answer| answer.code == DISK_FULL) {
        remember_full_disk();
    }
    if let Some(answer) = answer(error).filter(|answer| answer.is_of_wrong_server) {
        tracing::debug!(
            code = answer.code,
            meaning = answer.meaning,
            "the ledger's connections may lead to the wrong server and are replaced"
        );
        doubt_connections();
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Error, ErrorKind};

    use super::{POSTGRES, SQLITE, find, is_of_wrong_server, nothing_sent, proves_unchanged};

    /// Real servers give these codes in `tests/it/refusals.rs`, but for 57P02, which PostgreSQL
    /// sends as a notice.
    #[test]
    fn each_code_has_one_meaning() {
        for (code, unchanged, wrong) in [
            ("25006", true, true),
            ("57P03", true, true),
            ("57P01", false, true),
            ("57P02", false, true),
            ("53100", true, false),
            ("08001", true, false),
            ("13", true, false),
            ("1032", true, false),
            ("517", true, false),
        ] {
            let answer = find(code).unwrap();
            let found = (answer.proves_unchanged, answer.is_of_wrong_server);
            assert_eq!(found, (unchanged, wrong), "{code}: {}", answer.meaning);
        }
        for code in [
            "08006", "40001", "23505", "58030", "10", "11", "2570", "", "?",
        ] {
            assert!(find(code).is_none(), "{code} proves nothing");
        }
        let mut codes: Vec<_> = POSTGRES.iter().chain(&SQLITE).map(|row| row.code).collect();
        codes.sort_unstable();
        codes.dedup();
        assert_eq!(codes.len(), POSTGRES.len() + SQLITE.len());
    }

    #[test]
    fn only_an_error_without_a_connection_proves_that_nothing_was_sent() {
        let io = |kind| sqlx::Error::Io(Error::from(kind));
        for error in [sqlx::Error::PoolTimedOut, io(ErrorKind::ConnectionRefused)] {
            assert!(
                proves_unchanged(&error) && !is_of_wrong_server(&error),
                "{error:?}"
            );
        }
        for error in [
            io(ErrorKind::ConnectionReset),
            io(ErrorKind::UnexpectedEof),
            sqlx::Error::WorkerCrashed,
            sqlx::Error::RowNotFound,
        ] {
            assert!(!proves_unchanged(&error), "{error:?}");
            let marked = nothing_sent(error);
            assert!(marked.proves_unchanged(), "{marked:?}");
        }
    }
}
