//! One MariaDB server.
//!
//! Defaults: the server flushes each commit, asks for no password, and also listens on a socket in
//! its folder. It reads no settings file of the machine, because Debian writes that file for the
//! machine's own server; our defaults therefore repeat the settings that tests need. A new server
//! without a password accepts every user of this machine, as the PostgreSQL server does.

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use local::{Readiness, Settings};
use nix::unistd::geteuid;
use tokio::sync::OnceCell;

use crate::{
    Result, TestbedError,
    data::{self, DATA},
    folder::Folder,
    program,
    server::{Builder, Server, SingleProcess, TakesEnv, TestKind},
    wire,
};

const PROGRAM: &str = "mariadbd";
const INSTALL_HINT: &str = "`apt-get install mariadb-server-core mariadb-client-core`, `dnf install mariadb-server` or `brew install mariadb`";
/// Folders of the server program that a user's PATH may lack.
const PROGRAM_FOLDERS: [&str; 4] = [
    "/usr/sbin",
    "/usr/libexec",
    "/opt/homebrew/opt/mariadb/bin",
    "/usr/local/opt/mariadb/bin",
];
/// `MYSQL_HOME`, `MYSQL_PWD`, `MARIADB_TCP_PORT` and the like.
const SETTINGS_PREFIXES: &[&str] = &["MYSQL_", "MARIADB_"];
/// Must be the same for the template and for the server; otherwise the first start writes new log
/// files.
const LOG_FILE_SIZE: (&str, &str) = ("innodb_log_file_size", "16M");
const TEMPORARY: &str = "tmp";
// Relative to the data folder, which is the server's working directory.
const PID_FILE: &str = "mariadb.pid";
const SOCKET: &str = "mariadb.sock";

/// How a MariaDB server is started.
pub type MariaDbBuilder = Builder<MariaDbKind>;

/// One MariaDB server. Its folder holds `data` and `mariadb.log`.
pub type MariaDb = Server<MariaDbKind>;

/// How a MariaDB server is configured, run and checked.
#[derive(Clone, Debug)]
pub struct MariaDbKind {
    programs: PathBuf,
    settings: Settings,
}

impl Server<MariaDbKind> {
    /// `mysql://root@127.0.0.1:PORT/db`. The database `mysql` always exists.
    pub fn url(&self, db: &str) -> String {
        format!("mysql://root@127.0.0.1:{}/{db}", self.port())
    }

    /// Creates an empty database, which must not exist yet, and returns its URL.
    pub async fn create_database(&self, name: &str) -> Result<String> {
        let mut command = self.instance.kind().client("mariadb")?;
        command.args([
            "--protocol=tcp",
            "--host=127.0.0.1",
            "--user=root",
            &format!("--port={}", self.port()),
            "--execute",
            &format!("CREATE DATABASE `{}`", name.replace('`', "``")),
        ]);
        program::run(command).await?;
        Ok(self.url(name))
    }
}

impl TestKind for MariaDbKind {
    const DEFAULT_CONFIG: &'static [(&'static str, &'static str)] = &[
        ("bind_address", "127.0.0.1"),
        // From Debian's settings files; the program's own default is latin1.
        ("character_set_server", "utf8mb4"),
        ("innodb_flush_log_at_trx_commit", "1"),
        ("innodb_buffer_pool_size", "64M"),
        LOG_FILE_SIZE,
        ("max_connections", "200"),
        ("skip_name_resolve", "on"),
    ];

    fn find(settings: Settings) -> Result<Self> {
        let folders = PROGRAM_FOLDERS.map(PathBuf::from);
        let mariadbd = local::program::find(PROGRAM, &folders, INSTALL_HINT)?;
        Ok(Self {
            programs: mariadbd.parent().unwrap_or(Path::new("/")).to_owned(),
            settings,
        })
    }

    async fn prepare(&self, dir: &Path, _kept: bool) -> Result<()> {
        let temporary = dir.join(TEMPORARY);
        fs::create_dir_all(&temporary).map_err(TestbedError::folder(&temporary))?;
        data::create_once(dir, self.copy_template(dir)).await
    }
}

