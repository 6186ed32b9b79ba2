//! A private Redis server.

use std::{
    fs::{File, Permissions},
    io::{self, Write},
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use redis::{AsyncConnectionConfig, ErrorKind, InfoDict, aio::MultiplexedConnection};

use crate::{
    Instance, Kind, LocalError, LockedFolder, Readiness, Result, Settings, process::READY_TIMEOUT,
    program,
};

const PROGRAM: &str = "redis-server";
const INSTALL_HINT: &str =
    "`apt-get install redis-server`, `dnf install redis` or `brew install redis`";
const CONFIG_FILE: &str = "redis.conf";
/// The key of the configuration with the password of every client.
const PASSWORD: &str = "requirepass";
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Configuration that callers start from: evicts nothing, listens on 127.0.0.1 only, and lets the
/// first replica begin immediately, where Redis by default waits five seconds for others.
pub const DEFAULT_CONFIG: &[(&str, &str)] = &[
    ("bind", "127.0.0.1"),
    ("save", ""),
    // Room for twelve million orders, and a refusal instead of a machine that runs out of memory.
    ("maxmemory", "2gb"),
    ("maxmemory-policy", "noeviction"),
    ("repl-diskless-sync-delay", "0"),
    ("appendonly", "yes"),
    ("appendfsync", "always"),
];

/// When a write reaches the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AppendFsync {
    /// Before it is acknowledged.
    Always,
    /// Up to two seconds later.
    EverySecond,
    /// Never: the server keeps no append-only file, and a restart loses everything.
    No,
}

impl AppendFsync {
    /// The lines of the configuration file for it.
    pub fn config(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Always => &[("appendonly", "yes"), ("appendfsync", "always")],
            Self::EverySecond => &[("appendonly", "yes"), ("appendfsync", "everysec")],
            Self::No => &[("appendonly", "no")],
        }
    }
}

/// How a private Redis server is started.
#[derive(Clone, Debug)]
pub struct RedisBuilder {
    dir: PathBuf,
    settings: Settings,
}

impl RedisBuilder {
    /// When a write reaches the disk. Default: [`AppendFsync::Always`].
    pub fn appendfsync(mut self, when: AppendFsync) -> Self {
        self.settings.set(when.config());
        self
    }

    /// Every client must log in with this password, which has letters and digits only. It stands in
    /// the configuration file, which no other user may read, and not on the command line, which
    /// every user sees. Default: none.
    pub fn password(mut self, password: &str) -> Self {
        self.settings.set(&[(PASSWORD, password)]);
        self
    }

    /// Starts the server on a free port, and waits until it has loaded its data.
    pub async fn start(self) -> Result<Redis> {
        let kind = RedisKind::find(self.settings)?;
        let folder = LockedFolder::open(&self.dir)?;
        let instance = Instance::start(kind, folder.path(), None, READY_TIMEOUT).await?;
        Ok(Redis {
            instance,
            _folder: folder,
        })
    }
}

/// One private Redis server, a direct child of this process. Dropping it kills it.
#[derive(Debug)]
pub struct Redis {
    // The server must end before its folder is unlocked.
    instance: Instance<RedisKind>,
    _folder: LockedFolder,
}

impl Redis {
    /// A server that keeps its data in `dir`, with [`DEFAULT_CONFIG`]. Creates the folder if
    /// necessary.
    pub fn builder(dir: impl Into<PathBuf>) -> RedisBuilder {
        RedisBuilder {
            dir: dir.into(),
            settings: Settings::with_config(DEFAULT_CONFIG),
        }
    }

    /// `redis://127.0.0.1:PORT`, or `redis://:PASSWORD@127.0.0.1:PORT`
    pub fn url(&self) -> String {
        self.instance.kind().url(self.instance.port())
    }

    /// Sends SIGTERM and waits for an orderly end. Kills the server if that takes more than ten
    /// seconds.
    pub async fn stop(mut self) {
        self.instance.stop().await;
    }
}

/// How a Redis server is configured, run and checked.
#[derive(Clone, Debug)]
pub struct RedisKind {
    program: PathBuf,
    settings: Settings,
}

