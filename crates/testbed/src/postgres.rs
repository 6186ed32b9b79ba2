//! One PostgreSQL server.
//!
//! What a reader could get wrong: the postmaster's children are not in its process group (each makes its own), so a crash of the whole
//! server takes more than one signal; and `postmaster.pid` names a dead process after a crash, which PostgreSQL sorts out by itself
//! unless that process is a zombie.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tokio::{sync::OnceCell, time::sleep};

use crate::{
    Result, TestbedError,
    account::Account,
    folder::Folder,
    log::Log,
    process, program,
    server::{self, Answer, Launch, Server},
};

const PROGRAM: &str = "postgres";
const HINT: &str =
    "`apt-get install postgresql`, `dnf install postgresql-server` or `brew install postgresql`";
/// Folders that hold one folder per version, and what comes between a version and its programs.
const INSTALLATIONS: [(&str, &str); 4] = [
    ("/usr/lib/postgresql", ""),
    ("/usr", "pgsql-"),
    ("/opt/homebrew/opt", "postgresql@"),
    ("/usr/local/opt", "postgresql@"),
];
/// PGHOST, PGOPTIONS and the like.
const SETTINGS: &[&str] = &["PG"];
const DATA: &str = "data";
const UNFINISHED: &str = "data.unfinished";
const LOG: &str = "postgres.log";
const PATIENCE: Duration = Duration::from_secs(10);
const PATIENCE_OF_DROP: Duration = Duration::from_secs(2);
const POLL: Duration = Duration::from_millis(2);

/// How a PostgreSQL server shall be started.
#[derive(Clone, Debug)]
pub struct PostgresBuilder {
    dir: Option<PathBuf>,
    port: Option<u16>,
    config: BTreeMap<String, String>,
    env: BTreeMap<String, String>,
}

impl PostgresBuilder {
    /// Keeps the data in this folder, which is made if it is not there, and is given to the user `postgres` if we are root. Default: a
    /// temporary folder, removed with the server.
    pub fn dir(mut self, path: impl Into<PathBuf>) -> Self {
        self.dir = Some(path.into());
        self
    }

    /// Listens on this port and no other. Default: a free one.
    pub fn port(mut self, port: u16) -> Self {
        self.port = Some(port);
        self
    }

    /// One more setting, instead of an earlier value for the same key.
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
    pub async fn start(self) -> Result<Postgres> {
        let fixed = self.port;
        let mut postgres = self.prepare()?;
        postgres.prepare_data().await?;
        server::launch(&mut postgres, fixed).await?;
        Ok(postgres)
    }

    fn prepare(self) -> Result<Postgres> {
        let programs = Programs::find()?;
        let folder = Folder::new(self.dir.as_deref())?;
        programs.account.own(folder.path())?;
        let server = Server::new(PROGRAM, Log::new(folder.path().join(LOG)));
        Ok(Postgres {
            server,
            folder,
            port: 0,
            programs,
            kept: self.dir.is_some(),
            told: Box::new(Told {
                config: self.config,
                env: self.env,
            }),
        })
    }
}

/// One PostgreSQL server, a direct child of this process. Dropping it ends it at once.
#[derive(Debug)]
pub struct Postgres {
    // First the server goes, then its folder.
    server: Server,
    folder: Folder,
    port: u16,
    programs: Programs,
    kept: bool,
    told: Box<Told>,
}

/// What it is told whenever it starts.
#[derive(Debug)]
struct Told {
    config: BTreeMap<String, String>,
    env: BTreeMap<String, String>,
}

impl Postgres {
    /// A server that flushes what it commits, trusts everybody on this machine, and listens on 127.0.0.1 only.
    pub fn builder() -> PostgresBuilder {
        let builder = PostgresBuilder {
            dir: None,
            port: None,
            config: BTreeMap::new(),
            env: BTreeMap::new(),
        };
        builder
            .config("listen_addresses", "127.0.0.1")
            .config("unix_socket_directories", "")
            .config("shared_buffers", "128MB")
            .config("max_connections", "200")
            .config("fsync", "on")
    }

    /// Starts a server as [`Postgres::builder`] describes it.
    pub async fn start() -> Result<Self> {
        Self::builder().start().await
    }

