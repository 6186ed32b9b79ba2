//! The data folder of one server, used by one process at a time.
//!
//! A locked file marks the folder as used. The system releases the lock when its owner dies, so the
//! lock answers two questions that a pid in a file cannot answer. The first: is a folder in use? Two
//! Redis servers on one append-only file ruin it. The second: did a dead process leave a temporary
//! folder behind? A process that SIGKILL ends removes nothing.

use std::{
    fs::{self, File, TryLockError},
    path::{Path, PathBuf},
};

use crate::{LocalError, Result};

/// Name of the locked file.
pub const LOCK_FILE: &str = "server.lock";

/// A folder that no other process uses until this value is dropped. The folder itself stays.
#[derive(Debug)]
pub struct LockedFolder {
    path: PathBuf,
    // Held only for its lock.
    _lock: File,
}

impl LockedFolder {
    /// Creates the folder if necessary and locks it. Fails if another process has locked it.
    pub fn open(path: &Path) -> Result<Self> {
        fs::create_dir_all(path).map_err(LocalError::folder(path))?;
        let path = path.canonicalize().map_err(LocalError::folder(path))?;
        match Self::try_lock(&path)? {
            Some(folder) => Ok(folder),
            None => Err(LocalError::FolderInUse { path }),
        }
    }

    /// Locks an existing folder. Returns `None` if another process has locked it.
    pub fn try_lock(folder: &Path) -> Result<Option<Self>> {
        let path = folder.join(LOCK_FILE);
        let file = File::options()
            .create(true)
            .append(true)
            .open(&path)
            .map_err(LocalError::folder(&path))?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Self {
                path: folder.to_owned(),
                _lock: file,
            })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(source)) => Err(LocalError::Folder { path, source }),
        }
    }

    /// Canonical path of the folder, unless [`LockedFolder::try_lock`] was given another one.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_locked_until_its_handle_is_dropped() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("data");
        let first = LockedFolder::open(&path).unwrap();
        let second = LockedFolder::open(&path);
        assert!(matches!(second, Err(LocalError::FolderInUse { .. })));
        drop(first);
        LockedFolder::open(&path).unwrap();
    }
}
