//! One MariaDB server.
//!
//! What a reader could get wrong: no settings file of the machine is read, for what Debian writes there is meant for the machine's own
//! server; so what a test needs beyond the program's own defaults has to be said here. And a new server without a password lets in
//! everybody on this machine, as does the PostgreSQL server beside it.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use nix::{sys::signal::Signal, unistd::geteuid};
use tokio::sync::OnceCell;

use crate::{
    Result, TestbedError,
    folder::Folder,
    log::Log,
    program,
    server::{self, Answer, Launch, Server},
    wire,
};

const PROGRAM: &str = "mariadbd";
const HINT: &str = "`apt-get install mariadb-server-core mariadb-client-core`, `dnf install mariadb-server` or `brew install mariadb`";
/// Where the server is, and no user's PATH may lead to.
const FOLDERS: [&str; 4] = [
    "/usr/sbin",
    "/usr/libexec",
    "/opt/homebrew/opt/mariadb/bin",
    "/usr/local/opt/mariadb/bin",
];
/// `MYSQL_HOME`, `MYSQL_PWD`, `MARIADB_TCP_PORT` and the like.
const SETTINGS: &[&str] = &["MYSQL_", "MARIADB_"];
/// Must be the same when the data is made and when it is used, lest the first start makes new files for it.
const LOG_FILE_SIZE: (&str, &str) = ("innodb_log_file_size", "16M");
const DATA: &str = "data";
const UNFINISHED: &str = "data.unfinished";
const TEMPORARY: &str = "tmp";
const LOG: &str = "mariadb.log";
// Relative to the data folder, which the server runs in.
const PID_FILE: &str = "mariadb.pid";
const SOCKET: &str = "mariadb.sock";
const PATIENCE: Duration = Duration::from_secs(10);

/// How a MariaDB server shall be started.
#[derive(Clone, Debug)]
pub struct MariaDbBuilder {
    dir: Option<PathBuf>,
    port: Option<u16>,
    config: BTreeMap<String, String>,
    env: BTreeMap<String, String>,
}

impl MariaDbBuilder {
    /// Keeps the data in this folder, which is made if it is not there. Default: a temporary folder, removed with the server.
    pub fn dir(mut self, path: impl Into<PathBuf>) -> Self {
        self.dir = Some(path.into());
        self
    }

    /// Listens on this port and no other. Default: a free one.
    pub fn port(mut self, port: u16) -> Self {
        self.port = Some(port);
        self
    }

    /// One more setting, instead of an earlier value for the same key; written with `_`, as in `SHOW VARIABLES`.
    pub fn config(mut self, key: &str, value: &str) -> Self {
        self.config.insert(key.into(), value.into());
        self
    }

    /// An environment variable for the server, for example one that preloads a library which bends its clock.
    pub fn env(mut self, key: &str, value: &str) -> Self {
        self.env.insert(key.into(), value.into());
        self
    }

    /// Starts the server and waits until it accepts connections.
    pub async fn start(self) -> Result<MariaDb> {
        let fixed = self.port;
        let mut mariadb = self.prepare()?;
        mariadb.prepare_data().await?;
        server::launch(&mut mariadb, fixed).await?;
        Ok(mariadb)
    }

    fn prepare(self) -> Result<MariaDb> {
        let programs = Programs::find()?;
        let folder = Folder::new(self.dir.as_deref())?;
        let server = Server::new(PROGRAM, Log::new(folder.path().join(LOG)));
        Ok(MariaDb {
            server,
            folder,
            port: 0,
            programs,
            config: self.config,
            env: self.env,
        })
    }
}

/// One MariaDB server, a direct child of this process. Dropping it kills it.
#[derive(Debug)]
pub struct MariaDb {
    // First the server goes, then its folder.
    server: Server,
    folder: Folder,
    port: u16,
    programs: Programs,
    config: BTreeMap<String, String>,
    env: BTreeMap<String, String>,
}

