//! Files of results, and the command that wrote them.

use std::{fs, path::Path};

use anyhow::{Context, Result};
use serde::Serialize;

/// Results as the text of a file.
pub fn json(results: &impl Serialize) -> Result<String> {
    Ok(serde_json::to_string_pretty(results)? + "\n")
}

/// Writes a file that an option names, or one in the folder that it names. Creates the folder.
pub fn write(option: &str, path: &Path, text: &str) -> Result<()> {
    path.parent()
        .map_or(Ok(()), fs::create_dir_all)
        .and_then(|()| fs::write(path, text))
        .with_context(|| format!("{option}: {} cannot be written", path.display()))
}

/// The command line of `stockade-lab` with these arguments, for a document that it writes.
pub fn command(arguments: impl Iterator<Item = String>) -> String {
    let program = std::iter::once("stockade-lab".to_owned());
    program.chain(arguments).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{command, json, write};

    #[test]
    fn a_file_has_its_folder_and_names_the_option_if_it_cannot_be_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/results.json");
        write("--out", &path, &json(&[1]).unwrap()).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "[\n  1\n]\n");
        let error = write("--out", &path.join("below"), "").unwrap_err();
        assert!(error.to_string().starts_with("--out: "), "{error}");
    }

    #[test]
    fn the_command_is_one_that_can_be_repeated() {
        let arguments = ["bench", "--only", "P12"].map(str::to_owned);
        assert_eq!(
            command(arguments.into_iter()),
            "stockade-lab bench --only P12"
        );
    }
}
