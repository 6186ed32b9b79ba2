//! One ZooKeeper server, standalone.
//!
//! Defaults: the server grants session timeouts from 200 ms to a minute, and takes any number of
//! connections. ZooKeeper limits the timeout that a client requests to two ticks at least and
//! `maxSessionTimeout` at most, and rounds the end of a session up to the next tick. With its own
//! defaults no session ends before four seconds; with ours, 200 ms.

use std::{
    env,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use local::{
    LocalError, Readiness, Settings,
    program::{find, not_installed},
};

use crate::{
    Result,
    data::DATA,
    program,
    server::{Builder, Server, SingleProcess, TakesEnv, TestKind},
    wire,
};

const PROGRAM: &str = "zookeeper";
const JAVA: &str = "java";
const MAIN_CLASS: &str = "org.apache.zookeeper.server.ZooKeeperServerMain";
const INSTALL_HINT: &str = "`apt-get install libzookeeper-java default-jre-headless`, `brew install zookeeper`, or unpack its release, install Java, and \
                    name the folder in ZOOKEEPER_HOME";
/// Debian's library names its dependencies itself, except the one that writes the log.
const DEBIAN_JARS: [&str; 2] = [
    "/usr/share/java/zookeeper.jar",
    "/usr/share/java/slf4j-simple.jar",
];
/// Folders with the layout of the release.
const RELEASE_FOLDERS: [&str; 2] = [
    "/opt/homebrew/opt/zookeeper/libexec",
    "/usr/local/opt/zookeeper/libexec",
];
/// Searched before PATH: there, macOS has a `java` that only explains how to install one.
const JAVA_FOLDERS: [&str; 2] = [
    "/opt/homebrew/opt/openjdk/bin",
    "/usr/local/opt/openjdk/bin",
];
/// A server that starts fast, stays small, and leaves no temporary files when it is killed.
const JVM_OPTIONS: [&str; 8] = [
    "-Xmx128m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:-UsePerfData",
    "-Djava.io.tmpdir=.",
    "-Djava.awt.headless=true",
    "-Djava.net.preferIPv4Stack=true",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
];
const SETTINGS_PREFIXES: &[&str] = &["JDK_JAVA_OPTIONS", "CLASSPATH"];
const CONFIG_FILE: &str = "./zoo.cfg";

/// How a ZooKeeper server is started.
pub type ZooKeeperBuilder = Builder<ZooKeeperKind>;

/// One ZooKeeper server. Its folder holds `data`, `zoo.cfg` and `zookeeper.log`.
pub type ZooKeeper = Server<ZooKeeperKind>;

/// How a ZooKeeper server is configured, run and checked.
#[derive(Clone, Debug)]
pub struct ZooKeeperKind {
    java: PathBuf,
    class_path: OsString,
    settings: Settings,
}

impl Server<ZooKeeperKind> {
    /// `127.0.0.1:PORT`, the form that ZooKeeper's clients expect.
    pub fn url(&self) -> String {
        format!("127.0.0.1:{}", self.port())
    }
}

impl TestKind for ZooKeeperKind {
    const DEFAULT_CONFIG: &'static [(&'static str, &'static str)] = &[
        ("clientPortAddress", "127.0.0.1"),
        ("tickTime", "100"),
        ("maxSessionTimeout", "60000"),
        ("maxClientCnxns", "0"),
        ("admin.enableServer", "false"),
        // In KiB; the server's own default fills 64 MiB with zeros at the first write.
        ("preAllocSize", "1024"),
        ("4lw.commands.whitelist", "conf,ruok,srvr"),
    ];

    fn find(settings: Settings) -> Result<Self> {
        Ok(Self {
            class_path: class_path(env::var_os("ZOOKEEPER_HOME").map(PathBuf::from))?,
            java: find_java()?,
            settings,
        })
    }
}

impl SingleProcess for ZooKeeperKind {}

impl TakesEnv for ZooKeeperKind {}

impl local::Kind for ZooKeeperKind {
    const PROGRAM: &'static str = PROGRAM;
    const LOG: &'static str = "zookeeper.log";

    fn configure(&self, dir: &Path, port: u16) -> local::Result<()> {
        let config = self.settings.config.iter();
        let lines: String = config
            .map(|(key, value)| format!("{key}={value}\n"))
            .collect();
        let text = format!("dataDir=./{DATA}\nclientPort={port}\n{lines}");
        let file = dir.join(CONFIG_FILE);
        fs::write(&file, text).map_err(LocalError::folder(&file))
    }

    /// All paths are relative to the server's folder, which is its working directory, so that the
    /// folder may have any name.
    fn command(&mut self, dir: &Path, _port: u16) -> local::Result<Command> {
        let mut command =
            program::without_inherited_settings(Command::new(&self.java), SETTINGS_PREFIXES);
        command
            .args(JVM_OPTIONS)
            .arg("-cp")
            .arg(&self.class_path)
            .args([MAIN_CLASS, CONFIG_FILE])
            .current_dir(dir);
        // Java cannot enter a folder whose name its locale cannot encode.
        command.env("LC_ALL", "C.UTF-8").envs(&self.settings.env);
        Ok(command)
    }

    /// ZooKeeper does not report its process id. Once it serves its data it reports where they are,
    /// and no other process uses that folder.
    async fn readiness(&self, dir: &Path, port: u16, _pid: u32) -> Readiness {
        const RESPONSE_BYTES_MAX: u64 = 64 << 10;
        let Ok(dir) = dir.canonicalize() else {
            return Readiness::Silent;
        };
        let response = wire::exchange(port, "conf", RESPONSE_BYTES_MAX).await;
        let is_ours = |line: &str| {
            line.strip_prefix("dataDir=")
                .is_some_and(|data| Path::new(data).starts_with(&dir))
        };
        if String::from_utf8_lossy(&response.unwrap_or_default())
            .lines()
            .any(is_ours)
        {
            Readiness::Ready
        } else {
            Readiness::Silent
        }
    }
}

/// The release in this folder, or else the one that Debian or Homebrew has installed.
fn class_path(home: Option<PathBuf>) -> local::Result<OsString> {
    if let Some(home) = home {
        return release_class_path(&home)
            .ok_or_else(|| not_installed(&home.join("lib").to_string_lossy(), INSTALL_HINT));
    }
    let releases = || {
        RELEASE_FOLDERS
            .iter()
            .find_map(|home| release_class_path(Path::new(home)))
    };
    debian_class_path()
        .or_else(releases)
        .ok_or_else(|| not_installed(PROGRAM, INSTALL_HINT))
}

fn debian_class_path() -> Option<OsString> {
    DEBIAN_JARS
        .iter()
        .all(|file| Path::new(file).is_file())
        .then(|| DEBIAN_JARS.join(":").into())
}

/// All libraries, and the configuration of the log.
fn release_class_path(home: &Path) -> Option<OsString> {
    let (libraries, settings) = (home.join("lib"), home.join("conf"));
    libraries
        .is_dir()
        .then(|| env::join_paths([libraries.join("*"), settings]).ok())
        .flatten()
}

fn find_java() -> local::Result<PathBuf> {
    let java_home = env::var_os("JAVA_HOME").map(|home| PathBuf::from(home).join("bin"));
    let folders: Vec<_> = java_home
        .into_iter()
        .chain(JAVA_FOLDERS.map(PathBuf::from))
        .collect();
    find(JAVA, &folders, INSTALL_HINT)
}