    /// `postgres://postgres@127.0.0.1:PORT/db`. The database `postgres` is always there.
    pub fn url(&self, db: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{db}", self.port)
    }

    /// Where it listens. Restarts do not change it.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The postmaster of the last start, also when it has been killed since.
    pub fn pid(&self) -> u32 {
        self.server.pid()
    }

    /// Whether it has been killed, or has ended by itself, as it does when it cannot write its log.
    pub fn has_ended(&mut self) -> bool {
        self.server.has_ended()
    }

    /// Its folder, with `data` and `postgres.log`.
    pub fn dir(&self) -> &Path {
        self.folder.path()
    }

    /// Makes an empty database, which must not be there yet, and returns its URL.
    pub async fn create_database(&self, name: &str) -> Result<String> {
        let mut command = self.programs.command_as_ourselves("createdb")?;
        command.args([
            "-h",
            "127.0.0.1",
            "-p",
            &self.port.to_string(),
            "-U",
            "postgres",
            "-w",
            "-T",
            "template0",
            "--",
            name,
        ]);
        program::run(command).await?;
        Ok(self.url(name))
    }

    /// SIGKILL for the postmaster and all its children, as in a crash of the machine, except that what the system has in its page cache
    /// is not lost. Waits until they are gone.
    pub async fn kill(&mut self) -> Result<()> {
        // Paused, it neither makes a child that we miss nor reaps one whose pid could then become somebody else's.
        let _ = self.server.pause().await;
        let children = self.server.children();
        kill_all(&children);
        self.server.kill().await;
        until_gone(&children).await;
        Ok(())
    }

    /// Starts it again on the same port and folder, and waits until it has recovered. Kills it before that if it still runs.
    pub async fn restart(&mut self) -> Result<()> {
        self.kill().await?;
        self.launch_on(self.port).await
    }

    /// SIGINT, which ends all sessions and shuts down in order; kills it if that takes more than ten seconds.
    pub async fn stop(mut self) -> Result<()> {
        self.server.stop(Signal::SIGINT, PATIENCE).await;
        self.kill().await
    }

    /// A data folder only gets its name when it is complete, so an interrupted start is not mistaken for one.
    async fn prepare_data(&self) -> Result<()> {
        let data = self.dir().join(DATA);
        if data.exists() {
            return Ok(());
        }
        let unfinished = self.dir().join(UNFINISHED);
        if self.kept {
            self.programs.initdb(&unfinished, &[]).await?;
        } else {
            self.programs.copy_template(&unfinished).await?;
        }
        fs::rename(&unfinished, &data).map_err(TestbedError::folder(&data))
    }

    fn command(&self) -> Result<Command> {
        let mut command = self.programs.command(PROGRAM, self.dir())?;
        command.args(["-D", DATA, "-p", &self.port.to_string()]);
        for (key, value) in &self.told.config {
            command.arg("-c").arg(format!("{key}={value}"));
        }
        command.envs(&self.told.env);
        Ok(command)
    }
}

impl Launch for Postgres {
    async fn launch_on(&mut self, port: u16) -> Result<()> {
        self.port = port;
        let pid_file = self.dir().join(DATA).join("postmaster.pid");
        remove_if_stale(&pid_file);
        let command = self.command()?;
        self.server
            .launch(command, port, |pid| std::future::ready(ask(&pid_file, pid)))
            .await
    }
}

/// SIGQUIT ends the sessions without a checkpoint, so it is as quick as SIGKILL, but gives shared memory back to the system.
impl Drop for Postgres {
    fn drop(&mut self) {
        if !self.server.stop_blocking(Signal::SIGQUIT, PATIENCE_OF_DROP) {
            let _ = self.server.signal(Signal::SIGSTOP);
            kill_all(&self.server.children());
        }
    }
}

/// Where the programs are, and whom they run as.
#[derive(Debug)]
struct Programs {
    folder: PathBuf,
    account: Account,
}

impl Programs {
    fn find() -> Result<Self> {
        let postgres = program::find(PROGRAM, &[], HINT)
            .or_else(|_| program::find(PROGRAM, &installations(), HINT))?;
        let folder = postgres.parent().unwrap_or(Path::new("/")).to_owned();
        Ok(Self {
            folder,
            account: Account::unprivileged()?,
        })
    }

