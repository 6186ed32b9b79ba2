//! A database: PostgreSQL, MariaDB, or a file.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use async_trait::async_trait;
use tempfile::TempDir;
use testbed::{Clock, MariaDb, Postgres};
use tokio::process::Command;

use super::{AHEAD_MS, Contestant, Fault, Site, clock, prepare};

/// That the locks are in.
pub(super) const POSTGRES: &str = "postgres";
pub(super) const MARIADB: &str = "locks";

/// One to be broken.
pub(super) struct Own {
    server: Server,
    clock: Option<Clock>,
    /// With the data of the server, and of its copy.
    folder: Option<TempDir>,
    copy: Option<Server>,
}

enum Server {
    Postgres(Postgres),
    MariaDb(MariaDb),
}

impl Own {
    pub(super) async fn postgres(contestant: Contestant, fault: Fault) -> Result<Self> {
        let mut builder = Postgres::builder();
        let (clock, folder) = (clock(fault).await?, folder(fault)?);
        if let Some(clock) = &clock {
            builder = builder.clock(clock).await?;
        }
        if let Some(folder) = &folder {
            builder = builder.dir(folder.path().join(FIRST));
        }
        let server = builder.start().await?;
        prepare([contestant], &of_postgres(server.port())).await?;
        Ok(Self {
            server: Server::Postgres(server),
            clock,
            folder,
            copy: None,
        })
    }

    pub(super) async fn mariadb(contestant: Contestant, fault: Fault) -> Result<Self> {
        let mut builder = MariaDb::builder();
        let (clock, folder) = (clock(fault).await?, folder(fault)?);
        if let Some(clock) = &clock {
            builder = builder.clock(clock).await?;
        }
        if let Some(folder) = &folder {
            builder = builder.dir(folder.path().join(FIRST));
        }
        let server = builder.start().await?;
        let url = server.create_database(MARIADB).await?;
        prepare([contestant], &url).await?;
        Ok(Self {
            server: Server::MariaDb(server),
            clock,
            folder,
            copy: None,
        })
    }
}

/// The folders of a server and of its copy.
const FIRST: &str = "first";
const COPY: &str = "copy";
/// Of a server, in its folder.
const DATA: &str = "data";

/// PostgreSQL's user must be able to get there.
fn folder(fault: Fault) -> Result<Option<TempDir>> {
    use std::os::unix::fs::PermissionsExt;
    if fault != Fault::Failover {
        return Ok(None);
    }
    let folder = tempfile::Builder::new().prefix("matrix-").tempdir()?;
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755))?;
    Ok(Some(folder))
}

#[async_trait]
impl Site for Own {
    fn ports(&self) -> Vec<u16> {
        vec![match &self.server {
            Server::Postgres(server) => server.port(),
            Server::MariaDb(server) => server.port(),
        }]
    }

    fn url(&self, port: u16) -> String {
        match self.server {
            Server::Postgres(_) => of_postgres(port),
            Server::MariaDb(_) => of_mariadb(port),
        }
    }

    /// Both databases recover from a copy of the folder of a server that was killed, as they do from the crash itself.
    async fn arm(&mut self, fault: Fault) -> Result<()> {
        let (Fault::Failover, Some(folder)) = (fault, &self.folder) else {
            return Ok(());
        };
        let (from, to) = (folder.path().join(FIRST), folder.path().join(COPY));
        self.copy = Some(match &mut self.server {
            Server::Postgres(server) => {
                server.kill().await?;
                copy(&from, &to).await?;
                server.restart().await?;
                Server::Postgres(Postgres::builder().dir(to).start().await?)
            }
            Server::MariaDb(server) => {
                server.kill().await?;
                copy(&from, &to).await?;
                server.restart().await?;
                Server::MariaDb(MariaDb::builder().dir(to).start().await?)
            }
        });
        Ok(())
    }

    async fn strike(&mut self, fault: Fault) -> Result<()> {
        match fault {
            Fault::Failover => {
                match &mut self.server {
                    Server::Postgres(server) => server.kill().await?,
                    Server::MariaDb(server) => server.kill().await?,
                }
                self.server = self.copy.take().context("a copy")?;
            }
            Fault::Restart => match &mut self.server {
                Server::Postgres(server) => server.restart().await?,
                Server::MariaDb(server) => server.restart().await?,
            },
            Fault::Clock => self.clock.as_ref().context("a clock")?.set(AHEAD_MS)?,
            _ => {}
        }
        Ok(())
    }
}

async fn copy(from: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir_all(to)?;
    let copied = Command::new("cp")
        .arg("-pPR")
        .arg(from.join(DATA))
        .arg(to.join(DATA))
        .status()
        .await?;
    ensure!(copied.success(), "the data was not copied: {copied}");
    Ok(())
}

/// A database in a file. It has no server; its clock is that of each machine that opens it.
pub(super) struct File {
    folder: TempDir,
    clock: Option<Clock>,
}

impl File {
    pub(super) async fn start(contestant: Contestant, fault: Fault) -> Result<Self> {
        let file = Self {
            folder: tempfile::tempdir()?,
            clock: clock(fault).await?,
        };
        if let Some(clock) = &file.clock {
            clock.set(AHEAD_MS)?;
        }
        prepare([contestant], &file.url(0)).await?;
        Ok(file)
    }
}

#[async_trait]
impl Site for File {
    fn ports(&self) -> Vec<u16> {
        Vec::new()
    }

    fn url(&self, _port: u16) -> String {
        format!(
            "sqlite://{}/locks.db?mode=rwc",
            self.folder.path().display()
        )
    }

    async fn variables_of_the_next(&self) -> Result<Vec<(&'static str, PathBuf)>> {
        match &self.clock {
            Some(clock) => Ok(clock.variables().await?),
            None => Ok(Vec::new()),
        }
    }
}

pub(super) fn of_postgres(port: u16) -> String {
    format!("postgres://postgres@127.0.0.1:{port}/{POSTGRES}")
}

pub(super) fn of_mariadb(port: u16) -> String {
    format!("mysql://root@127.0.0.1:{port}/{MARIADB}")
}
