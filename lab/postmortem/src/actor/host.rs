//! The actor's side of the connection to the runner: it reports activities and stops at named
//! points.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    net::{
        TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::Mutex,
};

use super::Message;
use crate::timeline::{Doing, Event};

/// The actor's end of the connection.
pub struct Host {
    messages: Mutex<OwnedWriteHalf>,
    commands: Mutex<Lines<BufReader<OwnedReadHalf>>>,
    next: AtomicU64,
}

/// An activity, until it [ends](Host::ends).
#[derive(Debug, Clone, Copy)]
#[must_use = "an activity lasts until `Host::ends`"]
pub struct At(u64);

impl Host {
    /// Connects to the runner, and receives the arguments.
    pub(super) async fn connect(port: u16) -> Result<(Self, String)> {
        let stream = TcpStream::connect(("127.0.0.1", port))
            .await
            .context("cannot connect to the runner")?;
        stream.set_nodelay(true)?;
        let (commands, messages) = stream.into_split();
        let mut commands = BufReader::new(commands).lines();
        let arguments = commands
            .next_line()
            .await?
            .context("the runner has closed the connection")?;
        Ok((
            Self {
                messages: Mutex::new(messages),
                commands: Mutex::new(commands),
                next: AtomicU64::new(0),
            },
            arguments,
        ))
    }

    /// Stops here until the runner lets the actor continue.
    pub async fn point(&self, name: &str) -> Result<()> {
        // Only one task of an actor waits at a point at a time.
        let mut commands = self.commands.lock().await;
        self.send(&Message::At(name.into())).await?;
        ensure!(
            commands.next_line().await?.is_some(),
            "the runner has closed the connection"
        );
        Ok(())
    }

    /// Reports the begin of an activity.
    pub async fn begins(&self, doing: Doing, label: &str) -> Result<At> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        self.send(&Message::Begins {
            id,
            doing,
            label: label.into(),
            lease: None,
        })
        .await?;
        Ok(At(id))
    }

    /// Reports the begin of holding a lock, with a lease in scenario time.
    pub async fn holds(&self, label: &str, lease: Duration) -> Result<At> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        self.send(&Message::Begins {
            id,
            doing: Doing::Holding,
            label: label.into(),
            lease: Some(lease.as_secs_f64()),
        })
        .await?;
        Ok(At(id))
    }

    /// Reports that the lease was extended: it is valid for this long from now.
    pub async fn extended(&self, at: At, lease: Duration) -> Result<()> {
        self.send(&Message::Extended {
            id: at.0,
            lease: lease.as_secs_f64(),
        })
        .await
    }

    /// Reports the end of an activity.
    pub async fn ends(&self, at: At) -> Result<()> {
        self.send(&Message::Ends { id: at.0 }).await
    }

    /// Reports an event.
    pub async fn notes(&self, event: Event, label: &str) -> Result<()> {
        self.send(&Message::Notes {
            event,
            label: label.into(),
        })
        .await
    }

    /// Reports the result or the error of the role.
    pub(super) async fn report(&self, done: Result<Value>) -> Result<()> {
        match done {
            Ok(result) => self.send(&Message::Done(result)).await,
            Err(error) => self.send(&Message::Failed(format!("{error:#}"))).await,
        }
    }

    async fn send(&self, message: &Message) -> Result<()> {
        let line = format!("{}\n", serde_json::to_string(message)?);
        Ok(self
            .messages
            .lock()
            .await
            .write_all(line.as_bytes())
            .await?)
    }
}

/// Parses the arguments that the runner has sent.
pub(super) fn arguments<T: DeserializeOwned>(text: &str) -> Result<T> {
    serde_json::from_str(text).with_context(|| format!("arguments of the actor: {text}"))
}
