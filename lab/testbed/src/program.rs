//! Runs a program to its end.

use std::{env, path::Path, process::Command};

use crate::{Result, TestbedError};

/// Runs a program that ends by itself. Dropping the future kills it.
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

/// Removes inherited variables with these prefixes, which are meant for another server. Also sets
/// the locale, because we search the log for English words.
pub(crate) fn without_inherited_settings(mut command: Command, prefixes: &[&str]) -> Command {
    let is_setting = |name: &str| prefixes.iter().any(|prefix| name.starts_with(prefix));
    for (key, _) in env::vars_os().filter(|(key, _)| is_setting(&key.to_string_lossy())) {
        command.env_remove(key);
    }
    command.env("LC_ALL", "C");
    command
}

/// Last component of the program's path.
fn name(command: &Command) -> String {
    let path = Path::new(command.get_program());
    path.file_name()
        .unwrap_or(path.as_os_str())
        .to_string_lossy()
        .into_owned()
}
