//! One ZooKeeper server, standalone.
//!
//! What a reader could get wrong: the server grants a session the timeout that its client asks for only between two ticks and
//! `maxSessionTimeout`, and rounds its end up to the next tick. With its own defaults no session ends before four seconds; with ours,
//! 200 ms.

use std::{
    collections::BTreeMap,
    env,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use nix::sys::signal::Signal;

use crate::{
    Result, TestbedError,
    folder::Folder,
    log::Log,
    program,
    server::{self, Answer, Launch, Server},
    wire,
};

const PROGRAM: &str = "zookeeper";
const JAVA: &str = "java";
const MAIN: &str = "org.apache.zookeeper.server.ZooKeeperServerMain";
const HINT: &str = "`apt-get install libzookeeper-java default-jre-headless`, `brew install zookeeper`, or unpack its release, install Java, and \
                    name the folder in ZOOKEEPER_HOME";
/// Debian's library names the other libraries that it needs by itself, except one that writes the log.
const OF_DEBIAN: [&str; 2] = [
    "/usr/share/java/zookeeper.jar",
    "/usr/share/java/slf4j-simple.jar",
];
/// Laid out as the release is.
const HOMES: [&str; 2] = [
    "/opt/homebrew/opt/zookeeper/libexec",
    "/usr/local/opt/zookeeper/libexec",
];
/// Before PATH: there, macOS has a `java` that only tells how to get one.
const JAVAS: [&str; 2] = [
    "/opt/homebrew/opt/openjdk/bin",
    "/usr/local/opt/openjdk/bin",
];
/// A server that starts fast, stays small, and leaves nothing in the folder for temporary files when it is killed.
const JVM: [&str; 8] = [
    "-Xmx128m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:-UsePerfData",
    "-Djava.io.tmpdir=.",
    "-Djava.awt.headless=true",
    "-Djava.net.preferIPv4Stack=true",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
];
const DATA: &str = "data";
const CONFIG: &str = "./zoo.cfg";
const LOG: &str = "zookeeper.log";
const PATIENCE: Duration = Duration::from_secs(10);

/// How a ZooKeeper server shall be started.
#[derive(Clone, Debug)]
pub struct ZooKeeperBuilder {
    dir: Option<PathBuf>,
    port: Option<u16>,
    config: BTreeMap<String, String>,
    env: BTreeMap<String, String>,
}

impl ZooKeeperBuilder {
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

    /// One more line for the configuration file, instead of an earlier line for the same key.
    pub fn config(mut self, key: &str, value: &str) -> Self {
        self.config.insert(key.into(), value.into());
        self
    }

    /// An environment variable for the server, for example one that preloads a library which bends its clock.
    pub fn env(mut self, key: &str, value: &str) -> Self {
        self.env.insert(key.into(), value.into());
        self
    }

    /// Starts the server and waits until it answers.
    pub async fn start(self) -> Result<ZooKeeper> {
        let fixed = self.port;
        let mut zookeeper = self.prepare()?;
        server::launch(&mut zookeeper, fixed).await?;
        Ok(zookeeper)
    }

    fn prepare(self) -> Result<ZooKeeper> {
        let class_path = class_path(env::var_os("ZOOKEEPER_HOME").map(PathBuf::from))?;
        let java = find_java()?;
        let folder = Folder::new(self.dir.as_deref())?;
        let server = Server::new(PROGRAM, Log::new(folder.path().join(LOG)));
        Ok(ZooKeeper {
            server,
            folder,
            port: 0,
            java,
            class_path,
            config: self.config,
            env: self.env,
        })
    }
}

/// One ZooKeeper server, a direct child of this process. Dropping it kills it.
#[derive(Debug)]
pub struct ZooKeeper {
    // First the server goes, then its folder.
    server: Server,
    folder: Folder,
    port: u16,
    java: PathBuf,
    class_path: OsString,
    config: BTreeMap<String, String>,
    env: BTreeMap<String, String>,
}

impl ZooKeeper {
    /// A server that flushes what it acknowledges, grants session timeouts from 200 ms to a minute, takes any number of connections, and
    /// listens on 127.0.0.1 only.
    pub fn builder() -> ZooKeeperBuilder {
        let builder = ZooKeeperBuilder {
            dir: None,
            port: None,
            config: BTreeMap::new(),
            env: BTreeMap::new(),
        };
        builder
            .config("clientPortAddress", "127.0.0.1")
            .config("tickTime", "100")
            .config("maxSessionTimeout", "60000")
            .config("maxClientCnxns", "0")
            .config("admin.enableServer", "false")
            // In KiB; the server's own default fills 64 MiB with zeros at the first write.
            .config("preAllocSize", "1024")
            .config("4lw.commands.whitelist", "conf,ruok,srvr")
    }

    /// Starts a server as [`ZooKeeper::builder`] describes it.
    pub async fn start() -> Result<Self> {
        Self::builder().start().await
    }

    /// `127.0.0.1:PORT`, which is how ZooKeeper's clients want it.
    pub fn url(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Where it listens. Restarts do not change it.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The process of the last start, also when it has been killed since.
    pub fn pid(&self) -> u32 {
        self.server.pid()
    }

    /// Its folder, with `data`, `zoo.cfg` and `zookeeper.log`.
    pub fn dir(&self) -> &Path {
        self.folder.path()
    }

    /// SIGKILL, and waits until it is gone. It loses nothing that the system has in its page cache.
    pub async fn kill(&mut self) -> Result<()> {
        self.server.kill().await;
        Ok(())
    }

    /// Starts it again on the same port and folder, and waits until it has loaded its data. Kills it before that if it still runs.
    /// Sessions begin anew with their full timeout.
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

    /// All paths are relative to the server's folder, which it runs in: a folder may have any name.
    fn command(&self) -> Result<Command> {
        let config = self.dir().join(CONFIG);
        fs::write(&config, self.config_text()).map_err(TestbedError::folder(&config))?;
        let mut command = program::without_settings_of_ours(
            Command::new(&self.java),
            &["JDK_JAVA_OPTIONS", "CLASSPATH"],
        );
        command
            .args(JVM)
            .arg("-cp")
            .arg(&self.class_path)
            .args([MAIN, CONFIG])
            .current_dir(self.dir());
        // Java enters no folder whose name it cannot spell.
        command.env("LC_ALL", "C.UTF-8").envs(&self.env);
        Ok(command)
    }

    fn config_text(&self) -> String {
        let lines: String = self
            .config
            .iter()
            .map(|(key, value)| format!("{key}={value}\n"))
            .collect();
        format!("dataDir=./{DATA}\nclientPort={}\n{lines}", self.port)
    }
}

impl Launch for ZooKeeper {
    async fn launch_on(&mut self, port: u16) -> Result<()> {
        self.port = port;
        let folder = self
            .dir()
            .canonicalize()
            .map_err(TestbedError::folder(self.dir()))?;
        let command = self.command()?;
        self.server
            .launch(command, port, |_| ask(port, &folder))
            .await
    }
}

/// The release in this folder, else what Debian or Homebrew has installed.
fn class_path(home: Option<PathBuf>) -> Result<OsString> {
    if let Some(home) = home {
        return of_release(&home)
            .ok_or_else(|| program::not_installed(&home.join("lib").to_string_lossy(), HINT));
    }
    let found = of_debian().or_else(|| HOMES.iter().find_map(|home| of_release(Path::new(home))));
    found.ok_or_else(|| program::not_installed(PROGRAM, HINT))
}

fn of_debian() -> Option<OsString> {
    OF_DEBIAN
        .iter()
        .all(|file| Path::new(file).is_file())
        .then(|| OF_DEBIAN.join(":").into())
}

/// All libraries, and how they shall write the log.
fn of_release(home: &Path) -> Option<OsString> {
    let (libraries, settings) = (home.join("lib"), home.join("conf"));
    libraries
        .is_dir()
        .then(|| env::join_paths([libraries.join("*"), settings]).ok())
        .flatten()
}

fn find_java() -> Result<PathBuf> {
    let of_user = env::var_os("JAVA_HOME").map(|home| PathBuf::from(home).join("bin"));
    let folders: Vec<_> = of_user
        .into_iter()
        .chain(JAVAS.map(PathBuf::from))
        .collect();
    program::find(JAVA, &folders, HINT)
}

/// ZooKeeper does not say which process it is, but where its data is, once it serves them; and nobody else may use that folder.
async fn ask(port: u16, folder: &Path) -> Answer {
    const AT_MOST: u64 = 64 << 10;
    let answer = wire::ask(port, "conf", AT_MOST).await.unwrap_or_default();
    let is_ours = |line: &str| {
        line.strip_prefix("dataDir=")
            .is_some_and(|data| Path::new(data).starts_with(folder))
    };
    if String::from_utf8_lossy(&answer).lines().any(is_ours) {
        Answer::Ready
    } else {
        Answer::Silent
    }
}
