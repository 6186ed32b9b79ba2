//! A wall clock that jumps, for a server that asks the C library for the time.
//!
//! A small library goes in front of the C library of that one server; nothing else on the machine notices. It is compiled once in each
//! process that wants it, so `rustc` must be there, and it is Linux only: elsewhere [`Clock::new`] says so. (libfaketime would do the same
//! if it did not deadlock with the allocator that Redis brings.)

use std::{
    fs::{self, OpenOptions},
    io::Write,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::Command,
};

use tokio::sync::OnceCell;

use crate::{
    MariaDbBuilder, PostgresBuilder, RedisBuilder, Result, TestbedError, ZooKeeperBuilder,
    folder::Folder, program,
};

const SHIM: &str = include_str!("clock/shim.rs.in");
const SOURCE: &str = "shim.rs";
const LIBRARY: &str = "libshim.so";
const FILE: &str = "clock";

/// A clock, for one server or several.
#[derive(Debug)]
pub struct Clock {
    folder: Folder,
}

impl Clock {
    /// A clock that says what the machine's does.
    pub async fn new() -> Result<Self> {
        library().await?;
        let clock = Self {
            folder: Folder::new(None)?,
        };
        for_everybody(clock.folder.path())?;
        let path = clock.path();
        fs::write(&path, 0_i64.to_le_bytes()).map_err(TestbedError::folder(&path))?;
        Ok(clock)
    }

    /// From now on it is so many milliseconds ahead of the machine's, or behind if that is negative.
    pub fn set(&self, ahead_ms: i64) -> Result<()> {
        // In place: the servers have mapped this file, not one that has its name.
        let path = self.path();
        let written = OpenOptions::new()
            .write(true)
            .open(&path)
            .and_then(|mut file| file.write_all(&ahead_ms.to_le_bytes()));
        written.map_err(TestbedError::folder(&path))
    }

    /// What a program's environment must have so that it tells the time by this clock.
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

/// A server that can be told which clock to go by.
macro_rules! tells_the_time_by_it {
    ($($builder:ty),*) => {$(
        impl $builder {
            /// Tells the time by this clock.
            pub async fn clock(self, clock: &Clock) -> Result<Self> {
                let variables = clock.variables().await?;
                Ok(variables.into_iter().fold(self, |builder, (name, value)| builder.env(name, &value.to_string_lossy())))
            }
        }
    )*};
}

tells_the_time_by_it!(
    RedisBuilder,
    PostgresBuilder,
    MariaDbBuilder,
    ZooKeeperBuilder
);

/// A server may run as another user, who must be able to read the clock.
fn for_everybody(folder: &Path) -> Result<()> {
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
    for_everybody(folder.path())?;
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
