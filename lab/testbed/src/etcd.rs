//! One etcd server, a cluster of one.
//!
//! Defaults: the server elects itself within a tenth of a second. etcd grants no lease that is
//! shorter than one and a half elections, in whole seconds. With etcd's own defaults that is two
//! seconds, with ours it is one; a test that waits for the end of a lease need not wait longer.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use local::{Readiness, Settings};

use crate::{
    Result,
    data::DATA,
    program,
    server::{Builder, Server, SingleProcess, TestKind},
    wire,
};

const PROGRAM: &str = "etcd";
const INSTALL_HINT: &str =
    "`apt-get install etcd-server`, `dnf install etcd` or `brew install etcd`";
/// etcd reads every option also from a variable with this prefix.
const SETTINGS_PREFIXES: &[&str] = &["ETCD_"];
/// A cluster of one has no peers, but etcd insists on listening for them. The system chooses this
/// port, so it is never taken.
const PEER_URL: &str = "http://127.0.0.1:0";

/// How an etcd server is started.
pub type EtcdBuilder = Builder<EtcdKind>;

/// One etcd server. Its folder holds `data` and `etcd.log`.
pub type Etcd = Server<EtcdKind>;

/// How an etcd server is configured, run and checked.
#[derive(Clone, Debug)]
pub struct EtcdKind {
    program: PathBuf,
    settings: Settings,
    /// Name in the cluster of this run.
    name: String,
}

impl Server<EtcdKind> {
    /// `http://127.0.0.1:PORT`
    pub fn url(&self) -> String {
        url(self.port())
    }
}

impl TestKind for EtcdKind {
    const DEFAULT_CONFIG: &'static [(&'static str, &'static str)] =
        &[("heartbeat-interval", "10"), ("election-timeout", "100")];

    fn find(settings: Settings) -> Result<Self> {
        Ok(Self {
            program: local::program::find(PROGRAM, &[], INSTALL_HINT)?,
            settings,
            name: String::new(),
        })
    }
}

impl SingleProcess for EtcdKind {}

impl local::Kind for EtcdKind {
    const PROGRAM: &'static str = PROGRAM;
    const LOG: &'static str = "etcd.log";

    fn command(&mut self, dir: &Path, port: u16) -> local::Result<Command> {
        // Each run gets a new one, also on a folder that an earlier run has used.
        self.name = wire::new_name();
        let (name, clients) = (&self.name, url(port));
        let mut command =
            program::without_inherited_settings(Command::new(&self.program), SETTINGS_PREFIXES);
        let config = self.settings.config.iter();
        command.args(config.map(|(key, value)| format!("--{key}={value}")));
        command.args([
            format!("--name={name}"),
            format!("--data-dir={DATA}"),
            format!("--listen-client-urls={clients}"),
            format!("--advertise-client-urls={clients}"),
            format!("--listen-peer-urls={PEER_URL}"),
            format!("--initial-advertise-peer-urls={PEER_URL}"),
            format!("--initial-cluster={name}={PEER_URL}"),
            format!("--initial-cluster-token={name}"),
        ]);
        // Older releases run on ARM only with this variable.
        command
            .env("ETCD_UNSUPPORTED_ARCH", architecture())
            .current_dir(dir);
        Ok(command)
    }

    /// etcd does not report its process id, but its name in the cluster, which it reads from the
    /// cluster itself. A reply with the new name proves that our server has elected itself and has
    /// written. A stranger on the port has another name, and ours ends because the port is taken.
    async fn readiness(&self, _dir: &Path, port: u16, _pid: u32) -> Readiness {
        const REQUEST: &str = "POST /v3/cluster/member/list HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}";
        wire::is_named(port, REQUEST, &self.name).await
    }
}

fn url(port: u16) -> String {
    format!("http://127.0.0.1:{port}")
}

/// Go's name of the architecture.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "aarch64" => "arm64",
        "x86_64" => "amd64",
        other => other,
    }
}
