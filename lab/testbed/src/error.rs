//! Errors of starting, breaking and stopping a server.

use std::{io, path::PathBuf, time::Duration};

use local::LocalError;

/// The result type of this crate.
pub type Result<T, E = TestbedError> = std::result::Result<T, E>;

/// An error of starting, breaking or stopping a server. No error is worth a retry.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TestbedError {
    /// A server could not be started, signalled or stopped.
    #[error(transparent)]
    Local(#[from] LocalError),
    /// The program exists, but the system could not run it.
    #[error("{program} could not be run")]
    Run {
        /// Name of the program.
        program: String,
        /// Error of the system.
        source: io::Error,
    },
    /// This machine or this user lacks a requirement.
    #[error("{what} needs {needs}")]
    Unsupported {
        /// The feature.
        what: &'static str,
        /// Requirement of the feature.
        needs: &'static str,
    },
    /// The server was still running long after SIGSTOP.
    #[error("process {pid} did not stop after SIGSTOP")]
    NotPaused {
        /// Process id of the server.
        pid: u32,
    },
    /// A program that runs to its end failed.
    #[error("{program} failed: {output}")]
    Program {
        /// Name of the program.
        program: String,
        /// Its standard error.
        output: String,
    },
    /// We are root, PostgreSQL refuses to run as root, and its user does not exist.
    #[error(
        "PostgreSQL does not run as root and there is no user `postgres`: create one, or run as a normal user"
    )]
    NoAccount {
        /// Error of the system, if the lookup failed.
        source: Option<nix::Error>,
    },
    /// We are root, and the user that PostgreSQL runs as cannot enter the folder.
    #[error("the user `postgres`, as whom PostgreSQL runs when we are root, cannot enter {}", path.display())]
    OutOfReach {
        /// First folder of the path that the user cannot enter.
        path: PathBuf,
    },
    /// A Redis server did not carry out a command.
    #[error("the Redis server on port {port} refused a command")]
    Redis {
        /// Port of the server.
        port: u16,
        /// Error of the command.
        source: redis::RedisError,
    },
    /// The nodes run, but do not form a complete cluster.
    #[error("the cluster was not complete after {waited:?}; {view}")]
    ClusterIncomplete {
        /// Time that we waited.
        waited: Duration,
        /// Last state that the incomplete node reported.
        view: String,
    },
    /// Replicas run, but do not confirm the writes of their master.
    #[error(
        "{confirmed} of {wanted} replicas of the Redis server on port {port} followed after {waited:?}"
    )]
    ReplicasBehind {
        /// Port of the master.
        port: u16,
        /// Number of replicas that should follow.
        wanted: usize,
        /// Number of replicas that did.
        confirmed: usize,
        /// Time that we waited.
        waited: Duration,
    },
    /// Masters and replicas did not reach the expected roles.
    #[error("the roles were not settled after {waited:?}; {view}")]
    NoFailover {
        /// Time that we waited.
        waited: Duration,
        /// Last state that we saw.
        view: String,
    },
}

impl TestbedError {
    /// For `map_err`: an input or output error on a path.
    pub(crate) fn folder(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| LocalError::folder(path)(source).into()
    }
}