impl MariaDb {
    /// A server that flushes what it commits, asks for no password, and listens on 127.0.0.1 only, and on a socket in its folder.
    pub fn builder() -> MariaDbBuilder {
        let builder = MariaDbBuilder {
            dir: None,
            port: None,
            config: BTreeMap::new(),
            env: BTreeMap::new(),
        };
        builder
            .config("bind_address", "127.0.0.1")
            // What Debian's files would have said; the program's own default is latin1.
            .config("character_set_server", "utf8mb4")
            .config("innodb_flush_log_at_trx_commit", "1")
            .config("innodb_buffer_pool_size", "64M")
            .config(LOG_FILE_SIZE.0, LOG_FILE_SIZE.1)
            .config("max_connections", "200")
            .config("skip_name_resolve", "on")
    }

    /// Starts a server as [`MariaDb::builder`] describes it.
    pub async fn start() -> Result<Self> {
        Self::builder().start().await
    }

    /// `mysql://root@127.0.0.1:PORT/db`. The database `mysql` is always there.
    pub fn url(&self, db: &str) -> String {
        format!("mysql://root@127.0.0.1:{}/{db}", self.port)
    }

    /// Where it listens. Restarts do not change it.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The process of the last start, also when it has been killed since.
    pub fn pid(&self) -> u32 {
        self.server.pid()
    }

    /// Its folder, with `data` and `mariadb.log`.
    pub fn dir(&self) -> &Path {
        self.folder.path()
    }

    /// Makes an empty database, which must not be there yet, and returns its URL.
    pub async fn create_database(&self, name: &str) -> Result<String> {
        let mut command = self.programs.command("mariadb")?;
        command.args([
            "--protocol=tcp",
            "--host=127.0.0.1",
            "--user=root",
            &format!("--port={}", self.port),
        ]);
        command.args([
            "--execute",
            &format!("CREATE DATABASE `{}`", name.replace('`', "``")),
        ]);
        program::run(command).await?;
        Ok(self.url(name))
    }

    /// SIGKILL, and waits until it is gone. It loses nothing that the system has in its page cache.
    pub async fn kill(&mut self) -> Result<()> {
        self.server.kill().await;
        Ok(())
    }

    /// Starts it again on the same port and folder, and waits until it has recovered. Kills it before that if it still runs.
    pub async fn restart(&mut self) -> Result<()> {
        self.server.kill().await;
        self.launch_on(self.port).await
    }

    /// SIGSTOP, and waits until it has really stopped. The system still accepts connections and bytes for it.
    pub async fn pause(&self) -> Result<()> {
        self.server.pause().await
    }

    /// SIGCONT. What was sent to it meanwhile is now carried out, also if nobody waits for the answer any more.
    pub async fn resume(&self) -> Result<()> {
        self.server.signal(Signal::SIGCONT)
    }

    /// SIGTERM, waits for an orderly end, and kills it if that takes more than ten seconds.
    pub async fn stop(mut self) -> Result<()> {
        self.server.stop(Signal::SIGTERM, PATIENCE).await;
        Ok(())
    }

    /// A data folder only gets its name when it is complete, so an interrupted start is not mistaken for one.
    async fn prepare_data(&self) -> Result<()> {
        let temporary = self.dir().join(TEMPORARY);
        fs::create_dir_all(&temporary).map_err(TestbedError::folder(&temporary))?;
        let data = self.dir().join(DATA);
        if data.exists() {
            return Ok(());
        }
        let unfinished = self.dir().join(UNFINISHED);
        self.programs.copy_template(&unfinished).await?;
        fs::rename(&unfinished, &data).map_err(TestbedError::folder(&data))
    }

    fn command(&self) -> Result<Command> {
        let mut command = self.programs.command(PROGRAM)?;
        // Before the settings, of which the last one counts: `SELECT ... INTO OUTFILE` writes nowhere else unless somebody says so.
        command.arg(option("secure_file_priv", self.dir()));
        command.args(
            self.config
                .iter()
                .map(|(key, value)| format!("--{key}={value}")),
        );
        command
            .arg(option("datadir", &self.dir().join(DATA)))
            .arg(option("tmpdir", &self.dir().join(TEMPORARY)));
        command.args([
            format!("--port={}", self.port),
            format!("--pid_file={PID_FILE}"),
            format!("--socket={SOCKET}"),
        ]);
        command
            .args(as_root())
            .current_dir(self.dir())
            .envs(&self.env);
        Ok(command)
    }
}

