//! A wall clock that jumps, for a server that reads the time from the C library.
//!
//! A small library is preloaded before the C library of that one server; the rest of the machine is
//! not affected. Each process that uses a clock compiles the library once, so it needs `rustc`. It
//! works on Linux only; elsewhere [`Clock::new`] returns an error. libfaketime would do the same,
//! but it deadlocks with the allocator that Redis brings.

use std::{
    fs::{self, OpenOptions},
    io::Write,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::Command,
};

use tokio::sync::OnceCell;

use crate::{
    Result, TestbedError,
    folder::Folder,
    program,
    server::{Builder, TakesEnv},
};

const SHIM: &str = include_str!("clock/shim.rs.in");
const SOURCE: &str = "shim.rs";
const LIBRARY: &str = "libshim.so";
const FILE: &str = "clock";

/// A wall clock that one or several servers share.
#[derive(Debug)]
pub struct Clock {
    folder: Folder,
}

impl Clock {
    /// A clock that shows the time of the machine.
    pub async fn new() -> Result<Self> {
        library().await?;
        let clock = Self {
            folder: Folder::new(None)?,
        };
        allow_all_users(clock.folder.path())?;
        let path = clock.path();
        fs::write(&path, 0_i64.to_le_bytes()).map_err(TestbedError::folder(&path))?;
        Ok(clock)
    }

    /// Sets the clock ahead of the machine by this many milliseconds, or behind if negative.
    pub fn set(&self, ahead_ms: i64) -> Result<()> {
        // Written in place: the servers have mapped this file, and would not see a replacement.
        let path = self.path();
        let written = OpenOptions::new()
            .write(true)
            .open(&path)
            .and_then(|mut file| file.write_all(&ahead_ms.to_le_bytes()));
        written.map_err(TestbedError::folder(&path))
    }

    /// Environment variables that make a program use this clock.
    pub async fn variables(&self) -> Result<Vec<(&'static str, std::path::PathBuf)>> {
        Ok(vec![
            ("LD_PRELOAD", library().await?.path().join(LIBRARY)),
            ("CLOCK_FILE", self.path()),
        ])
    }

    fn path(&self) -> std::path::PathBuf {
        self.folder.path().join(FILE)
    }
}

impl<K: TakesEnv> Builder<K> {
    /// Makes the server use this clock.
    pub async fn clock(self, clock: &Clock) -> Result<Self> {
        let variables = clock.variables().await?;
        let add = |builder: Self, (name, value): (&str, std::path::PathBuf)| {
            builder.env(name, &value.to_string_lossy())
        };
        Ok(variables.into_iter().fold(self, add))
    }
}

/// Lets all users enter the folder: a server may run as another user, who must read the clock.
fn allow_all_users(folder: &Path) -> Result<()> {
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755))
        .map_err(TestbedError::folder(folder))
}

async fn library() -> Result<&'static Folder> {
    static COMPILED: OnceCell<Folder> = OnceCell::const_new();
    if !cfg!(all(
        target_os = "linux",
        any(target_arch = "x86_64", target_arch = "aarch64")
    )) {
        return Err(TestbedError::Unsupported {
            what: "a clock that jumps",
            needs: "Linux on x86-64 or ARM64",
        });
    }
    COMPILED.get_or_try_init(compile).await
}

async fn compile() -> Result<Folder> {
    let folder = Folder::new(None)?;
    let source = folder.path().join(SOURCE);
    fs::write(&source, SHIM).map_err(TestbedError::folder(&source))?;
    program::run(rustc(folder.path(), &source)).await?;
    allow_all_users(folder.path())?;
    Ok(folder)
}

fn rustc(folder: &Path, source: &Path) -> Command {
    let mut command = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    command.args([
        "--edition",
        "2024",
        "-O",
        "-C",
        "panic=abort",
        "--crate-type",
        "cdylib",
        "-o",
    ]);
    command.args([&folder.join(LIBRARY), source]);
    command
}
