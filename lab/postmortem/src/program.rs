//! How an actor is started.

use std::{ffi::OsString, path::PathBuf};

/// Command that starts this program as an actor.
#[derive(Debug, Clone)]
pub struct Program {
    /// Path of the program.
    pub path: PathBuf,
    /// Arguments before the name of the role.
    pub arguments: Vec<OsString>,
}