impl Launch for MariaDb {
    async fn launch_on(&mut self, port: u16) -> Result<()> {
        self.port = port;
        let pid_file = self.dir().join(DATA).join(PID_FILE);
        // A killed server's file names a process that ours may be the next to be called after.
        let _ = fs::remove_file(&pid_file);
        let command = self.command()?;
        self.server
            .launch(command, port, |pid| ask(&pid_file, pid, port))
            .await
    }
}

/// Where the programs are.
#[derive(Debug)]
struct Programs {
    folder: PathBuf,
}

impl Programs {
    fn find() -> Result<Self> {
        let mariadbd = program::find(PROGRAM, &FOLDERS.map(PathBuf::from), HINT)?;
        Ok(Self {
            folder: mariadbd.parent().unwrap_or(Path::new("/")).to_owned(),
        })
    }

    /// A command that reads no settings file; that has to be its first argument.
    fn command(&self, name: &str) -> Result<Command> {
        // Beside the server first: what PATH holds may be of another version.
        let path = program::find(name, std::slice::from_ref(&self.folder), HINT)?;
        let mut command = program::without_settings_of_ours(Command::new(path), SETTINGS);
        command.arg("--no-defaults");
        Ok(command)
    }

    /// `mariadb-install-db` takes more than half a second, and is a shell script that a space in the path confuses; a copy of what it made
    /// takes some hundredths. One template serves the whole process.
    async fn copy_template(&self, data: &Path) -> Result<()> {
        static TEMPLATE: OnceCell<Folder> = OnceCell::const_new();
        let template = TEMPLATE.get_or_try_init(|| self.make_template()).await?;
        let _ = fs::remove_dir_all(data);
        let mut command = Command::new("cp");
        command
            .arg("-pPR")
            .arg(template.path().join(DATA))
            .arg(data);
        program::run(command).await
    }

    async fn make_template(&self) -> Result<Folder> {
        let folder = Folder::new(None)?;
        let mut command = self.command("mariadb-install-db")?;
        command
            .arg(option("datadir", &folder.path().join(DATA)))
            .arg(format!("--{}={}", LOG_FILE_SIZE.0, LOG_FILE_SIZE.1));
        command.args([
            "--auth-root-authentication-method=normal",
            "--skip-test-db",
            "--skip-name-resolve",
        ]);
        // Nothing is lost if the machine crashes now: the template is gone with us.
        command
            .arg("--innodb-flush-method=nosync")
            .args(as_root())
            .current_dir(folder.path());
        program::run(command).await?;
        Ok(folder)
    }
}

/// As root it runs as root only if it is told so in as many words. It then needs no other user, who could enter our folders.
fn as_root() -> Option<&'static str> {
    geteuid().is_root().then_some("--user=root")
}

/// A path in an option may be any sequence of bytes.
fn option(key: &str, path: &Path) -> std::ffi::OsString {
    let mut option = std::ffi::OsString::from(format!("--{key}="));
    option.push(path);
    option
}

/// The server writes who it is into a file of ours once it has the port, so no stranger can answer for it. It greets whoever connects
/// once it is ready: the length of a packet in three bytes, the packet's number, and the version of the protocol.
async fn ask(pid_file: &Path, pid: u32, port: u16) -> Answer {
    const PROTOCOL: u8 = 10;
    let has_port = fs::read_to_string(pid_file).is_ok_and(|text| text.trim().parse() == Ok(pid));
    if !has_port {
        return Answer::Silent;
    }
    match wire::ask(port, "", 5).await.as_deref() {
        Some([_, _, _, 0, PROTOCOL]) => Answer::Ready,
        _ => Answer::Silent,
    }
}
