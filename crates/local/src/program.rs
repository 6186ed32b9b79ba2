//! Program lookup.

use std::{env, path::PathBuf};

use crate::{LocalError, Result};

/// Finds the program in one of the `first` folders, or else in one of the folders of PATH.
pub fn find(name: &str, first: &[PathBuf], hint: &'static str) -> Result<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = first.iter().cloned().chain(env::split_paths(&path));
    let found = folders
        .map(|folder| folder.join(name))
        .find(|file| file.is_file());
    found.ok_or_else(|| not_installed(name, hint))
}

/// The error for a program that does not exist. `hint` names the commands that install it.
pub fn not_installed(name: &str, hint: &'static str) -> LocalError {
    LocalError::NotInstalled {
        program: name.into(),
        hint,
    }
}