impl RedisKind {
    /// Finds the program: the one that the settings name, or else `redis-server` in PATH.
    pub fn find(settings: Settings) -> Result<Self> {
        let program = match &settings.program {
            None => find_program()?,
            Some(path) if path.is_file() => path.clone(),
            Some(path) => {
                return Err(program::not_installed(
                    &path.to_string_lossy(),
                    INSTALL_HINT,
                ));
            }
        };
        Ok(Self { program, settings })
    }

    fn password(&self) -> Option<&str> {
        self.settings.config.get(PASSWORD).map(String::as_str)
    }

    /// Address on this port, with the password if there is one.
    fn url(&self, port: u16) -> String {
        match self.password() {
            Some(password) => format!("redis://:{password}@127.0.0.1:{port}"),
            None => url(port),
        }
    }

    /// Writes the configuration. No other user may read it if it has a password.
    fn write_config(&self, path: &Path, port: u16) -> io::Result<()> {
        let mut options = File::options();
        options.write(true).create(true).truncate(true);
        let has_password = self.password().is_some();
        if has_password {
            options.mode(0o600);
        }
        let mut file = options.open(path)?;
        if has_password {
            // The file may be one of a run without a password.
            file.set_permissions(Permissions::from_mode(0o600))?;
        }
        file.write_all(self.config_text(port).as_bytes())
    }

    fn config_text(&self, port: u16) -> String {
        let line = |(key, value): (&String, &String)| {
            format!("{key} {}\n", if value.is_empty() { "\"\"" } else { value })
        };
        format!(
            "port {port}\ndaemonize no\n{}",
            self.settings.config.iter().map(line).collect::<String>()
        )
    }
}

/// Path of `redis-server`.
pub fn find_program() -> Result<PathBuf> {
    program::find(PROGRAM, &[], INSTALL_HINT)
}

impl Kind for RedisKind {
    const PROGRAM: &'static str = PROGRAM;
    const LOG: &'static str = "redis.log";

    fn configure(&self, dir: &Path, port: u16) -> Result<()> {
        let config = dir.join(CONFIG_FILE);
        self.write_config(&config, port)
            .map_err(LocalError::folder(&config))
    }

    /// All paths are relative to the server's folder, which is its working directory, so that the
    /// folder may have any name.
    fn command(&mut self, dir: &Path, _port: u16) -> Result<Command> {
        let mut command = Command::new(&self.program);
        command
            .arg(CONFIG_FILE)
            .current_dir(dir)
            .env("LC_ALL", "C")
            .envs(&self.settings.env);
        Ok(command)
    }

    async fn readiness(&self, _dir: &Path, port: u16, pid: u32) -> Readiness {
        readiness(&self.url(port), pid).await
    }
}

/// Checks with INFO, which a server answers even while it loads its data, and which names the
/// process.
async fn readiness(url: &str, pid: u32) -> Readiness {
    let info = match info(url).await {
        Ok(info) => info,
        // Our server accepts our password from its first reply on.
        Err(error) if error.kind() == ErrorKind::AuthenticationFailed => {
            return Readiness::Stranger;
        }
        Err(_) => return Readiness::Silent,
    };
    match (info.get::<u32>("process_id"), info.get::<u8>("loading")) {
        (Some(process), _) if process != pid => Readiness::Stranger,
        (Some(_), Some(0)) => Readiness::Ready,
        _ => Readiness::Busy,
    }
}

async fn info(url: &str) -> redis::RedisResult<InfoDict> {
    redis::cmd("INFO")
        .query_async(&mut connect_to(url).await?)
        .await
}

/// Connects to a Redis server or sentinel on 127.0.0.1. The connection, and every command on it,
/// fails after one second without a response.
pub async fn connect(port: u16) -> redis::RedisResult<MultiplexedConnection> {
    connect_to(&url(port)).await
}

async fn connect_to(url: &str) -> redis::RedisResult<MultiplexedConnection> {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(RESPONSE_TIMEOUT))
        .set_response_timeout(Some(RESPONSE_TIMEOUT));
    redis::Client::open(url)?
        .get_multiplexed_async_connection_with_config(&config)
        .await
}

/// `redis://127.0.0.1:PORT`
pub fn url(port: u16) -> String {
    format!("redis://127.0.0.1:{port}")
}
