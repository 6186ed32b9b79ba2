//! pgbouncer, the connection pooler of PostgreSQL.
//!
//! Defaults: those of pgbouncer, so the mode is `session`. It lets every client in as the user
//! `postgres`, and listens on 127.0.0.1 only.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use local::{LocalError, Readiness, Settings};
use tokio::net::TcpStream;

use crate::{
    Postgres, Result,
    account::Account,
    program,
    server::{Builder, Server, SingleProcess, TestKind},
};

const PROGRAM: &str = "pgbouncer";
const INSTALL_HINT: &str = "`apt-get install pgbouncer` or `brew install pgbouncer`";
const CONFIG: &str = "pgbouncer.ini";
/// Our own key for the port of the server, which pgbouncer keeps in another section.
const SERVER_PORT: &str = "testbed_server_port";

/// How pgbouncer is started.
pub type PgBouncerBuilder = Builder<PgBouncerKind>;

/// One pgbouncer. Its folder holds `pgbouncer.ini` and `pgbouncer.log`.
pub type PgBouncer = Server<PgBouncerKind>;

/// How pgbouncer is configured, run and checked.
#[derive(Clone, Debug)]
pub struct PgBouncerKind {
    program: PathBuf,
    account: Account,
    settings: Settings,
}

impl Server<PgBouncerKind> {
    /// A pooler in front of this server. `mode` is `session`, `transaction` or `statement`.
    pub fn before(server: &Postgres, mode: &str) -> PgBouncerBuilder {
        Self::builder()
            .config(SERVER_PORT, &server.port().to_string())
            .config("pool_mode", mode)
    }

    /// `postgres://postgres@127.0.0.1:PORT/db`
    pub fn url(&self, db: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{db}", self.port())
    }
}

impl TestKind for PgBouncerKind {
    const DEFAULT_CONFIG: &'static [(&'static str, &'static str)] = &[
        ("listen_addr", "127.0.0.1"),
        ("unix_socket_dir", ""),
        ("auth_type", "any"),
    ];

    fn find(settings: Settings) -> Result<Self> {
        Ok(Self {
            program: local::program::find(PROGRAM, &[PathBuf::from("/usr/sbin")], INSTALL_HINT)?,
            // It refuses to run as root, as PostgreSQL does.
            account: Account::unprivileged()?,
            settings,
        })
    }

    async fn prepare(&self, dir: &Path, _kept: bool) -> Result<()> {
        self.account.own(dir)
    }
}

impl SingleProcess for PgBouncerKind {}

impl local::Kind for PgBouncerKind {
    const PROGRAM: &'static str = PROGRAM;
    const LOG: &'static str = "pgbouncer.log";

    fn configure(&self, dir: &Path, port: u16) -> local::Result<()> {
        let config = &self.settings.config;
        let server = config.get(SERVER_PORT).map_or("5432", String::as_str);
        let mut text =
            format!("[databases]\n* = host=127.0.0.1 port={server} user=postgres\n[pgbouncer]\n");
        for (key, value) in config.iter().filter(|(key, _)| *key != SERVER_PORT) {
            text.push_str(&format!("{key} = {value}\n"));
        }
        text.push_str(&format!("listen_port = {port}\n"));
        let file = dir.join(CONFIG);
        fs::write(&file, text).map_err(LocalError::folder(&file))
    }

    fn command(&mut self, dir: &Path, _port: u16) -> local::Result<Command> {
        let mut command = self.account.command(&self.program);
        command.arg(CONFIG).current_dir(dir);
        Ok(program::without_inherited_settings(command, &["PG"]))
    }

    /// It binds its port once, when it is about to serve.
    async fn readiness(&self, _dir: &Path, port: u16, _pid: u32) -> Readiness {
        match TcpStream::connect(("127.0.0.1", port)).await {
            Ok(_) => Readiness::Ready,
            Err(_) => Readiness::Silent,
        }
    }
}
