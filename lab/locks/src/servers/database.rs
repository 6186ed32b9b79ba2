//! A database: PostgreSQL, MariaDB, or a SQLite file.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use async_trait::async_trait;
use tempfile::TempDir;
use testbed::{
    Clock, MariaDb, Postgres,
    server::{Builder, TakesEnv},
};
use tokio::process::Command;

use super::api::{CLOCK_JUMP_MS, Servers, clock_for, create_tables};
use crate::{backend::Backend, fault::Fault};

/// The databases that contain the locks.
pub(super) const POSTGRES_DATABASE: &str = "postgres";
pub(super) const MARIADB_DATABASE: &str = "locks";

/// Folders of the server and of its copy, and of the data in each of them.
const PRIMARY_FOLDER: &str = "first";
const COPY_FOLDER: &str = "copy";
const DATA_FOLDER: &str = "data";

/// A private server that the fault may break.
pub(super) struct DatabaseServer {
    server: Server,
    clock: Option<Clock>,
    /// Contains the data of the server and of its copy. Only a failover needs it.
    folder: Option<TempDir>,
    copy: Option<Server>,
}

enum Server {
    Postgres(Postgres),
    MariaDb(MariaDb),
}

impl DatabaseServer {
    pub(super) async fn postgres(backend: Backend, fault: Fault) -> Result<Self> {
        let (server, clock, folder) = started(Postgres::builder(), fault).await?;
        create_tables([backend], &postgres_url(server.port())).await?;
        Ok(Self {
            server: Server::Postgres(server),
            clock,
            folder,
            copy: None,
        })
    }

    pub(super) async fn mariadb(backend: Backend, fault: Fault) -> Result<Self> {
        let (server, clock, folder) = started(MariaDb::builder(), fault).await?;
        let url = server.create_database(MARIADB_DATABASE).await?;
        create_tables([backend], &url).await?;
        Ok(Self {
            server: Server::MariaDb(server),
            clock,
            folder,
            copy: None,
        })
    }
}

/// Starts a server with the clock and the folder that the fault needs.
async fn started<K: TakesEnv>(
    mut builder: Builder<K>,
    fault: Fault,
) -> Result<(testbed::server::Server<K>, Option<Clock>, Option<TempDir>)> {
    let (clock, folder) = (clock_for(fault).await?, folder_for(fault)?);
    if let Some(clock) = &clock {
        builder = builder.clock(clock).await?;
    }
    if let Some(folder) = &folder {
        builder = builder.dir(folder.path().join(PRIMARY_FOLDER));
    }
    Ok((builder.start().await?, clock, folder))
}

impl Server {
    fn port(&self) -> u16 {
        match self {
            Self::Postgres(server) => server.port(),
            Self::MariaDb(server) => server.port(),
        }
    }

    async fn kill(&mut self) -> Result<()> {
        match self {
            Self::Postgres(server) => server.kill().await?,
            Self::MariaDb(server) => server.kill().await?,
        }
        Ok(())
    }

    async fn restart(&mut self) -> Result<()> {
        match self {
            Self::Postgres(server) => server.restart().await?,
            Self::MariaDb(server) => server.restart().await?,
        }
        Ok(())
    }

    /// Starts a second server of the same kind on a copied data folder.
    async fn start_copy(&self, folder: PathBuf) -> Result<Self> {
        Ok(match self {
            Self::Postgres(_) => Self::Postgres(Postgres::builder().dir(folder).start().await?),
            Self::MariaDb(_) => Self::MariaDb(MariaDb::builder().dir(folder).start().await?),
        })
    }
}

/// The folder of a server that is copied. PostgreSQL runs as another user, who must be able to
/// enter it.
fn folder_for(fault: Fault) -> Result<Option<TempDir>> {
    use std::os::unix::fs::PermissionsExt;
    if fault != Fault::Failover {
        return Ok(None);
    }
    let folder = tempfile::Builder::new().prefix("locks-").tempdir()?;
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755))?;
    Ok(Some(folder))
}

#[async_trait]
impl Servers for DatabaseServer {
    fn ports(&self) -> Vec<u16> {
        vec![self.server.port()]
    }

    fn url(&self, port: u16) -> String {
        match self.server {
            Server::Postgres(_) => postgres_url(port),
            Server::MariaDb(_) => mariadb_url(port),
        }
    }

    /// Copies the data folder of the killed server. Both databases recover from such a copy as they
    /// do from a crash.
    async fn prepare(&mut self, fault: Fault) -> Result<()> {
        let (Fault::Failover, Some(folder)) = (fault, &self.folder) else {
            return Ok(());
        };
        let (from, to) = (
            folder.path().join(PRIMARY_FOLDER),
            folder.path().join(COPY_FOLDER),
        );
        self.server.kill().await?;
        copy_data(&from, &to).await?;
        self.server.restart().await?;
        self.copy = Some(self.server.start_copy(to).await?);
        Ok(())
    }

    async fn inject(&mut self, fault: Fault) -> Result<()> {
        match fault {
            Fault::Failover => {
                self.server.kill().await?;
                self.server = self.copy.take().context("failover needs a copy")?;
            }
            Fault::Restart => self.server.restart().await?,
            Fault::Clock => {
                let clock = self.clock.as_ref().context("clock jump needs a clock")?;
                clock.set(CLOCK_JUMP_MS)?;
            }
            _ => {}
        }
        Ok(())
    }
}

async fn copy_data(from: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir_all(to)?;
    let status = Command::new("cp")
        .arg("-pPR")
        .arg(from.join(DATA_FOLDER))
        .arg(to.join(DATA_FOLDER))
        .status()
        .await?;
    ensure!(
        status.success(),
        "cp of the data folder {} failed: {status}",
        from.display()
    );
    Ok(())
}

/// A database in a file. It has no server, and each process that opens it uses the clock of its own
/// machine.
pub(super) struct SqliteFile {
    folder: TempDir,
    clock: Option<Clock>,
}

impl SqliteFile {
    pub(super) async fn create(backend: Backend, fault: Fault) -> Result<Self> {
        let file = Self {
            folder: tempfile::tempdir()?,
            clock: clock_for(fault).await?,
        };
        if let Some(clock) = &file.clock {
            clock.set(CLOCK_JUMP_MS)?;
        }
        create_tables([backend], &file.url(0)).await?;
        Ok(file)
    }
}

#[async_trait]
impl Servers for SqliteFile {
    fn ports(&self) -> Vec<u16> {
        Vec::new()
    }

    fn url(&self, _port: u16) -> String {
        format!(
            "sqlite://{}/locks.db?mode=rwc",
            self.folder.path().display()
        )
    }

    async fn variables_of_next(&self) -> Result<Vec<(&'static str, PathBuf)>> {
        match &self.clock {
            Some(clock) => Ok(clock.variables().await?),
            None => Ok(Vec::new()),
        }
    }
}

pub(super) fn postgres_url(port: u16) -> String {
    format!("postgres://postgres@127.0.0.1:{port}/{POSTGRES_DATABASE}")
}

pub(super) fn mariadb_url(port: u16) -> String {
    format!("mysql://root@127.0.0.1:{port}/{MARIADB_DATABASE}")
}
