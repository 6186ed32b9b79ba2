//! The mount point of a small disk in a temporary folder.

use std::{
    path::Path,
    process::{Command, Stdio},
};

/// Name of the mount point in its temporary folder.
pub(crate) const MOUNT_POINT: &str = "disk";

/// Unmounts the disk in this temporary folder, if there is one. Lazily: a server that is being
/// killed may still have files open.
pub(crate) fn unmount(folder: &Path) {
    let point = folder.join(MOUNT_POINT);
    if cfg!(target_os = "linux") && point.exists() {
        let _ = Command::new("umount")
            .arg("--lazy")
            .arg(&point)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
    }
}
