//! A small disk that can be full.
//!
//! It is a tmpfs, which only root may mount and only Linux has; elsewhere [`Disk::mount`] says so. What a reader could get wrong: a
//! process that is killed with SIGKILL unmounts nothing. The next one that keeps servers in temporary folders does it in its place.

use std::{
    fs,
    io::{self, Write},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use nix::unistd::geteuid;

use crate::{Result, TestbedError, folder::Folder, program};

/// Where it is mounted, in a folder of ours.
const POINT: &str = "disk";
/// The file that takes all room.
const FILLER: &str = "filler";
/// What the file is filled with, in pieces that get smaller: a page may be left when no larger piece is.
const PIECES_BYTES: [usize; 3] = [1 << 20, 1 << 16, 256];

/// A small disk. Dropping it unmounts it.
#[derive(Debug)]
pub struct Disk {
    folder: Folder,
}

impl Disk {
    /// Mounts an empty one of this size.
    pub async fn mount(megabytes: u32) -> Result<Self> {
        if !cfg!(target_os = "linux") || !geteuid().is_root() {
            return Err(TestbedError::Unsupported {
                what: "a disk that is full",
                needs: "Linux, and root",
            });
        }
        let folder = Folder::new(None)?;
        // Whom PostgreSQL runs as must be able to get there.
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755))
            .map_err(TestbedError::folder(folder.path()))?;
        let point = folder.path().join(POINT);
        fs::create_dir(&point).map_err(TestbedError::folder(&point))?;
        let mut mount = Command::new("mount");
        mount
            .args([
                "-t",
                "tmpfs",
                "-o",
                &format!("size={megabytes}m,mode=755"),
                "tmpfs",
            ])
            .arg(&point);
        program::run(mount).await?;
        Ok(Self { folder })
    }

    /// Where its files are.
    pub fn path(&self) -> PathBuf {
        self.folder.path().join(POINT)
    }

    /// Takes all room that is left. Returns how many bytes that was.
    pub fn fill(&self) -> Result<u64> {
        let path = self.path().join(FILLER);
        let file = fs::File::options().create(true).append(true).open(&path);
        let filled = file.and_then(|mut file| {
            PIECES_BYTES
                .iter()
                .map(|piece| write_all_that_fits(&mut file, *piece))
                .sum()
        });
        filled.map_err(TestbedError::folder(&path))
    }

    /// Gives it back.
    pub fn make_room(&self) -> Result<()> {
        let path = self.path().join(FILLER);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(TestbedError::folder(&path)(error))
            }
            _ => Ok(()),
        }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        unmount(self.folder.path());
    }
}

fn write_all_that_fits(file: &mut fs::File, piece: usize) -> io::Result<u64> {
    let piece = vec![0; piece];
    let mut written = 0;
    loop {
        match file.write(&piece) {
            Ok(0) => return Ok(written),
            Ok(bytes) => written += bytes as u64,
            Err(error) if error.kind() == io::ErrorKind::StorageFull => return Ok(written),
            Err(error) => return Err(error),
        }
    }
}

/// Unmounts the disk in this folder of ours, if there is one. Lazily: a server that is just being killed may still have files open.
pub(crate) fn unmount(folder: &Path) {
    let point = folder.join(POINT);
    if cfg!(target_os = "linux") && point.exists() {
        let _ = Command::new("umount")
            .arg("--lazy")
            .arg(&point)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
    }
}
