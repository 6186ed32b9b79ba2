//! The folder of one server: temporary and removed with it, or kept. Either way nobody else uses it.
//!
//! A lock file says so. The system releases the lock when its owner dies, which answers two questions that a pid in a file cannot: whether
//! a kept folder is in use (two Redis servers on one append-only file ruin it), and which temporary folders were left behind by a process
//! that never got to remove them (statics are not dropped, and SIGKILL drops nothing).

use std::{
    fs::{self, File, TryLockError},
    io,
    path::{Path, PathBuf},
    sync::Once,
};

use tempfile::TempDir;

use crate::{Result, TestbedError, disk};

const PREFIX: &str = "testbed-";
const LOCK: &str = "testbed.lock";

/// A folder that is ours.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    // The fields below are only held: first the folder goes, then the lock.
    _temporary: Option<TempDir>,
    _lock: File,
}

impl Folder {
    /// The given folder, which stays; or a new one, which goes.
    pub(crate) fn new(kept: Option<&Path>) -> Result<Self> {
        kept.map_or_else(Self::temporary, Self::kept)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    fn kept(path: &Path) -> Result<Self> {
        fs::create_dir_all(path).map_err(TestbedError::folder(path))?;
        let path = path.canonicalize().map_err(TestbedError::folder(path))?;
        let lock = lock(&path)?.ok_or_else(|| TestbedError::FolderInUse { path: path.clone() })?;
        Ok(Self {
            path,
            _temporary: None,
            _lock: lock,
        })
    }

    /// Another process may sweep the folder away before it is locked. It then holds the lock, and we take another folder.
    fn temporary() -> Result<Self> {
        static SWEPT: Once = Once::new();
        SWEPT.call_once(sweep);
        loop {
            let folder = tempfile::Builder::new()
                .prefix(PREFIX)
                .tempdir()
                .map_err(TestbedError::folder(std::env::temp_dir()))?;
            let path = folder.path().to_owned();
            match lock(&path) {
                Ok(Some(lock)) => {
                    return Ok(Self {
                        path,
                        _temporary: Some(folder),
                        _lock: lock,
                    });
                }
                Err(error) if path.exists() => return Err(error),
                _ => {}
            }
        }
    }
}

/// The lock, or nothing if somebody has it.
fn lock(folder: &Path) -> Result<Option<File>> {
    let path = folder.join(LOCK);
    let file = File::options()
        .create(true)
        .append(true)
        .open(&path)
        .map_err(TestbedError::folder(&path))?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(source)) => Err(TestbedError::Folder { path, source }),
    }
}

/// Removes the temporary folders whose owners are dead. A folder without a lock file is just being made.
fn sweep() {
    for entry in fs::read_dir(std::env::temp_dir())
        .into_iter()
        .flatten()
        .flatten()
    {
        if entry.file_name().to_string_lossy().starts_with(PREFIX) {
            let _ = remove_if_left_behind(&entry.path());
        }
    }
}

fn remove_if_left_behind(folder: &Path) -> io::Result<()> {
    let lock = File::options().append(true).open(folder.join(LOCK))?;
    lock.try_lock()?;
    disk::unmount(folder);
    fs::remove_dir_all(folder)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn what_a_dead_process_left_behind_is_swept_away_and_what_is_in_use_is_not() {
        let left_behind = tempfile::Builder::new()
            .prefix(PREFIX)
            .tempdir()
            .unwrap()
            .keep();
        drop(lock(&left_behind).unwrap());
        let in_use = Folder::new(None).unwrap();
        sweep();
        assert!(!left_behind.exists());
        assert!(in_use.path().exists());
    }

    #[test]
    fn a_folder_that_is_just_being_made_is_left_alone() {
        let folder = tempfile::Builder::new().prefix(PREFIX).tempdir().unwrap();
        sweep();
        assert!(folder.path().exists());
    }
}
