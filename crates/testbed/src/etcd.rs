//! One etcd server, a cluster of one.
//!
//! What a reader could get wrong: etcd grants no lease that is shorter than one and a half elections take, in whole seconds. With its own
//! defaults that is two seconds, with ours it is one; a test that wants to see a lease end need not wait longer.

use std::{
    collections::BTreeMap,
    hash::{BuildHasher, RandomState},
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use nix::sys::signal::Signal;

use crate::{
    Result,
    folder::Folder,
    log::Log,
    program,
    server::{self, Answer, Launch, Server},
    wire,
};

const PROGRAM: &str = "etcd";
const HINT: &str = "`apt-get install etcd-server`, `dnf install etcd` or `brew install etcd`";
/// Every option of etcd can also be given as a variable.
const SETTINGS: &[&str] = &["ETCD_"];
const DATA: &str = "data";
const LOG: &str = "etcd.log";
/// A cluster of one has no peers, but etcd insists on listening for them. This is a port that the system chooses, so it is never taken.
const PEERS: &str = "http://127.0.0.1:0";
const PATIENCE: Duration = Duration::from_secs(10);

/// How an etcd server shall be started.
#[derive(Clone, Debug)]
pub struct EtcdBuilder {
    dir: Option<PathBuf>,
    port: Option<u16>,
    config: BTreeMap<String, String>,
}

impl EtcdBuilder {
    /// Keeps the data in this folder, which is made if it is not there. Default: a temporary folder, removed with the server.
    pub fn dir(mut self, path: impl Into<PathBuf>) -> Self {
        self.dir = Some(path.into());
        self
    }

    /// Listens for clients on this port and no other. Default: a free one.
    pub fn port(mut self, port: u16) -> Self {
        self.port = Some(port);
        self
    }

    /// One more option, written without the dashes in front, instead of an earlier value for the same key.
    pub fn config(mut self, key: &str, value: &str) -> Self {
        self.config.insert(key.into(), value.into());
        self
    }

    /// Starts the server and waits until it is its own leader and answers.
    pub async fn start(self) -> Result<Etcd> {
        let fixed = self.port;
        let mut etcd = self.prepare()?;
        server::launch(&mut etcd, fixed).await?;
        Ok(etcd)
    }

    fn prepare(self) -> Result<Etcd> {
        let program = program::find(PROGRAM, &[], HINT)?;
        let folder = Folder::new(self.dir.as_deref())?;
        let server = Server::new(PROGRAM, Log::new(folder.path().join(LOG)));
        Ok(Etcd {
            server,
            folder,
            port: 0,
            program,
            config: self.config,
        })
    }
}

/// One etcd server, a direct child of this process. Dropping it kills it.
#[derive(Debug)]
pub struct Etcd {
    // First the server goes, then its folder.
    server: Server,
    folder: Folder,
    port: u16,
    program: PathBuf,
    config: BTreeMap<String, String>,
}

impl Etcd {
    /// A server that flushes what it acknowledges, elects itself within a tenth of a second, and listens on 127.0.0.1 only.
    pub fn builder() -> EtcdBuilder {
        let builder = EtcdBuilder {
            dir: None,
            port: None,
            config: BTreeMap::new(),
        };
        builder
            .config("heartbeat-interval", "10")
            .config("election-timeout", "100")
    }

    /// Starts a server as [`Etcd::builder`] describes it.
    pub async fn start() -> Result<Self> {
        Self::builder().start().await
    }

    /// `http://127.0.0.1:PORT`
    pub fn url(&self) -> String {
        url(self.port)
    }

    /// Where it listens for clients. Restarts do not change it.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The process of the last start, also when it has been killed since.
    pub fn pid(&self) -> u32 {
        self.server.pid()
    }

    /// Its folder, with `data` and `etcd.log`.
    pub fn dir(&self) -> &Path {
        self.folder.path()
    }

    /// SIGKILL, and waits until it is gone. It loses nothing that the system has in its page cache.
    pub async fn kill(&mut self) -> Result<()> {
        self.server.kill().await;
        Ok(())
    }

    /// Starts it again on the same port and folder, and waits until it is its own leader again. Kills it before that if it still runs.
    /// Leases begin anew with their full time.
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

    fn command(&self, name: &str) -> Command {
        let mut command = program::without_settings_of_ours(Command::new(&self.program), SETTINGS);
        let clients = url(self.port);
        command.args(
            self.config
                .iter()
                .map(|(key, value)| format!("--{key}={value}")),
        );
        command.args([format!("--name={name}"), format!("--data-dir={DATA}")]);
        command.args([
            format!("--listen-client-urls={clients}"),
            format!("--advertise-client-urls={clients}"),
        ]);
        command.args([
            format!("--listen-peer-urls={PEERS}"),
            format!("--initial-advertise-peer-urls={PEERS}"),
        ]);
        command.args([
            format!("--initial-cluster={name}={PEERS}"),
            format!("--initial-cluster-token={name}"),
        ]);
        // Older ones run on ARM only if they are told to.
        command
            .env("ETCD_UNSUPPORTED_ARCH", architecture())
            .current_dir(self.dir());
        command
    }
}

impl Launch for Etcd {
    async fn launch_on(&mut self, port: u16) -> Result<()> {
        self.port = port;
        let name = new_name();
        let command = self.command(&name);
        self.server
            .launch(command, port, |_| ask(port, &name))
            .await
    }
}

fn url(port: u16) -> String {
    format!("http://127.0.0.1:{port}")
}

/// Its name in Go.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "aarch64" => "arm64",
        "x86_64" => "amd64",
        other => other,
    }
}

/// A name that no server has had before: each run gets one of its own, also on a folder that is used again.
fn new_name() -> String {
    format!(
        "testbed-{:016x}",
        RandomState::new().hash_one(std::process::id())
    )
}

/// etcd does not say which process it is, but which name it has in the cluster, and it learns that from the cluster itself: once the new
/// name comes back, ours has elected itself and has written. A stranger on the port has another name, and ours will end because of it.
async fn ask(port: u16, name: &str) -> Answer {
    const QUESTION: &str = "POST /v3/cluster/member/list HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}";
    const AT_MOST: u64 = 64 << 10;
    match wire::ask(port, QUESTION, AT_MOST).await {
        Some(answer) if String::from_utf8_lossy(&answer).contains(name) => Answer::Ready,
        _ => Answer::Silent,
    }
}
