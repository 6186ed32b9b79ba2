//! What the case needs: the scripts of a checkout, and the packages of django-oscar.

use std::{
    env,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use futures::{FutureExt, future::BoxFuture};
use tokio::{process::Command, time::timeout};

/// Time in which the packages must be installed. It takes half a minute.
const INSTALL_TIMEOUT: Duration = Duration::from_secs(300);

/// Checks that the packages are installed, or installs them.
pub(super) fn packages(install: bool) -> BoxFuture<'static, Result<(), String>> {
    async move {
        if finished().is_some() {
            return Ok(());
        }
        let root = checkout().ok_or("scripts/oscar.sh is missing: it needs a clone of Stockade")?;
        let mut script = Command::new(root.join("scripts/oscar_venv.sh"));
        script
            .args((!install).then_some("--installed"))
            .stdin(Stdio::null())
            .kill_on_drop(true);
        let output = timeout(INSTALL_TIMEOUT, script.output())
            .await
            .map_err(|_| format!("its packages were not installed within {INSTALL_TIMEOUT:?}"))?
            .map_err(|error| format!("scripts/oscar_venv.sh: {error}"))?;
        if output.status.success() {
            return Ok(());
        }
        let text = String::from_utf8_lossy(&output.stderr);
        let why = text.lines().rfind(|line| !line.trim().is_empty());
        Err(format!(
            "the packages of examples/oscar cannot be had: {}",
            why.unwrap_or("no reason is known")
        ))
    }
    .boxed()
}

/// Returns the clone of Stockade: the working directory, or the one that this program was built
/// from.
pub(super) fn checkout() -> Option<PathBuf> {
    let built_from = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let mut folders = env::current_dir().into_iter().chain([built_from.into()]);
    folders.find(|folder| folder.join("scripts/oscar.sh").is_file())
}

/// Returns the folder of a trial that has ended, such as `target/oscar` of `make oscar`.
pub(super) fn finished() -> Option<PathBuf> {
    env::var_os("REAL_SHOP_RESULTS").map(PathBuf::from)
}
