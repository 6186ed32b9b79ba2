//! The log file of a server, and its last lines for the error of a failed start.

use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    path::{Path, PathBuf},
};

const TAIL_LINES: usize = 20;

/// A log file that all runs of a server append to.
#[derive(Debug)]
pub struct Log {
    path: PathBuf,
    // Offset at which the present run began. The output of an earlier run must not explain the
    // failure of this one.
    run_start: u64,
}

impl Log {
    /// A log in this file, which the first run creates.
    pub fn new(path: PathBuf) -> Self {
        Self { path, run_start: 0 }
    }

    /// Path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens the file for one more run, once for standard output and once for standard error.
    pub fn begin_run(&mut self) -> io::Result<(File, File)> {
        let file = File::options().create(true).append(true).open(&self.path)?;
        self.run_start = file.metadata()?.len();
        Ok((file.try_clone()?, file))
    }

    /// The last lines of the present run.
    pub fn tail(&self) -> String {
        let text = self
            .run()
            .unwrap_or_else(|error| format!("(no log: {error})"));
        let lines: Vec<_> = text.lines().collect();
        lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
    }

    fn run(&self) -> io::Result<String> {
        let mut file = File::open(&self.path)?;
        file.seek(SeekFrom::Start(self.run_start))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}
