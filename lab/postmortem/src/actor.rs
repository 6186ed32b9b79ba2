//! An actor in a separate process, which can be stopped (SIGSTOP) and killed, as a pause of the
//! machine or an operator would.
//!
//! The process is this program, started again with the name of a role. It reports over a loopback
//! connection what it does, so that its lane of the timeline is drawn live. It stops at every named
//! [`point`](Host::point) until the runner lets it continue.
//!
//! The code of an actor does not depend on the schedule: it holds its lock as a service would, and
//! faults are injected from outside.

mod host;
mod role;

use std::{
    collections::HashMap,
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
pub use role::{Role, act, act_as};

use crate::{
    test_env::TestEnv,
    timeline::{Doing, During, Event, Lane},
};

/// Message of an actor to the runner.
#[derive(Debug, Serialize, Deserialize)]
enum Message {
    /// The actor has stopped at this point, and waits for the permission to continue.
    At(String),
    /// An activity begins. If it is holding a lock, `lease` is the lease in seconds of scenario
    /// time.
    Begins {
        id: u64,
        doing: Doing,
        label: String,
        lease: Option<f64>,
    },
    /// The lease of an activity was extended.
    Extended { id: u64, lease: f64 },
    /// An activity ends.
    Ends { id: u64 },
    /// An event occurred.
    Notes { event: Event, label: String },
    /// The role has ended with this result.
    Done(Value),
    /// The role has failed with this error.
    Failed(String),
}

/// Why an actor does not run on.
#[derive(Debug, Clone, PartialEq)]
pub enum Stop {
    /// It has stopped at this point.
    At(String),
    /// It has ended with this result.
    Done(Value),
}

/// The runner's side of an actor. Dropping it kills the process.
pub struct Actor {
    process: Daemon,
    turns: mpsc::UnboundedReceiver<Turn>,
    commands: OwnedWriteHalf,
    lane: Lane,
    during: Arc<Mutex<HashMap<u64, During>>>,
    listening: JoinHandle<()>,
    at: Option<String>,
}

/// A message that the runner waits for.
enum Turn {
    At(String),
    Done(Value),
    Failed(String),
}

/// Draws an actor's lane as its messages arrive, also while the runner waits for another actor.
struct Listener {
    messages: Lines<BufReader<OwnedReadHalf>>,
    lane: Lane,
    during: Arc<Mutex<HashMap<u64, During>>>,
    turns: mpsc::UnboundedSender<Turn>,
}

impl Actor {
    /// Starts an actor, which runs until its first point.
    pub async fn start(
        env: &TestEnv,
        lane: &str,
        role: impl AsRef<str>,
        arguments: &impl Serialize,
    ) -> Result<Self> {
        Self::start_with(env, lane, role, arguments, Vec::new()).await
    }

    /// As [`start`](Self::start), with environment variables, such as those of a clock that jumps.
    pub async fn start_with(
        env: &TestEnv,
        lane: &str,
        role: impl AsRef<str>,
        arguments: &impl Serialize,
        variables: Vec<(&'static str, PathBuf)>,
    ) -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let (program, port) = (
            env.program.clone(),
            listener.local_addr()?.port().to_string(),
        );
        let log = env.folder().join(format!("{}.log", lane.replace(' ', "-")));
        let role = role.as_ref().to_owned();
        let command = move || {
            let mut command = Command::new(&program.path);
            command
                .args(&program.arguments)
                .arg(&role)
                .arg(&port)
                .envs(variables.iter().cloned());
            command
        };
        let process = Daemon::start("actor", log, command).await?;
        let limit = testbed::timeout();
        let (stream, _) = timeout(limit, listener.accept())
            .await
            .with_context(|| format!("the actor did not connect within {limit:?}"))??;
        stream.set_nodelay(true)?;
        let (messages, mut commands) = stream.into_split();
        commands
            .write_all(format!("{}\n", serde_json::to_string(arguments)?).as_bytes())
            .await?;
        let (lane, during, (sender, receiver)) = (
            env.timeline.lane(lane),
            Arc::default(),
            mpsc::unbounded_channel(),
        );
        let listener = Listener {
            messages: BufReader::new(messages).lines(),
            lane: lane.clone(),
            during: Arc::clone(&during),
            turns: sender,
        };
        let listening = tokio::spawn(listener.listen());
        Ok(Self {
            process,
            turns: receiver,
            commands,
            lane,
            during,
            listening,
            at: None,
        })
    }

    /// Returns its lane of the timeline.
    pub fn lane(&self) -> &Lane {
        &self.lane
    }

    /// Lets the actor continue, and waits until it stops at a point or ends.
    pub async fn next(&mut self) -> Result<Stop> {
        self.go().await?;
        match self.turns.recv().await {
            Some(Turn::At(point)) => {
                self.at = Some(point.clone());
                Ok(Stop::At(point))
            }
            Some(Turn::Done(result)) => Ok(Stop::Done(result)),
            Some(Turn::Failed(error)) => bail!("the actor failed: {error}"),
            None => bail!(
                "the actor process ended: {}",
                std::fs::read_to_string(self.process.log()).unwrap_or_default()
            ),
        }
    }

    /// Lets the actor pass all points before this one, and waits until it stops there.
    pub async fn until(&mut self, point: &str) -> Result<()> {
        while self.at.as_deref() != Some(point) {
            if let Stop::Done(result) = self.next().await? {
                bail!("the actor ended before the point `{point}`: {result}");
            }
        }
        Ok(())
    }

    /// Lets the actor continue from the point at which it has stopped, if there is one.
    pub async fn go(&mut self) -> Result<()> {
        if self.at.take().is_some() {
            self.commands.write_all(b"go\n").await?;
        }
        Ok(())
    }

    /// Lets the actor pass all points, and waits for its result.
    pub async fn finish<T: serde::de::DeserializeOwned>(&mut self) -> Result<T> {
        loop {
            if let Stop::Done(result) = self.next().await? {
                return Ok(serde_json::from_value(result)?);
            }
        }
    }

    /// Sends SIGSTOP, which has the effect of a long garbage collection, a live migration or a full
    /// disk.
    pub async fn pause(&self) -> Result<During> {
        self.lane.notes(Event::Fault, "stopped (SIGSTOP)");
        let during = self.lane.is(Doing::Stalled, "stopped");
        self.process.pause().await?;
        Ok(during)
    }

    /// Sends SIGCONT.
    pub async fn resume(&self, stopped: During) -> Result<()> {
        drop(stopped);
        self.lane.notes(Event::Note, "resumes (SIGCONT)");
        Ok(self.process.resume().await?)
    }

    /// Sends SIGKILL, and ends its activities on the timeline.
    pub async fn kill(&mut self) -> Result<()> {
        self.lane.notes(Event::Fault, "killed (SIGKILL)");
        self.process.kill().await?;
        // Messages that were sent before the kill are still read.
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
        while let Ok(Some(line)) = self.messages.next_line().await {
            let turn = match serde_json::from_str(&line) {
                Ok(message) => self.handle(message),
                Err(error) => Some(Turn::Failed(format!(
                    "cannot parse the message {line}: {error}"
                ))),
            };
            if turn.is_some_and(|turn| self.turns.send(turn).is_err()) {
                return;
            }
        }
    }

    /// Handles one message.
    fn handle(&self, message: Message) -> Option<Turn> {
        let mut during = self.during.lock().unwrap_or_else(PoisonError::into_inner);
        match message {
            Message::At(point) => return Some(Turn::At(point)),
            Message::Begins {
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
            Message::Extended { id, lease } => {
                if let Some(held) = during.get(&id) {
                    held.is_extended(Duration::from_secs_f64(lease));
                }
            }
            Message::Ends { id } => drop(during.remove(&id)),
            Message::Notes { event, label } => self.lane.notes(event, label),
            Message::Done(result) => return Some(Turn::Done(result)),
            Message::Failed(error) => return Some(Turn::Failed(error)),
        }
        None
    }
}
