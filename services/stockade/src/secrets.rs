//! The secrets that `up` makes, and the files that keep them.

use std::{
    fs::{self, File},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

use rand::distr::{Alphanumeric, SampleString};

/// A secret of letters and digits, with 256 bits.
pub fn random_secret() -> String {
    Alphanumeric.sample_string(&mut rand::rng(), 43)
}

/// Writes a file that only the user may read, as a whole or not at all.
pub fn write_secret_file(path: &Path, text: &str) -> io::Result<()> {
    let mut unfinished = path.as_os_str().to_owned();
    unfinished.push(".unfinished");
    let mut file = File::options()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&unfinished)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(unfinished, path)
}
