//! One PostgreSQL server, and a standby of it.
//!
//! Defaults: the server flushes each commit, trusts every user of this machine, and listens on
//! 127.0.0.1 only.
//!
//! The postmaster's children are not in its process group, because each makes its own. A crash of
//! the whole server therefore takes more than one signal. After a crash, `postmaster.pid` names a
//! dead process; PostgreSQL recognises that by itself unless the process is a zombie.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use local::{Instance, Readiness, Settings};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tokio::{sync::OnceCell, time::sleep};

use crate::{
    Result,
    account::Account,
    data::{self, DATA, UNFINISHED},
    folder::Folder,
    process, program,
    server::{self, Builder, Server, TakesEnv, TestKind},
    timeout,
};

const PROGRAM: &str = "postgres";
const INSTALL_HINT: &str =
    "`apt-get install postgresql`, `dnf install postgresql-server` or `brew install postgresql`";
/// Folders that hold one folder per version, and the prefix of the version in its name.
const INSTALLATIONS: [(&str, &str); 4] = [
    ("/usr/lib/postgresql", ""),
    ("/usr", "pgsql-"),
    ("/opt/homebrew/opt", "postgresql@"),
    ("/usr/local/opt", "postgresql@"),
];
/// PGHOST, PGOPTIONS and the like.
const SETTINGS_PREFIXES: &[&str] = &["PG"];
const DROP_TIMEOUT: Duration = Duration::from_secs(2);
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// How a PostgreSQL server is started.
pub type PostgresBuilder = Builder<PostgresKind>;

/// One PostgreSQL server. Its folder holds `data` and `postgres.log`.
pub type Postgres = Server<PostgresKind>;

/// How a PostgreSQL server is configured, run and checked.
#[derive(Clone, Debug)]
pub struct PostgresKind {
    programs: PathBuf,
    account: Account,
    settings: Settings,
}

impl Server<PostgresKind> {
    /// `postgres://postgres@127.0.0.1:PORT/db`. The database `postgres` always exists.
    pub fn url(&self, db: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{db}", self.port())
    }

    /// Creates an empty database, which must not exist yet, and returns its URL.
    pub async fn create_database(&self, name: &str) -> Result<String> {
        let mut command = self.instance.kind().client("createdb")?;
        command.args(["-h", "127.0.0.1", "-p", &self.port().to_string()]);
        command.args(["-U", "postgres", "-w", "-T", "template0", "--", name]);
        program::run(command).await?;
        Ok(self.url(name))
    }

    /// Starts a hot standby of this server on a free port, with the same configuration. It answers
    /// reads and refuses writes. Dropping it does not touch this server.
    pub async fn standby(&self) -> Result<Self> {
        let kind = self.instance.kind().clone();
        let folder = Folder::new(None)?;
        kind.account.own(folder.path())?;
        data::create_once(folder.path(), kind.base_backup(folder.path(), self.port())).await?;
        Self::start_in(kind, folder, None).await
    }

    /// Makes a standby a server that writes, and waits until it does. The former primary is not
    /// told and stays what it is.
    pub async fn promote(&self) -> Result<()> {
        let mut command = self.instance.kind().server("pg_ctl", self.dir())?;
        let seconds = timeout().as_secs().max(1).to_string();
        command.args(["promote", "-w", "-t", &seconds, "-D", DATA]);
        program::run(command).await
    }
}

impl TestKind for PostgresKind {
    const DEFAULT_CONFIG: &'static [(&'static str, &'static str)] = &[
        ("listen_addresses", "127.0.0.1"),
        ("unix_socket_directories", ""),
        ("shared_buffers", "128MB"),
        ("max_connections", "200"),
        ("fsync", "on"),
    ];

    fn find(settings: Settings) -> Result<Self> {
        let postgres = local::program::find(PROGRAM, &[], INSTALL_HINT)
            .or_else(|_| local::program::find(PROGRAM, &installations(), INSTALL_HINT))?;
        Ok(Self {
            programs: postgres.parent().unwrap_or(Path::new("/")).to_owned(),
            account: Account::unprivileged()?,
            settings,
        })
    }

    async fn prepare(&self, dir: &Path, kept: bool) -> Result<()> {
        self.account.own(dir)?;
        data::create_once(dir, async {
            if kept {
                self.initdb(&dir.join(UNFINISHED), &[]).await
            } else {
                self.copy_template(dir).await
            }
        })
        .await
    }

    /// The postmaster is paused first. It then neither starts a child that we miss, nor reaps one
    /// whose pid another process could receive.
    async fn kill(instance: &mut Instance<Self>) {
        let _ = server::pause(instance.process()).await;
        let children = children(instance);
        kill_all(&children);
        instance.process_mut().kill().await;
        until_gone(&children).await;
    }

    /// SIGQUIT ends the sessions without a checkpoint. It is as quick as SIGKILL, but returns
    /// shared memory to the system.
    fn before_drop(instance: &mut Instance<Self>) {
        let postmaster = instance.process_mut();
        if !postmaster.stop_blocking(Signal::SIGQUIT, DROP_TIMEOUT) {
            let _ = postmaster.signal(Signal::SIGSTOP);
            kill_all(&children(instance));
        }
    }
}

