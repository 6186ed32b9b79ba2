//! An actor in a process of its own, which can be stopped (SIGSTOP) and killed, as a pause of the machine or an operator would.
//!
//! It is this very program, started again with the name of a role. It tells its parent over a loopback connection what it does, so that its
//! lane of the picture is drawn as it goes on, and stands at every named [`point`](Host::point) until it is told to go on. What a reader
//! could get wrong: it does not know that it is in a play. It holds its lock as a service would, and what is done to it is done from outside.

mod host;
mod role;

use std::{collections::HashMap, ffi::OsString, path::PathBuf, process::Command, time::Duration};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use testbed::Daemon;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    net::{
        TcpListener,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    time::timeout,
};

pub use host::{At, Host};
pub use role::{Role, act};

use crate::{
    stage::Stage,
    timeline::{Doing, During, Event, Lane},
};

/// How long a process may take to start and say so.
const STARTS_WITHIN: Duration = Duration::from_secs(20);

/// How this program is started again as an actor: the arguments before the role.
#[derive(Debug, Clone)]
pub struct Program {
    /// The file.
    pub path: PathBuf,
    /// What comes first.
    pub arguments: Vec<OsString>,
}

/// What an actor tells.
#[derive(Debug, Serialize, Deserialize)]
enum Said {
    /// It stands at this point until it is told to go on.
    At(String),
    /// It is at this from now on; with a lease, in seconds of the story, if it holds a lock.
    Begins { id: u64, doing: Doing, label: String, lease: Option<f64> },
    /// The lease of what it is at was extended.
    Extended { id: u64, lease: f64 },
    /// It is not at this any more.
    Ends { id: u64 },
    /// Something happened.
    Notes { event: Event, label: String },
    /// It is done.
    Done(Value),
    /// It could not go on.
    Failed(String),
}

/// Where an actor stands.
#[derive(Debug, Clone, PartialEq)]
pub enum Stop {
    /// At this point.
    At(String),
    /// It is done; with what came of it.
    Done(Value),
}

/// An actor, seen from the play. Dropping it kills it.
pub struct Actor {
    process: Daemon,
    said: Lines<BufReader<OwnedReadHalf>>,
    told: OwnedWriteHalf,
    lane: Lane,
    during: HashMap<u64, During>,
    at: Option<String>,
}

impl Actor {
    /// Starts one. It runs until its first point.
    pub async fn start(stage: &Stage, lane: &str, role: Role, arguments: &impl Serialize) -> Result<Self> {
        Self::start_with(stage, lane, role, arguments, Vec::new()).await
    }

    /// The same, with variables in its environment, such as those of a clock that jumps.
    pub async fn start_with(
        stage: &Stage,
        lane: &str,
        role: Role,
        arguments: &impl Serialize,
        variables: Vec<(&'static str, PathBuf)>,
    ) -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let (program, port) = (stage.program.clone(), listener.local_addr()?.port().to_string());
        let log = stage.folder().join(format!("{}.log", lane.replace(' ', "-")));
        let command = move || {
            let mut command = Command::new(&program.path);
            command.args(&program.arguments).arg(role.name()).arg(&port).envs(variables.iter().cloned());
            command
        };
        let process = Daemon::start("actor", log, command).await?;
        let (stream, _) = timeout(STARTS_WITHIN, listener.accept()).await.context("the actor did not start in time")??;
        stream.set_nodelay(true)?;
        let (said, mut told) = stream.into_split();
        told.write_all(format!("{}\n", serde_json::to_string(arguments)?).as_bytes()).await?;
        let said = BufReader::new(said).lines();
        Ok(Self { process, said, told, lane: stage.timeline.lane(lane), during: HashMap::new(), at: None })
    }

    /// Its lane of the picture.
    pub fn lane(&self) -> &Lane {
        &self.lane
    }

    /// Lets it go on, and waits until it stands at a point or is done.
    pub async fn next(&mut self) -> Result<Stop> {
        self.go().await?;
        loop {
            if let Some(result) = self.listen().await? {
                return Ok(Stop::Done(result));
            }
            if let Some(point) = &self.at {
                return Ok(Stop::At(point.clone()));
            }
        }
    }

    /// Lets it pass every point before this one, and waits until it stands there.
    pub async fn until(&mut self, point: &str) -> Result<()> {
        while self.at.as_deref() != Some(point) {
            if let Stop::Done(result) = self.next().await? {
                bail!("it ended before it came to `{point}`: {result}");
            }
        }
        Ok(())
    }

    /// Lets it go on from the point where it stands, if it stands at one.
    pub async fn go(&mut self) -> Result<()> {
        if self.at.take().is_some() {
            self.told.write_all(b"go\n").await?;
        }
        Ok(())
    }

    /// Lets it pass every point, and waits for its result.
    pub async fn finish<T: serde::de::DeserializeOwned>(&mut self) -> Result<T> {
        loop {
            if let Stop::Done(result) = self.next().await? {
                return Ok(serde_json::from_value(result)?);
            }
        }
    }

    /// SIGSTOP: what a long collection of garbage, a migrated machine or a full disk do to a process.
    pub async fn pause(&self) -> Result<During> {
        self.lane.notes(Event::Fault, "stopped (SIGSTOP)");
        let during = self.lane.is(Doing::Stalled, "stopped");
        self.process.pause().await?;
        Ok(during)
    }

    /// SIGCONT.
    pub async fn resume(&self, stopped: During) -> Result<()> {
        drop(stopped);
        self.lane.notes(Event::Note, "resumes (SIGCONT)");
        Ok(self.process.resume().await?)
    }

    /// SIGKILL. What it held it holds in the picture no more.
    pub async fn kill(&mut self) -> Result<()> {
        self.lane.notes(Event::Fault, "killed (SIGKILL)");
        self.process.kill().await?;
        self.during.clear();
        Ok(())
    }

    /// Takes in one thing that it says; its result, if it is that.
    async fn listen(&mut self) -> Result<Option<Value>> {
        let line = self.said.next_line().await?;
        let Some(line) = line else {
            bail!("the actor ended: {}", std::fs::read_to_string(self.process.log()).unwrap_or_default());
        };
        match serde_json::from_str(&line)? {
            Said::At(point) => self.at = Some(point),
            Said::Begins { id, doing, label, lease } => {
                let during = match lease {
                    Some(lease) => self.lane.holds(label, Duration::from_secs_f64(lease)),
                    None => self.lane.is(doing, label),
                };
                self.during.insert(id, during);
            }
            Said::Extended { id, lease } => {
                if let Some(during) = self.during.get(&id) {
                    during.is_extended(Duration::from_secs_f64(lease));
                }
            }
            Said::Ends { id } => drop(self.during.remove(&id)),
            Said::Notes { event, label } => self.lane.notes(event, label),
            Said::Done(result) => return Ok(Some(result)),
            Said::Failed(why) => bail!("the actor failed: {why}"),
        }
        Ok(None)
    }
}
