//! A small disk that can be full.
//!
//! The disk is a tmpfs. Only root may mount one, and only on Linux; elsewhere [`Disk::mount`]
//! returns an error. A process that is killed with SIGKILL unmounts nothing; the next process that
//! uses temporary folders unmounts its disk.

use std::{
    fs,
    io::{self, Write},
    os::unix::fs::PermissionsExt,
    path::PathBuf,
    process::Command,
};

use nix::unistd::geteuid;

use crate::{
    Result, TestbedError,
    folder::Folder,
    mount::{MOUNT_POINT, unmount},
    program,
};

/// Name of the file that takes all free space.
const FILLER: &str = "filler";
/// Sizes of the writes that fill the disk. They get smaller, because a page may be free when no
/// larger piece is.
const PIECE_BYTES: [usize; 3] = [1 << 20, 1 << 16, 256];

/// A small disk. Dropping it unmounts it.
#[derive(Debug)]
pub struct Disk {
    folder: Folder,
}

impl Disk {
    /// Mounts an empty disk of this size.
    pub async fn mount(megabytes: u32) -> Result<Self> {
        if !cfg!(target_os = "linux") || !geteuid().is_root() {
            return Err(TestbedError::Unsupported {
                what: "a disk that is full",
                needs: "Linux, and root",
            });
        }
        let folder = Folder::new(None)?;
        // The user that PostgreSQL runs as must be able to enter the folder.
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755))
            .map_err(TestbedError::folder(folder.path()))?;
        let point = folder.path().join(MOUNT_POINT);
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

    /// Path of the mounted disk.
    pub fn path(&self) -> PathBuf {
        self.folder.path().join(MOUNT_POINT)
    }

    /// Takes all free space. Returns the number of bytes taken.
    pub fn fill(&self) -> Result<u64> {
        let path = self.path().join(FILLER);
        let file = fs::File::options().create(true).append(true).open(&path);
        let filled = file.and_then(|mut file| {
            PIECE_BYTES
                .iter()
                .map(|piece| write_all_that_fits(&mut file, *piece))
                .sum()
        });
        filled.map_err(TestbedError::folder(&path))
    }

    /// Frees the space that [`Disk::fill`] has taken.
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