impl SingleProcess for MariaDbKind {}

impl TakesEnv for MariaDbKind {}

impl MariaDbKind {
    /// A command that reads no settings file; `--no-defaults` must be its first argument.
    fn client(&self, name: &str) -> local::Result<Command> {
        // The folder of the server first: PATH may hold another version.
        let folders = std::slice::from_ref(&self.programs);
        let path = local::program::find(name, folders, INSTALL_HINT)?;
        let mut command =
            program::without_inherited_settings(Command::new(path), SETTINGS_PREFIXES);
        command.arg("--no-defaults");
        Ok(command)
    }

    /// `mariadb-install-db` takes more than half a second, and is a shell script that fails on a
    /// path with a space. A copy of its result takes some hundredths of a second. One template
    /// serves the whole process.
    async fn copy_template(&self, dir: &Path) -> Result<()> {
        static TEMPLATE: OnceCell<Folder> = OnceCell::const_new();
        let template = TEMPLATE.get_or_try_init(|| self.make_template()).await?;
        data::copy_template(template.path(), dir).await
    }

    async fn make_template(&self) -> Result<Folder> {
        let folder = Folder::new(None)?;
        let mut command = self.client("mariadb-install-db")?;
        command
            .arg(option("datadir", &folder.path().join(DATA)))
            .arg(format!("--{}={}", LOG_FILE_SIZE.0, LOG_FILE_SIZE.1));
        command.args([
            "--auth-root-authentication-method=normal",
            "--skip-test-db",
            "--skip-name-resolve",
        ]);
        // A crash of the machine may lose the template: it is removed with our process anyway.
        command
            .arg("--innodb-flush-method=nosync")
            .args(as_root())
            .current_dir(folder.path());
        program::run(command).await?;
        Ok(folder)
    }
}

impl local::Kind for MariaDbKind {
    const PROGRAM: &'static str = PROGRAM;
    const LOG: &'static str = "mariadb.log";

    fn command(&mut self, dir: &Path, port: u16) -> local::Result<Command> {
        // The file of a killed server names a pid that our server may receive again.
        let _ = fs::remove_file(pid_file(dir));
        let mut command = self.client(PROGRAM)?;
        // `SELECT ... INTO OUTFILE` writes to this folder only. A setting may override it, because
        // the last value counts.
        command.arg(option("secure_file_priv", dir));
        let config = self.settings.config.iter();
        command.args(config.map(|(key, value)| format!("--{key}={value}")));
        command
            .arg(option("datadir", &dir.join(DATA)))
            .arg(option("tmpdir", &dir.join(TEMPORARY)));
        command.args([
            format!("--port={port}"),
            format!("--pid_file={PID_FILE}"),
            format!("--socket={SOCKET}"),
        ]);
        command
            .args(as_root())
            .current_dir(dir)
            .envs(&self.settings.env);
        Ok(command)
    }

    /// The server writes its pid into a file in our folder once it has the port, so no stranger can
    /// answer for it. It greets a client once it is ready: the length of a packet in three bytes,
    /// the packet's number, and the version of the protocol.
    async fn readiness(&self, dir: &Path, port: u16, pid: u32) -> Readiness {
        const PROTOCOL: u8 = 10;
        let has_port =
            fs::read_to_string(pid_file(dir)).is_ok_and(|text| text.trim().parse() == Ok(pid));
        if !has_port {
            return Readiness::Silent;
        }
        match wire::exchange(port, "", 5).await.as_deref() {
            Some([_, _, _, 0, PROTOCOL]) => Readiness::Ready,
            _ => Readiness::Silent,
        }
    }
}

fn pid_file(dir: &Path) -> PathBuf {
    dir.join(DATA).join(PID_FILE)
}

/// The server runs as root only with this explicit option. Another user might not be able to enter
/// our folders.
fn as_root() -> Option<&'static str> {
    geteuid().is_root().then_some("--user=root")
}

/// An option with a path, which may be any sequence of bytes.
fn option(key: &str, path: &Path) -> OsString {
    let mut option = OsString::from(format!("--{key}="));
    option.push(path);
    option
}
