//! What an actor has to do with the play: it says what it is at, and stands at named points.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use serde::de::DeserializeOwned;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    net::{
        TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::Mutex,
};

use super::Said;
use crate::timeline::{Doing, Event};

/// The actor's side of the connection.
pub struct Host {
    said: Mutex<OwnedWriteHalf>,
    told: Mutex<Lines<BufReader<OwnedReadHalf>>>,
    next: AtomicU64,
}

/// What an actor is at, until it says that it [ends](Host::ends).
#[derive(Debug, Clone, Copy)]
#[must_use = "it never ends if nobody says so"]
pub struct At(u64);

impl Host {
    /// Connects to the play, and hears what it is to do.
    pub(super) async fn connect(port: u16) -> Result<(Self, String)> {
        let stream = TcpStream::connect(("127.0.0.1", port))
            .await
            .context("the play does not listen")?;
        stream.set_nodelay(true)?;
        let (told, said) = stream.into_split();
        let mut told = BufReader::new(told).lines();
        let arguments = told.next_line().await?.context("the play has ended")?;
        Ok((
            Self {
                said: Mutex::new(said),
                told: Mutex::new(told),
                next: AtomicU64::new(0),
            },
            arguments,
        ))
    }

    /// Stands here until the play lets it go on.
    pub async fn point(&self, name: &str) -> Result<()> {
        // Only one part of an actor stands at a time.
        let mut told = self.told.lock().await;
        self.say(&Said::At(name.into())).await?;
        ensure!(told.next_line().await?.is_some(), "the play has ended");
        Ok(())
    }

    /// It is at this from now on.
    pub async fn begins(&self, doing: Doing, label: &str) -> Result<At> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        self.say(&Said::Begins {
            id,
            doing,
            label: label.into(),
            lease: None,
        })
        .await?;
        Ok(At(id))
    }

    /// It is inside from now on, with a lease of so long a time of the story.
    pub async fn holds(&self, label: &str, lease: Duration) -> Result<At> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        self.say(&Said::Begins {
            id,
            doing: Doing::Holding,
            label: label.into(),
            lease: Some(lease.as_secs_f64()),
        })
        .await?;
        Ok(At(id))
    }

    /// Its lease was extended: it is good for so long from now.
    pub async fn extended(&self, at: At, lease: Duration) -> Result<()> {
        self.say(&Said::Extended {
            id: at.0,
            lease: lease.as_secs_f64(),
        })
        .await
    }

    /// It is not at this any more.
    pub async fn ends(&self, at: At) -> Result<()> {
        self.say(&Said::Ends { id: at.0 }).await
    }

    /// Something happened.
    pub async fn notes(&self, event: Event, label: &str) -> Result<()> {
        self.say(&Said::Notes {
            event,
            label: label.into(),
        })
        .await
    }

    pub(super) async fn say(&self, said: &Said) -> Result<()> {
        let line = format!("{}\n", serde_json::to_string(said)?);
        Ok(self.said.lock().await.write_all(line.as_bytes()).await?)
    }
}

/// What the play has told it to do.
pub(super) fn arguments<T: DeserializeOwned>(text: &str) -> Result<T> {
    serde_json::from_str(text).with_context(|| format!("arguments of the actor: {text}"))
}
