//! The unprivileged user that PostgreSQL insists on.
//!
//! As a normal user we run it as ourselves. As root, which it refuses, we run it as the user `postgres` that its packages create. The
//! standard library changes the user between fork and exec, so no `su` or `setpriv` stands between us and the server: it is our direct child.

use std::{
    fs::{self, Metadata},
    os::unix::{fs::MetadataExt, process::CommandExt},
    path::Path,
    process::Command,
};

use nix::unistd::{User, geteuid};

use crate::{Result, TestbedError};

const NAME: &str = "postgres";

/// Whom a server runs as.
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
        let user = User::from_name(NAME).map_err(|error| TestbedError::NoAccount {
            source: Some(error),
        })?;
        let user = user.ok_or(TestbedError::NoAccount { source: None })?;
        Ok(Self::Other {
            uid: user.uid.as_raw(),
            gid: user.gid.as_raw(),
        })
    }

    /// A command that will run as this user.
    pub(crate) fn command(self, program: &Path) -> Command {
        let mut command = Command::new(program);
        if let Self::Other { uid, gid } = self {
            command.uid(uid).gid(gid);
        }
        command
    }

    /// Gives the folder to this user, who must be able to get there.
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

/// Whether the mode lets this user through, by the class that the system would look at.
fn can_enter(folder: &Metadata, uid: u32, gid: u32) -> bool {
    let bit = match (folder.uid() == uid, folder.gid() == gid) {
        (true, _) => 0o100,
        (false, true) => 0o010,
        (false, false) => 0o001,
    };
    folder.mode() & bit != 0
}