impl TakesEnv for PostgresKind {}

impl PostgresKind {
    /// A command that runs as the server's user. It runs in the server's folder, because that user
    /// may not be able to enter ours.
    fn server(&self, name: &str, dir: &Path) -> local::Result<Command> {
        let mut command = self.account.command(&self.path(name)?);
        command.current_dir(dir);
        Ok(program::without_inherited_settings(
            command,
            SETTINGS_PREFIXES,
        ))
    }

    /// A command that runs as our own user.
    fn client(&self, name: &str) -> local::Result<Command> {
        Ok(program::without_inherited_settings(
            Command::new(self.path(name)?),
            SETTINGS_PREFIXES,
        ))
    }

    /// Searches the folder of `postgres` first: PATH may hold another version, or a wrapper that
    /// searches for clusters of the machine.
    fn path(&self, name: &str) -> local::Result<PathBuf> {
        local::program::find(name, std::slice::from_ref(&self.programs), INSTALL_HINT)
    }

    async fn initdb(&self, data: &Path, options: &[&str]) -> Result<()> {
        let mut command = self.server("initdb", data.parent().unwrap_or(data))?;
        command.arg("-D").arg(data);
        command.args(["-A", "trust", "-U", "postgres"]);
        command.args(["-E", "UTF8", "--locale", "C"]).args(options);
        program::run(command).await
    }

    /// Copies the data of the running server on `port` and configures the copy as its standby. The
    /// checkpoint must be a fast one: a spread one takes minutes.
    async fn base_backup(&self, dir: &Path, port: u16) -> Result<()> {
        let mut command = self.server("pg_basebackup", dir)?;
        command.args(["-h", "127.0.0.1", "-p", &port.to_string()]);
        command.args(["-U", "postgres", "-w", "-D", UNFINISHED]);
        command.args(["--write-recovery-conf", "--checkpoint=fast", "--no-sync"]);
        program::run(command).await
    }

    /// `initdb` takes half a second; a copy of its result takes a tenth. One template serves the
    /// whole process.
    async fn copy_template(&self, dir: &Path) -> Result<()> {
        static TEMPLATE: OnceCell<Folder> = OnceCell::const_new();
        let template = TEMPLATE.get_or_try_init(|| self.make_template()).await?;
        data::copy_template(template.path(), dir).await
    }

    async fn make_template(&self) -> Result<Folder> {
        let folder = Folder::new(None)?;
        self.account.own(folder.path())?;
        self.initdb(&folder.path().join(DATA), &["--no-sync"])
            .await?;
        Ok(folder)
    }
}

impl local::Kind for PostgresKind {
    const PROGRAM: &'static str = PROGRAM;
    const LOG: &'static str = "postgres.log";
    const STOP_SIGNAL: Signal = Signal::SIGINT;

    fn command(&mut self, dir: &Path, port: u16) -> local::Result<Command> {
        remove_if_stale(&pid_file(dir));
        let mut command = self.server(PROGRAM, dir)?;
        command.args(["-D", DATA, "-p", &port.to_string()]);
        for (key, value) in &self.settings.config {
            command.arg("-c").arg(format!("{key}={value}"));
        }
        command.envs(&self.settings.env);
        Ok(command)
    }

    /// The first line of `postmaster.pid` holds the pid of the postmaster and the eighth its state.
    /// The server is not ready before it has the port, so no stranger can answer for it.
    async fn readiness(&self, dir: &Path, _port: u16, pid: u32) -> Readiness {
        let text = fs::read_to_string(pid_file(dir)).unwrap_or_default();
        let lines: Vec<_> = text.lines().map(str::trim).collect();
        match (lines.first(), lines.get(7)) {
            (Some(process), _) if process.parse() != Ok(pid) => Readiness::Silent,
            (_, Some(&"ready")) => Readiness::Ready,
            (_, Some(_)) => Readiness::Busy,
            _ => Readiness::Silent,
        }
    }
}

fn pid_file(dir: &Path) -> PathBuf {
    dir.join(DATA).join("postmaster.pid")
}

/// Children of the postmaster. Empty if it has ended: another process may have received its pid.
fn children(instance: &mut Instance<PostgresKind>) -> Vec<u32> {
    if instance.process_mut().has_ended() {
        Vec::new()
    } else {
        process::children(instance.process().pid())
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

/// Removes the pid file of a dead postmaster. PostgreSQL takes a zombie for alive and would refuse
/// to start. We hold the lock on the folder, so no other server uses it.
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
    let deadline = Instant::now() + timeout();
    while process::any_alive(pids) && Instant::now() < deadline {
        sleep(POLL_INTERVAL).await;
    }
}
