//! Finding a program, and running one to its end.

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{Result, TestbedError};

/// The program in one of the folders, else in one of those that PATH names.
pub(crate) fn find(name: &str, first: &[PathBuf], hint: &'static str) -> Result<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = first.iter().cloned().chain(env::split_paths(&path));
    let found = folders
        .map(|folder| folder.join(name))
        .find(|file| file.is_file());
    found.ok_or_else(|| not_installed(name, hint))
}

/// The error for a program that is not there.
pub(crate) fn not_installed(name: &str, hint: &'static str) -> TestbedError {
    TestbedError::NotInstalled {
        program: name.into(),
        hint,
    }
}

/// Runs a program that ends by itself. It is killed if nobody waits for it any more.
pub(crate) async fn run(command: Command) -> Result<()> {
    let program = name(&command);
    let mut command = tokio::process::Command::from(command);
    let output = command.kill_on_drop(true).output().await;
    let output = output.map_err(|source| TestbedError::Run {
        program: program.clone(),
        source,
    })?;
    if output.status.success() {
        return Ok(());
    }
    Err(TestbedError::Program {
        program,
        output: String::from_utf8_lossy(&output.stderr).trim().into(),
    })
}

/// Variables with such a name are meant for another server; the log must be in the language that we look for words in.
pub(crate) fn without_settings_of_ours(mut command: Command, prefixes: &[&str]) -> Command {
    let is_setting = |name: &str| prefixes.iter().any(|prefix| name.starts_with(prefix));
    for (key, _) in env::vars_os().filter(|(key, _)| is_setting(&key.to_string_lossy())) {
        command.env_remove(key);
    }
    command.env("LC_ALL", "C");
    command
}

/// The last part of the program's path.
fn name(command: &Command) -> String {
    let path = Path::new(command.get_program());
    path.file_name()
        .unwrap_or(path.as_os_str())
        .to_string_lossy()
        .into_owned()
}
