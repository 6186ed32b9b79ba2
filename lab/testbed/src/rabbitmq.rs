//! One RabbitMQ server.
//!
//! It has nothing in common with another RabbitMQ of this machine: neither folders nor the name of
//! the node nor its Erlang cookie, and it brings its own port mapper (epmd). Erlang would start a
//! mapper that all nodes share and that outlives them. Ours is a child of the server and ends with
//! it.
//!
//! A server takes some seconds to start, so that test binaries share one.

use std::{
    fs,
    hash::{DefaultHasher, Hash, Hasher},
    path::{Path, PathBuf},
    process::Command,
};

use local::{LocalError, Readiness, Settings, port::free_port_now};

use crate::{
    Result,
    data::DATA,
    program,
    server::{Builder, Server, SingleProcess, TestKind},
    wire,
};

const PROGRAM: &str = "rabbitmq-server";
const INSTALL_HINT: &str = "`apt-get install rabbitmq-server` or `brew install rabbitmq`";
/// The program in PATH insists on a user of its own. The one behind it does not.
const FOLDERS: [&str; 3] = [
    "/usr/lib/rabbitmq/bin",
    "/opt/homebrew/opt/rabbitmq/sbin",
    "/usr/local/opt/rabbitmq/sbin",
];
const SETTINGS_PREFIXES: &[&str] = &["RABBITMQ_", "ERL_", "ERLANG_"];
const CONFIG_FILE: &str = "rabbitmq.conf";
const PLUGINS_FILE: &str = "enabled_plugins";

/// `$0` is the server. The kernel ends the port mapper with its parent, which the server becomes.
const WITH_PORT_MAPPER: &str = r#"
if command -v setpriv >/dev/null 2>&1; then setpriv --pdeathsig KILL epmd & else epmd & fi
exec "$0""#;

/// How a RabbitMQ server is started.
pub type RabbitMqBuilder = Builder<RabbitMqKind>;

/// One RabbitMQ server. Its folder holds `data`, `rabbitmq.conf` and `rabbitmq.log`.
pub type RabbitMq = Server<RabbitMqKind>;

/// How a RabbitMQ server is configured, run and checked.
#[derive(Clone, Debug)]
pub struct RabbitMqKind {
    program: PathBuf,
    settings: Settings,
}

impl Server<RabbitMqKind> {
    /// `amqp://guest:guest@127.0.0.1:PORT`
    pub fn url(&self) -> String {
        format!("amqp://guest:guest@127.0.0.1:{}", self.port())
    }
}

impl TestKind for RabbitMqKind {
    const DEFAULT_CONFIG: &'static [(&'static str, &'static str)] = &[
        ("log.console", "true"),
        ("log.console.level", "warning"),
        ("log.file", "false"),
    ];

    fn find(settings: Settings) -> Result<Self> {
        Ok(Self {
            program: local::program::find(PROGRAM, &FOLDERS.map(PathBuf::from), INSTALL_HINT)?,
            settings,
        })
    }
}

impl SingleProcess for RabbitMqKind {}

impl local::Kind for RabbitMqKind {
    const PROGRAM: &'static str = PROGRAM;
    const LOG: &'static str = "rabbitmq.log";

    fn configure(&self, dir: &Path, port: u16) -> local::Result<()> {
        let config = self.settings.config.iter();
        let lines: String = config
            .map(|(key, value)| format!("{key} = {value}\n"))
            .collect();
        let text = format!("listeners.tcp.local = 127.0.0.1:{port}\n{lines}");
        for (name, text) in [(CONFIG_FILE, &*text), (PLUGINS_FILE, "[].\n")] {
            let file = dir.join(name);
            fs::write(&file, text).map_err(LocalError::folder(&file))?;
        }
        Ok(())
    }

    fn command(&mut self, dir: &Path, _port: u16) -> local::Result<Command> {
        let dir = dir.canonicalize().map_err(LocalError::folder(dir))?;
        let mut command =
            program::without_inherited_settings(Command::new("sh"), SETTINGS_PREFIXES);
        command
            .args(["-c", WITH_PORT_MAPPER])
            .arg(&self.program)
            .current_dir(&dir)
            // Erlang keeps its cookie there.
            .env("HOME", &dir)
            .env("LC_ALL", "C.UTF-8")
            .env("ERL_EPMD_ADDRESS", "127.0.0.1")
            // New ports in each run: the port mapper of a killed server may still have its own.
            .env("ERL_EPMD_PORT", free_port_now().to_string())
            // Without it, a shell stays between us and the server.
            .env("RUNNING_UNDER_SYSTEMD", "true")
            .env("RABBITMQ_NODENAME", format!("{}@localhost", node(&dir)))
            .env("RABBITMQ_DIST_PORT", free_port_now().to_string())
            .env("RABBITMQ_CONFIG_FILE", dir.join(CONFIG_FILE))
            .env("RABBITMQ_CONF_ENV_FILE", dir.join("no.conf"))
            .env("RABBITMQ_ENABLED_PLUGINS_FILE", dir.join(PLUGINS_FILE))
            .env("RABBITMQ_MNESIA_BASE", dir.join(DATA))
            .env("RABBITMQ_MNESIA_DIR", dir.join(DATA).join("mnesia"))
            .env("RABBITMQ_LOG_BASE", dir.join("log"))
            .env("RABBITMQ_LOGS", "-")
            .env("RABBITMQ_PID_FILE", dir.join("pid"))
            // Two schedulers, which do not spin while they have nothing to do.
            .env(
                "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS",
                "+S 2:2 +sbwt none +sbwtdcpu none +sbwtdio none -kernel inet_dist_use_interface {127,0,0,1}",
            );
        Ok(command)
    }

    /// The server greets a client with the name of its cluster, which begins with that of the node.
    /// It has no limit of time to start: Erlang loads thousands of modules first.
    async fn readiness(&self, dir: &Path, port: u16, _pid: u32) -> Readiness {
        const HEADER: &str = "AMQP\0\0\u{9}\u{1}";
        /// Frame header, class, method, version, and the first properties.
        const RESPONSE_BYTES: u64 = 400;
        let Ok(dir) = dir.canonicalize() else {
            return Readiness::Silent;
        };
        match wire::exchange(port, HEADER, RESPONSE_BYTES).await {
            Some(response) if String::from_utf8_lossy(&response).contains(&node(&dir)) => {
                Readiness::Ready
            }
            _ => Readiness::Busy,
        }
    }
}

/// The node's own data is useless under another name, so the name follows from the folder.
fn node(dir: &Path) -> String {
    let mut hasher = DefaultHasher::new();
    dir.hash(&mut hasher);
    format!("testbed-{:016x}", hasher.finish())
}
