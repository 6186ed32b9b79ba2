//! An actor in a process of its own, which can be stopped (SIGSTOP) and killed, as a pause of the machine or an operator would.
//!
//! It is this very program, started again with the name of a role. It tells its parent over a loopback connection what it does, so that its
//! lane of the picture is drawn as it goes on, and stands at every named [`point`](Host::point) until it is told to go on. What a reader
//! could get wrong: it does not know that it is in a play. It holds its lock as a service would, and what is done to it is done from outside.

mod host;
mod role;

use std::{
    collections::HashMap,
    ffi::OsString,
    path::PathBuf,
    process::Command,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

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
    sync::mpsc,
    task::JoinHandle,
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
    Begins {
        id: u64,
        doing: Doing,
        label: String,
        lease: Option<f64>,
    },
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
    said: mpsc::UnboundedReceiver<Turn>,
    told: OwnedWriteHalf,
    lane: Lane,
    during: Arc<Mutex<HashMap<u64, During>>>,
    listening: JoinHandle<()>,
    at: Option<String>,
}

/// What an actor says that the play has to answer.
enum Turn {
    At(String),
    Done(Value),
    Failed(String),
}

/// Draws an actor's lane as it speaks, also while the play has its eyes on somebody else.
struct Listener {
    said: Lines<BufReader<OwnedReadHalf>>,
    lane: Lane,
    during: Arc<Mutex<HashMap<u64, During>>>,
    turns: mpsc::UnboundedSender<Turn>,
}

impl Actor {
    /// Starts one. It runs until its first point.
    pub async fn start(
        stage: &Stage,
        lane: &str,
        role: Role,
        arguments: &impl Serialize,
    ) -> Result<Self> {
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
        let (program, port) = (
            stage.program.clone(),
            listener.local_addr()?.port().to_string(),
        );
        let log = stage
            .folder()
            .join(format!("{}.log", lane.replace(' ', "-")));
        let command = move || {
            let mut command = Command::new(&program.path);
            command
                .args(&program.arguments)
                .arg(role.name())
                .arg(&port)
                .envs(variables.iter().cloned());
            command
        };
        let process = Daemon::start("actor", log, command).await?;
        let (stream, _) = timeout(STARTS_WITHIN, listener.accept())
            .await
            .context("the actor did not start in time")??;
        stream.set_nodelay(true)?;
        let (said, mut told) = stream.into_split();
        told.write_all(format!("{}\n", serde_json::to_string(arguments)?).as_bytes())
            .await?;
        let (lane, during, (turns, heard)) = (
            stage.timeline.lane(lane),
            Arc::default(),
            mpsc::unbounded_channel(),
        );
        let listener = Listener {
            said: BufReader::new(said).lines(),
            lane: lane.clone(),
            during: Arc::clone(&during),
            turns,
        };
        let listening = tokio::spawn(listener.listen());
        Ok(Self {
            process,
            said: heard,
            told,
            lane,
            during,
            listening,
            at: None,
        })
    }

    /// Its lane of the picture.
    pub fn lane(&self) -> &Lane {
        &self.lane
    }

    /// Lets it go on, and waits until it stands at a point or is done.
    pub async fn next(&mut self) -> Result<Stop> {
        self.go().await?;
        match self.said.recv().await {
            Some(Turn::At(point)) => {
                self.at = Some(point.clone());
                Ok(Stop::At(point))
            }
            Some(Turn::Done(result)) => Ok(Stop::Done(result)),
            Some(Turn::Failed(why)) => bail!("the actor failed: {why}"),
            None => bail!(
                "the actor ended: {}",
                std::fs::read_to_string(self.process.log()).unwrap_or_default()
            ),
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
        // What it had said before is heard to the end.
        let _ = (&mut self.listening).await;
        self.during
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clear();
        Ok(())
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        self.listening.abort();
        self.during
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clear();
    }
}

impl Listener {
    async fn listen(mut self) {
        while let Ok(Some(line)) = self.said.next_line().await {
            let turn = match serde_json::from_str(&line) {
                Ok(said) => self.hear(said),
                Err(error) => Some(Turn::Failed(format!("it said {line}: {error}"))),
            };
            if turn.is_some_and(|turn| self.turns.send(turn).is_err()) {
                return;
            }
        }
    }

    /// Takes in one thing that it says.
    fn hear(&self, said: Said) -> Option<Turn> {
        let mut during = self.during.lock().unwrap_or_else(PoisonError::into_inner);
        match said {
            Said::At(point) => return Some(Turn::At(point)),
            Said::Begins {
                id,
                doing,
                label,
                lease,
            } => {
                let begun = match lease {
                    Some(lease) => self.lane.holds(label, Duration::from_secs_f64(lease)),
                    None => self.lane.is(doing, label),
                };
                during.insert(id, begun);
            }
            Said::Extended { id, lease } => {
                if let Some(held) = during.get(&id) {
                    held.is_extended(Duration::from_secs_f64(lease));
                }
            }
            Said::Ends { id } => drop(during.remove(&id)),
            Said::Notes { event, label } => self.lane.notes(event, label),
            Said::Done(result) => return Some(Turn::Done(result)),
            Said::Failed(why) => return Some(Turn::Failed(why)),
        }
        None
    }
}
