//! The private Redis servers that `up` starts in its data folder.

use std::{fs, io, path::Path};

use anyhow::{Context, Result, ensure};
use local::{AppendFsync, Redis};

use crate::secrets::{random_secret, write_secret_file};

/// Number of lock nodes. A quorum of three tolerates the loss of two.
const LOCK_NODES: usize = 5;

/// File with the password of the servers, beside their folders.
const PASSWORD_FILE: &str = "password";
/// A shorter password was not made here.
const PASSWORD_CHARS_MIN: usize = 32;

/// The private servers, each a child of this process.
#[derive(Default)]
pub struct Private {
    servers: Vec<Redis>,
}

impl Private {
    /// Starts the server for the stock.
    pub async fn start_stock(&mut self, dir: &Path) -> Result<String> {
        self.start(dir, "stock").await
    }

    /// Starts the lock nodes. Each keeps its votes in its folder, so it votes without waiting for
    /// leases when it is new or restarts.
    pub async fn start_lock_nodes(&mut self, dir: &Path) -> Result<Vec<String>> {
        let mut urls = Vec::new();
        for node in 1..=LOCK_NODES {
            let url = self.start(dir, &format!("lock-{node}")).await?;
            urls.push(format!("{url}?durable=true"));
        }
        Ok(urls)
    }

    /// Starts a server with `appendfsync always`, so that an accepted order survives a crash even
    /// before it is recorded. Batches keep the cost of that small.
    async fn start(&mut self, dir: &Path, name: &str) -> Result<String> {
        let servers = dir.join("redis");
        let (dir, password) = (servers.join(name), password(&servers)?);
        let server = Redis::builder(&dir)
            .appendfsync(AppendFsync::Always)
            .password(&password)
            .start()
            .await
            .with_context(|| {
                format!(
                    "could not start a private Redis server in {}",
                    dir.display()
                )
            })?;
        let url = server.url();
        self.servers.push(server);
        Ok(url)
    }

    /// Stops the servers in reverse order of their start. Each writes its data before it ends.
    pub async fn stop(self) {
        for server in self.servers.into_iter().rev() {
            server.stop().await;
        }
    }
}

/// The password of the servers in this folder. The first start makes it, also in a folder of a
/// version that had none: the servers take it from their configuration, so their data stay.
fn password(servers: &Path) -> Result<String> {
    let path = servers.join(PASSWORD_FILE);
    match fs::read_to_string(&path) {
        Ok(text) => checked(text.trim(), &path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let password = random_secret();
            fs::create_dir_all(servers)
                .and_then(|()| write_secret_file(&path, &format!("{password}\n")))
                .with_context(|| format!("cannot write {}", path.display()))?;
            Ok(password)
        }
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}

/// The password stands in a URL and in a configuration file, so it has no character that either of
/// them would read in its own way.
fn checked(password: &str, path: &Path) -> Result<String> {
    let is_plain = password.bytes().all(|byte| byte.is_ascii_alphanumeric());
    ensure!(
        is_plain && password.len() >= PASSWORD_CHARS_MIN,
        "{}: expected {PASSWORD_CHARS_MIN} letters and digits or more; without the file `up` makes another password",
        path.display()
    );
    Ok(password.to_owned())
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::{PASSWORD_FILE, password};

    #[test]
    fn the_password_is_made_once_and_only_the_user_may_read_it() {
        let folder = tempfile::tempdir().unwrap();
        let (servers, other) = (folder.path().join("redis"), folder.path().join("other"));
        let first = password(&servers).unwrap();
        assert_eq!(password(&servers).unwrap(), first);
        assert_ne!(password(&other).unwrap(), first);
        let file = servers.join(PASSWORD_FILE);
        let mode = fs::metadata(&file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        for bad in [
            "",
            "short",
            &format!("{first}@host"),
            &format!("{first} {first}"),
        ] {
            fs::write(&file, bad).unwrap();
            let error = password(&servers).unwrap_err().to_string();
            assert!(error.contains("32 letters"), "{error}");
            assert!(!error.contains(&first), "{error}");
        }
    }
}
