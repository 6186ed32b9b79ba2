//! The data folder of a database server, and templates of it.

use std::{fs, path::Path, process::Command};

use crate::{Result, TestbedError, program};

/// Name of the data folder in the server's folder.
pub(crate) const DATA: &str = "data";
/// Name of the data folder until it is complete.
pub(crate) const UNFINISHED: &str = "data.unfinished";

/// Creates the data folder if it does not exist. `fill` writes a complete one under the name
/// [`UNFINISHED`]; the rename at the end makes an interrupted start visible.
pub(crate) async fn create_once(dir: &Path, fill: impl Future<Output = Result<()>>) -> Result<()> {
    let data = dir.join(DATA);
    if data.exists() {
        return Ok(());
    }
    let _ = fs::remove_dir_all(dir.join(UNFINISHED));
    fill.await?;
    fs::rename(dir.join(UNFINISHED), &data).map_err(TestbedError::folder(&data))
}

/// Copies the data folder of `template` into `dir`, as the unfinished one.
pub(crate) async fn copy_template(template: &Path, dir: &Path) -> Result<()> {
    let mut command = Command::new("cp");
    command
        .arg("-pPR")
        .arg(template.join(DATA))
        .arg(dir.join(UNFINISHED));
    program::run(command).await
}
