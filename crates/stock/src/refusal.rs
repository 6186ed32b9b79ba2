//! Answers of Redis that prove that a script has not run, and those that mean "wrong server".
//!
//! A reply that was lost leaves the outcome open: the script may have run. A refusal does not. All
//! scripts that write begin with `#!lua`, so Redis checks memory, replicas, role and rights before
//! the first line runs (`scriptPrepareForRun` in its `script.c`). A right that one command *inside*
//! of a script lacks is different: it ends the script halfway, begins with `ERR`, and is no proof.
//!
//! An attempt to connect that failed proves as much, whatever its error is: the request was never
//! sent. The same error after the request was sent proves nothing, so the attempt marks its own
//! ([`never_sent`]).

use std::{error::Error, io, sync::Arc};

use redis::{ErrorKind, RedisError, Value};

/// An answer that proves that the command has not run.
pub(crate) struct Refusal {
    /// The word with which the answer begins.
    pub code: &'static str,
    /// What the connection that brought it is worth.
    connection: Worth,
}

/// What an answer tells of the connection that brought it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Worth {
    /// It leads to the right server.
    Good,
    /// The server does not accept its user, or not any more. A new login may be accepted.
    LogInAnew,
    /// It leads to a server that takes no writes, and the address may lead to another one by now.
    WrongServer,
}

const fn refusal(code: &'static str, connection: Worth) -> Refusal {
    Refusal { code, connection }
}

/// Every refusal that proves that nothing ran. `tests/it/refusals.rs` provokes each row at a real
/// server, and NOSCRIPT meets every script once.
pub(crate) const REFUSALS: [Refusal; 16] = [
    // The server is at `maxmemory`.
    refusal("OOM", Worth::Good),
    // Fewer replicas are connected than `min-replicas-to-write`.
    refusal("NOREPLICAS", Worth::Good),
    // The server cannot write its file.
    refusal("MISCONF", Worth::Good),
    // Another script runs for too long.
    refusal("BUSY", Worth::Good),
    // The server does not know the script. The call that follows carries it.
    refusal("NOSCRIPT", Worth::Good),
    // The cluster has no master for the slot, or moves it. Its client follows by itself.
    refusal("CLUSTERDOWN", Worth::Good),
    refusal("MOVED", Worth::Good),
    refusal("ASK", Worth::Good),
    refusal("TRYAGAIN", Worth::Good),
    refusal("CROSSSLOT", Worth::Good),
    // The user may not run the command, or may not use its keys.
    refusal("NOPERM", Worth::LogInAnew),
    refusal("NOAUTH", Worth::LogInAnew),
    refusal("WRONGPASS", Worth::LogInAnew),
    // The server is a replica, or a replica without its master, or reads its file.
    refusal("READONLY", Worth::WrongServer),
    refusal("MASTERDOWN", Worth::WrongServer),
    refusal("LOADING", Worth::WrongServer),
];

fn of_code(code: &str) -> Option<&'static Refusal> {
    REFUSALS.iter().find(|refusal| refusal.code == code)
}

/// Whether the request that ended with this error has certainly not run.
///
/// Only for requests that were sent once: a client that repeats them reports the last error alone.
pub(crate) fn proves_unchanged(error: &RedisError) -> bool {
    match error.kind() {
        ErrorKind::Server(_) | ErrorKind::Extension => error.code().and_then(of_code).is_some(),
        // There was no connection to send it on.
        ErrorKind::AuthenticationFailed
        | ErrorKind::InvalidClientConfig
        | ErrorKind::RESP3NotSupported
        | ErrorKind::MasterNameNotFoundBySentinel
        | ErrorKind::EmptySentinelList
        | ErrorKind::ClusterConnectionNotFound => true,
        ErrorKind::Io => error.is_connection_refusal() || cause(error).is_some(),
        _ => false,
    }
}

/// The error of an attempt to connect: what was to be sent on the connection was never sent.
#[derive(Debug, thiserror::Error)]
#[error("no connection to send it on: {0}")]
struct NeverSent(RedisError);

/// Marks the error of an attempt to connect, so that it proves that nothing ran.
pub(crate) fn never_sent(error: RedisError) -> RedisError {
    if proves_unchanged(&error) {
        return error;
    }
    io::Error::other(NeverSent(error)).into()
}

