//! The data folder of one server, used by one process at a time.
//!
//! A locked file marks the folder as used. The system releases the lock when its owner dies, so the
//! lock answers two questions that a pid in a file cannot answer. The first: is a folder in use?
//! Two Redis servers on one append-only file ruin it. The second: did a dead process leave a
//! temporary folder behind? A process that SIGKILL ends removes nothing.

use std::{
    fs::{self, File, TryLockError},
    io,
    os::unix::fs::MetadataExt,
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
    lock: File,
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

    /// Locks an existing folder. Returns `None` if another process has locked it, or has removed it
    /// meanwhile.
    pub fn try_lock(folder: &Path) -> Result<Option<Self>> {
        let path = folder.join(LOCK_FILE);
        let file = File::options()
            .create(true)
            .append(true)
            .open(&path)
            .map_err(LocalError::folder(&path))?;
        match file.try_lock() {
            Ok(()) if !is_at(&file, &path) => Ok(None),
            Ok(()) => Ok(Some(Self {
                path: folder.to_owned(),
                lock: file,
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

impl Drop for LockedFolder {
    /// A process that is being started inherits the file until it executes its program. The lock
    /// must not last until then.
    fn drop(&mut self) {
        let _ = self.lock.unlock();
    }
}

/// Whether the open file is the one that the path leads to. The file could be locked, and removed
/// with its folder, between the moment it was opened and the moment it was locked.
fn is_at(file: &File, path: &Path) -> bool {
    let same = || -> io::Result<bool> {
        let (open, named) = (file.metadata()?, fs::metadata(path)?);
        Ok((open.dev(), open.ino()) == (named.dev(), named.ino()))
    };
    same().unwrap_or(false)
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

    #[test]
    fn a_lock_ends_with_its_handle_also_where_another_has_the_file() {
        let parent = tempfile::tempdir().unwrap();
        let folder = LockedFolder::open(parent.path()).unwrap();
        // As a child does between its fork and its program.
        let inherited = folder.lock.try_clone().unwrap();
        drop(folder);
        LockedFolder::open(parent.path()).unwrap();
        drop(inherited);
    }

    #[test]
    fn the_lock_of_a_removed_file_is_none() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join(LOCK_FILE);
        let file = File::create(&path).unwrap();
        assert!(is_at(&file, &path));
        fs::remove_file(&path).unwrap();
        assert!(!is_at(&file, &path));
        File::create(&path).unwrap();
        assert!(!is_at(&file, &path), "another file of its name");
    }
}
