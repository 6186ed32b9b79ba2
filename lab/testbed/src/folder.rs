//! The folder of one server: temporary and removed with it, or kept.
//!
//! No other process uses it in either case. [`LockedFolder`] marks it as used, and a temporary
//! folder whose lock is free was left behind by a process that could not remove it: statics are not
//! dropped, and SIGKILL drops nothing.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Once,
};

use local::{LockedFolder, folder::LOCK_FILE};
use tempfile::TempDir;

use crate::{Result, TestbedError, mount};

const PREFIX: &str = "testbed-";

/// A folder that no other process uses.
#[derive(Debug)]
pub(crate) struct Folder {
    // Fields drop in this order: the folder must be removed before it is unlocked.
    _temporary: Option<TempDir>,
    locked: LockedFolder,
}

impl Folder {
    /// The given folder, which stays; or a new one, which is removed when this value is dropped.
    pub(crate) fn new(kept: Option<&Path>) -> Result<Self> {
        kept.map_or_else(Self::temporary, Self::kept)
    }

    pub(crate) fn path(&self) -> &Path {
        self.locked.path()
    }

    fn kept(path: &Path) -> Result<Self> {
        Ok(Self {
            _temporary: None,
            locked: LockedFolder::open(path)?,
        })
    }

    /// Another process may lock and remove the folder before we lock it. We then try another one.
    fn temporary() -> Result<Self> {
        static SWEPT: Once = Once::new();
        SWEPT.call_once(sweep);
        loop {
            let folder = tempfile::Builder::new()
                .prefix(PREFIX)
                .tempdir()
                .map_err(TestbedError::folder(std::env::temp_dir()))?;
            match LockedFolder::try_lock(folder.path()) {
                Ok(Some(locked)) => {
                    return Ok(Self {
                        _temporary: Some(folder),
                        locked,
                    });
                }
                Err(error) if folder.path().exists() => return Err(error.into()),
                _ => {}
            }
        }
    }
}

/// Removes the temporary folders of dead processes. A folder without a lock file is still being
/// created.
fn sweep() {
    let entries = fs::read_dir(std::env::temp_dir());
    for entry in entries.into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(PREFIX) {
            remove_if_left_behind(entry.path());
        }
    }
}

fn remove_if_left_behind(folder: PathBuf) {
    if !folder.join(LOCK_FILE).exists() {
        return;
    }
    if let Ok(Some(_locked)) = LockedFolder::try_lock(&folder) {
        mount::unmount(&folder);
        let _ = fs::remove_dir_all(&folder);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn folders_of_dead_processes_are_removed_and_used_folders_stay() {
        let left_behind = tempfile::Builder::new()
            .prefix(PREFIX)
            .tempdir()
            .unwrap()
            .keep();
        drop(LockedFolder::try_lock(&left_behind).unwrap());
        let in_use = Folder::new(None).unwrap();
        sweep();
        assert!(!left_behind.exists());
        assert!(in_use.path().exists());
    }

    #[test]
    fn a_folder_that_is_still_being_created_stays() {
        let folder = tempfile::Builder::new().prefix(PREFIX).tempdir().unwrap();
        sweep();
        assert!(folder.path().exists());
    }
}