/// Why there was no connection, if the error is marked so.
fn cause(error: &RedisError) -> Option<&RedisError> {
    // The library shares the errors that it wraps.
    type Shared = Arc<dyn Error + Send + Sync>;
    let wrapped = error.source()?.downcast_ref::<Shared>()?;
    let wrapped = wrapped.downcast_ref::<io::Error>()?.get_ref()?;
    wrapped.downcast_ref().map(|NeverSent(cause)| cause)
}

/// Whether a server has answered, and refused to run the request. At its `maxclients`, Redis
/// accepts a connection and closes it.
pub(crate) fn is_by_server(error: &RedisError) -> bool {
    match cause(error) {
        Some(cause) if cause.is_io_error() => is_closed_by_server(cause),
        Some(_) => true,
        None => !error.is_io_error() && proves_unchanged(error),
    }
}

fn is_closed_by_server(error: &RedisError) -> bool {
    error.is_connection_dropped() && !error.is_connection_refusal()
}

/// What a reply tells of the connection that brought it.
pub(crate) fn worth_of_reply(reply: &Value) -> Worth {
    let Value::ServerError(error) = reply else {
        return Worth::Good;
    };
    of_code(error.code()).map_or(Worth::Good, |refusal| refusal.connection)
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, io};

    use redis::{ErrorKind, RedisError, Value};

    use super::{REFUSALS, Worth, is_by_server, never_sent, proves_unchanged, worth_of_reply};

    /// The error as the library reads it from a server.
    fn error(line: &str) -> (Value, RedisError) {
        let value = redis::parse_redis_value(format!("-{line}\r\n").as_bytes()).unwrap();
        let error = value.clone().extract_error().unwrap_err();
        (value, error)
    }

    #[test]
    fn every_refusal_is_read_as_one() {
        let codes: BTreeSet<_> = REFUSALS.iter().map(|refusal| refusal.code).collect();
        assert_eq!(codes.len(), REFUSALS.len(), "no row stands twice");
        for refusal in &REFUSALS {
            let (value, error) = error(&format!("{} and a text", refusal.code));
            assert!(proves_unchanged(&error), "{}", refusal.code);
            assert_eq!(worth_of_reply(&value), refusal.connection, "{error}");
        }
    }

    #[test]
    fn what_may_have_run_is_no_refusal() {
        let within = "ERR The user executing the script can't run this command or subcommand \
                      script: dd6e, on @user_script:2.";
        for line in [
            within,
            "ERR something",
            "UNKILLABLE a script",
            "WRONGTYPE of a key",
        ] {
            let (value, error) = error(line);
            assert!(!proves_unchanged(&error), "{line}");
            assert_eq!(worth_of_reply(&value), Worth::Good, "{line}");
        }
        for kind in [
            io::ErrorKind::TimedOut,
            io::ErrorKind::ConnectionReset,
            io::ErrorKind::BrokenPipe,
            io::ErrorKind::UnexpectedEof,
        ] {
            let error = RedisError::from(io::Error::from(kind));
            assert!(!proves_unchanged(&error), "{kind}");
        }
    }

    #[test]
    fn what_was_never_sent_has_not_run() {
        let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
        assert!(proves_unchanged(&refused.into()));
        let login = RedisError::from((ErrorKind::AuthenticationFailed, "wrong password"));
        assert!(proves_unchanged(&login));
    }

    #[test]
    fn an_attempt_to_connect_proves_that_nothing_ran_whatever_its_error_is() {
        let io = |kind: io::ErrorKind| RedisError::from(io::Error::from(kind));
        for (error, is_refusal) in [
            (io(io::ErrorKind::ConnectionReset), true),
            (io(io::ErrorKind::BrokenPipe), true),
            (io(io::ErrorKind::UnexpectedEof), true),
            (error("ERR max number of clients reached").1, true),
            ((ErrorKind::Client, "no certificate").into(), true),
            (io(io::ErrorKind::TimedOut), false),
            (io(io::ErrorKind::ConnectionRefused), false),
            (io(io::ErrorKind::HostUnreachable), false),
            (io::Error::other("failed to lookup address").into(), false),
        ] {
            let marked = never_sent(error.clone());
            assert!(proves_unchanged(&marked), "{error}");
            assert_eq!(is_by_server(&marked), is_refusal, "{error}");
            assert!(marked.to_string().contains(&error.to_string()), "{marked}");
            assert!(proves_unchanged(&never_sent(marked)), "marked twice");
        }
        let login = RedisError::from((ErrorKind::AuthenticationFailed, "wrong password"));
        assert_eq!(never_sent(login).kind(), ErrorKind::AuthenticationFailed);
    }
}
