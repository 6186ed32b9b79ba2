//! One NATS server with JetStream.
//!
//! Defaults: JetStream flushes every write to the disk where the release can (2.10 or newer).
//! SIGKILL alone does not lose an acknowledged message, because the page cache of the system
//! survives it.

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

const PROGRAM: &str = "nats-server";
const INSTALL_HINT: &str = "`apt-get install nats-server` or `brew install nats-server`";

/// How a NATS server is started.
pub type NatsBuilder = Builder<NatsKind>;

/// One NATS server. Its folder holds `data` and `nats.log`.
pub type Nats = Server<NatsKind>;

/// How a NATS server is configured, run and checked.
#[derive(Clone, Debug)]
pub struct NatsKind {
    program: PathBuf,
    settings: Settings,
    /// Name of this run.
    name: String,
}

impl Server<NatsKind> {
    /// `nats://127.0.0.1:PORT`
    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port())
    }
}

impl TestKind for NatsKind {
    const DEFAULT_CONFIG: &'static [(&'static str, &'static str)] = &[];

    fn find(settings: Settings) -> Result<Self> {
        Ok(Self {
            program: local::program::find(PROGRAM, &[PathBuf::from("/usr/sbin")], INSTALL_HINT)?,
            settings,
            name: String::new(),
        })
    }
}

impl SingleProcess for NatsKind {}

impl local::Kind for NatsKind {
    const PROGRAM: &'static str = PROGRAM;
    const LOG: &'static str = "nats.log";

    /// A setting is an option without its leading dashes.
    fn command(&mut self, dir: &Path, port: u16) -> local::Result<Command> {
        self.name = wire::new_name();
        let mut command = program::without_inherited_settings(Command::new(&self.program), &[]);
        let config = self.settings.config.iter();
        command
            .args(["--jetstream", "--addr=127.0.0.1"])
            .arg(format!("--store_dir={DATA}"))
            .arg(format!("--port={port}"))
            .arg(format!("--server_name={}", self.name))
            .args(config.map(|(key, value)| format!("--{key}={value}")))
            .current_dir(dir);
        Ok(command)
    }

    /// The server greets each client with its name, and ends the connection after nonsense. It
    /// listens only when JetStream has its streams again.
    async fn readiness(&self, _dir: &Path, port: u16, _pid: u32) -> Readiness {
        wire::is_named(port, "NONSENSE\r\n", &self.name).await
    }
}
