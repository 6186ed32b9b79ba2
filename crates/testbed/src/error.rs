//! What can go wrong while a server is started, broken or stopped.

use std::{io, path::PathBuf, time::Duration};

/// The result of everything in this crate.
pub type Result<T, E = TestbedError> = std::result::Result<T, E>;

/// What can go wrong. Nothing here is worth a retry, except [`PortTaken`](TestbedError::PortTaken) with another port.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TestbedError {
    /// The program is not on this machine.
    #[error("{program} is not installed: {hint}")]
    NotInstalled {
        /// What was looked for.
        program: String,
        /// How to get it.
        hint: &'static str,
    },
    /// The program is there, but could not be run.
    #[error("{program} could not be run")]
    Run {
        /// What was run.
        program: String,
        /// What the system said.
        source: io::Error,
    },
    /// The server ended while it was starting.
    #[error("{program} ended while it was starting; the last lines of its log:\n{log}")]
    EndedAtStart {
        /// Which server.
        program: &'static str,
        /// The last lines it wrote.
        log: String,
    },
    /// The server runs, but did not answer in time.
    #[error("{program} was not ready after {waited:?}; the last lines of its log:\n{log}")]
    NotReady {
        /// Which server.
        program: &'static str,
        /// How long we waited.
        waited: Duration,
        /// The last lines it wrote.
        log: String,
    },
    /// Somebody else has the port.
    #[error("port {port} is taken")]
    PortTaken {
        /// The port.
        port: u16,
    },
    /// The server has been killed, or has ended by itself, and was not restarted.
    #[error("{program} is not running")]
    NotRunning {
        /// Which server.
        program: &'static str,
    },
    /// This machine, or this user, cannot do it.
    #[error("{what} needs {needs}")]
    Unsupported {
        /// What was wanted.
        what: &'static str,
        /// What it takes.
        needs: &'static str,
    },
    /// The server could not be signalled.
    #[error("process {pid} could not be signalled")]
    Signal {
        /// The process.
        pid: u32,
        /// What the system said.
        source: nix::Error,
    },
    /// The server was told to pause, and still ran some seconds later.
    #[error("process {pid} did not stop")]
    NotPaused {
        /// The process.
        pid: u32,
    },
    /// A file or folder could not be made, read or changed.
    #[error("{} cannot be used", path.display())]
    Folder {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Another process keeps its server's data in this folder.
    #[error("{} is in use by another process", path.display())]
    FolderInUse {
        /// The folder.
        path: PathBuf,
    },
    /// A program that should have done its work and ended well did not.
    #[error("{program} failed: {output}")]
    Program {
        /// Which program.
        program: String,
        /// What it wrote to standard error.
        output: String,
    },
    /// We are root, PostgreSQL refuses to run as root, and there is nobody else to run it as.
    #[error(
        "PostgreSQL does not run as root and there is no user `postgres`: create one, or run as a normal user"
    )]
    NoAccount {
        /// What the system said, if it said something.
        source: Option<nix::Error>,
    },
    /// We are root, and the user that PostgreSQL runs as cannot get into the folder.
    #[error("the user `postgres`, as whom PostgreSQL runs when we are root, cannot enter {}", path.display())]
    OutOfReach {
        /// The folder that bars the way.
        path: PathBuf,
    },
    /// A Redis server did not do what it was told.
    #[error("the Redis server on port {port} refused a command")]
    Redis {
        /// Where it listens.
        port: u16,
        /// What it said.
        source: redis::RedisError,
    },
    /// The nodes run, but have not become a cluster.
    #[error("the cluster was not complete after {waited:?}; {view}")]
    ClusterIncomplete {
        /// How long we waited.
        waited: Duration,
        /// What the node that held us up saw last.
        view: String,
    },
    /// Replicas run, but do not confirm what their master writes.
    #[error(
        "{confirmed} of {wanted} replicas of the Redis server on port {port} followed after {waited:?}"
    )]
    ReplicasBehind {
        /// Where the master listens.
        port: u16,
        /// How many should follow.
        wanted: usize,
        /// How many did.
        confirmed: usize,
        /// How long we waited.
        waited: Duration,
    },
    /// Masters and replicas have not become what they should.
    #[error("the roles were not settled after {waited:?}; {view}")]
    NoFailover {
        /// How long we waited.
        waited: Duration,
        /// What was seen last.
        view: String,
    },
}

impl TestbedError {
    /// For `map_err`: an input or output error on a path.
    pub(crate) fn folder(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Folder { path, source }
    }
}
