//! The unprivileged user that PostgreSQL requires.
//!
//! As a normal user we run PostgreSQL as ourselves. It refuses to run as root; root runs it as the
//! user `postgres`, which its packages create. The standard library changes the user between fork
//! and exec, so the server is our direct child without `su` or `setpriv` in between.

use std::{
    fs::{self, Metadata},
    os::unix::{fs::MetadataExt, process::CommandExt},
    path::Path,
    process::Command,
};

use nix::unistd::{User, geteuid};

use crate::{Result, TestbedError};

const USER: &str = "postgres";

/// The user that a server runs as.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Account {
    Ourselves,
    Other { uid: u32, gid: u32 },
}

impl Account {
    pub(crate) fn unprivileged() -> Result<Self> {
        if !geteuid().is_root() {
            return Ok(Self::Ourselves);
        }
        let user = User::from_name(USER).map_err(|error| TestbedError::NoAccount {
            source: Some(error),
        })?;
        let user = user.ok_or(TestbedError::NoAccount { source: None })?;
        Ok(Self::Other {
            uid: user.uid.as_raw(),
            gid: user.gid.as_raw(),
        })
    }

    /// A command that runs as this user.
    pub(crate) fn command(self, program: &Path) -> Command {
        let mut command = Command::new(program);
        if let Self::Other { uid, gid } = self {
            command.uid(uid).gid(gid);
        }
        command
    }

    /// Makes this user the owner of the folder. Fails if the user cannot enter a folder above it.
    pub(crate) fn own(self, folder: &Path) -> Result<()> {
        let Self::Other { uid, gid } = self else {
            return Ok(());
        };
        std::os::unix::fs::chown(folder, Some(uid), Some(gid))
            .map_err(TestbedError::folder(folder))?;
        match folder
            .ancestors()
            .find(|part| !fs::metadata(part).is_ok_and(|data| can_enter(&data, uid, gid)))
        {
            Some(path) => Err(TestbedError::OutOfReach { path: path.into() }),
            None => Ok(()),
        }
    }
}

/// Whether the mode lets this user enter, by the permission class that the system would apply.
fn can_enter(folder: &Metadata, uid: u32, gid: u32) -> bool {
    let bit = match (folder.uid() == uid, folder.gid() == gid) {
        (true, _) => 0o100,
        (false, true) => 0o010,
        (false, false) => 0o001,
    };
    folder.mode() & bit != 0
}
