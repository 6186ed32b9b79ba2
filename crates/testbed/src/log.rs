//! The file a server writes its output to, and its last lines, for the error that says why it did not start.

use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    path::PathBuf,
};

const LINES: usize = 20;

/// A log that grows over restarts.
#[derive(Debug)]
pub(crate) struct Log {
    path: PathBuf,
    // Where the present run began. What an earlier run said must not explain the failure of this one.
    start: u64,
}

impl Log {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path, start: 0 }
    }

    /// The file for one more run, once for each of its two outputs.
    pub(crate) fn begin_run(&mut self) -> io::Result<(File, File)> {
        let file = File::options().create(true).append(true).open(&self.path)?;
        self.start = file.metadata()?.len();
        Ok((file.try_clone()?, file))
    }

    /// The last lines of the present run.
    pub(crate) fn tail(&self) -> String {
        let text = self
            .run()
            .unwrap_or_else(|error| format!("(no log: {error})"));
        let lines: Vec<_> = text.lines().collect();
        lines[lines.len().saturating_sub(LINES)..].join("\n")
    }

    fn run(&self) -> io::Result<String> {
        let mut file = File::open(&self.path)?;
        file.seek(SeekFrom::Start(self.start))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}
