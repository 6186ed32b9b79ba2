//! Errors of starting and stopping a private server.

use std::{io, path::PathBuf, time::Duration};

/// The result type of this crate.
pub type Result<T, E = LocalError> = std::result::Result<T, E>;

/// An error of starting or stopping a private server.
///
/// No error is worth a retry, except [`PortTaken`](LocalError::PortTaken) on another port.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LocalError {
    /// The program is not on this machine.
    #[error("{program} is not installed: {hint}")]
    NotInstalled {
        /// Name or path of the program.
        program: String,
        /// Commands that install it.
        hint: &'static str,
    },
    /// The program exists, but the system could not run it.
    #[error("{program} could not be run")]
    Run {
        /// Name of the program.
        program: String,
        /// Error of the system.
        source: io::Error,
    },
    /// The server ended while it was starting.
    #[error("{program} ended while it was starting; the last lines of its log:\n{log}")]
    EndedAtStart {
        /// Name of the server program.
        program: &'static str,
        /// Last lines of the log of this run.
        log: String,
    },
    /// The server runs, but was not ready in time.
    #[error("{program} was not ready after {waited:?}; the last lines of its log:\n{log}")]
    NotReady {
        /// Name of the server program.
        program: &'static str,
        /// Time that we waited.
        waited: Duration,
        /// Last lines of the log of this run.
        log: String,
    },
    /// Another process listens on the port.
    #[error("port {port} is taken")]
    PortTaken {
        /// The port that the server should have used.
        port: u16,
    },
    /// The server was killed or ended by itself, and was not restarted.
    #[error("{program} is not running")]
    NotRunning {
        /// Name of the server program.
        program: &'static str,
    },
    /// The system refused to signal the server.
    #[error("process {pid} could not be signalled")]
    Signal {
        /// Process that should have received the signal.
        pid: u32,
        /// Error of the system.
        source: nix::Error,
    },
    /// A file or folder could not be created, read or written.
    #[error("{} cannot be used", path.display())]
    Folder {
        /// Path of the file or folder.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// Another process has locked the folder for the data of its server.
    #[error("{} is in use by another process", path.display())]
    FolderInUse {
        /// Path of the folder.
        path: PathBuf,
    },
}

impl LocalError {
    /// For `map_err`: an input or output error on a path.
    pub fn folder(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Folder { path, source }
    }
}