    /// A command for the server's user. It runs in the server's folder, because ours may be out of that user's reach.
    fn command(&self, name: &str, dir: &Path) -> Result<Command> {
        let mut command = self.account.command(&self.path(name)?);
        command.current_dir(dir);
        Ok(program::without_settings_of_ours(command, SETTINGS))
    }

    fn command_as_ourselves(&self, name: &str) -> Result<Command> {
        Ok(program::without_settings_of_ours(
            Command::new(self.path(name)?),
            SETTINGS,
        ))
    }

    /// Beside `postgres` first: what PATH holds may be of another version, or a wrapper that looks for clusters of its own.
    fn path(&self, name: &str) -> Result<PathBuf> {
        program::find(name, std::slice::from_ref(&self.folder), HINT)
    }

    async fn initdb(&self, data: &Path, options: &[&str]) -> Result<()> {
        let _ = fs::remove_dir_all(data);
        let mut command = self.command("initdb", data.parent().unwrap_or(data))?;
        command
            .arg("-D")
            .arg(data)
            .args([
                "-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale", "C",
            ])
            .args(options);
        program::run(command).await
    }

    /// `initdb` takes half a second; a copy of what it made takes a tenth. One template serves the whole process.
    async fn copy_template(&self, data: &Path) -> Result<()> {
        static TEMPLATE: OnceCell<Folder> = OnceCell::const_new();
        let template = TEMPLATE.get_or_try_init(|| self.make_template()).await?;
        let mut command = Command::new("cp");
        command
            .arg("-pPR")
            .arg(template.path().join(DATA))
            .arg(data);
        program::run(command).await
    }

    async fn make_template(&self) -> Result<Folder> {
        let folder = Folder::new(None)?;
        self.account.own(folder.path())?;
        self.initdb(&folder.path().join(DATA), &["--no-sync"])
            .await?;
        Ok(folder)
    }
}

/// The folders with programs, newest version first.
fn installations() -> Vec<PathBuf> {
    let mut found: Vec<_> = INSTALLATIONS
        .iter()
        .flat_map(|(folder, prefix)| versions(Path::new(folder), prefix))
        .collect();
    found.sort_by_key(|(version, _)| std::cmp::Reverse(*version));
    found.into_iter().map(|(_, folder)| folder).collect()
}

fn versions(folder: &Path, prefix: &str) -> Vec<(u32, PathBuf)> {
    let version = |name: &str| name.strip_prefix(prefix)?.split('.').next()?.parse().ok();
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| {
            Some((
                version(entry.file_name().to_str()?)?,
                entry.path().join("bin"),
            ))
        })
        .collect()
}

/// The server itself says in `postmaster.pid` how far it is, in the eighth line, and who it is, in the first. It is not ready
/// before it has the port, so no stranger can answer for it.
fn ask(pid_file: &Path, pid: u32) -> Answer {
    let text = fs::read_to_string(pid_file).unwrap_or_default();
    let lines: Vec<_> = text.lines().map(str::trim).collect();
    match (lines.first(), lines.get(7)) {
        (Some(process), _) if process.parse() != Ok(pid) => Answer::Silent,
        (_, Some(&"ready")) => Answer::Ready,
        (_, Some(_)) => Answer::Busy,
        _ => Answer::Silent,
    }
}

/// We hold the lock on the folder, so a dead postmaster's file tells nothing. PostgreSQL would see a zombie as alive, and refuse to start.
fn remove_if_stale(pid_file: &Path) {
    let text = fs::read_to_string(pid_file).unwrap_or_default();
    if text
        .lines()
        .next()
        .and_then(|line| line.parse().ok())
        .is_some_and(|pid| !process::any_alive(&[pid]))
    {
        let _ = fs::remove_file(pid_file);
    }
}

fn kill_all(pids: &[u32]) {
    for pid in pids {
        let _ = kill(Pid::from_raw(pid.cast_signed()), Signal::SIGKILL);
    }
}

async fn until_gone(pids: &[u32]) {
    let deadline = Instant::now() + PATIENCE;
    while process::any_alive(pids) && Instant::now() < deadline {
        sleep(POLL).await;
    }
}
