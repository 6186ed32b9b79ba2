//! Locks that misbehave as a test wants: whose tokens are too low, or that are lost in the middle.

use std::{
    sync::atomic::{AtomicI64, Ordering},
    time::{Duration, Instant},
};

use async_trait::async_trait;
use lock::{Capabilities, FencingToken, Grant, Guard, Hold, Lock, LockError, Request, Sequencer};
use tokio_util::sync::CancellationToken;

/// Gives every lock to everybody, as lock servers do whose clocks ran away: only the tokens tell who is the latest.
pub struct Anarchy {
    next: AtomicI64,
    /// After how long each holder loses the lock.
    lose_after: Option<Duration>,
    noted: AtomicI64,
}

impl Anarchy {
    /// The next tokens are from here on.
    pub fn from(token: i64) -> Self {
        Self {
            next: AtomicI64::new(token),
            lose_after: None,
            noted: AtomicI64::new(0),
        }
    }

    /// Each holder loses the lock so soon.
    pub fn that_is_lost_after(self, lose_after: Duration) -> Self {
        Self {
            lose_after: Some(lose_after),
            ..self
        }
    }

    /// The highest token that it was told of.
    pub fn noted(&self) -> i64 {
        self.noted.load(Ordering::SeqCst)
    }

    pub fn given(&self) -> i64 {
        self.next.load(Ordering::SeqCst)
    }
}

#[async_trait]
impl Lock for Anarchy {
    fn capabilities(&self) -> Capabilities {
        unreachable!("nobody asks")
    }

    async fn request(&self, request: Request<'_>) -> Result<Guard, LockError> {
        let token = FencingToken::new(self.next.fetch_add(1, Ordering::SeqCst)).unwrap();
        let (lost, lease) = (CancellationToken::new(), Duration::from_secs(3600));
        if let Some(after) = self.lose_after {
            let lost = lost.clone();
            tokio::spawn(async move {
                tokio::time::sleep(after).await;
                lost.cancel();
            });
        }
        let sequencer = Sequencer {
            name: request.name.to_owned(),
            mode: request.mode,
            token,
        };
        Ok(Guard::new(Grant {
            sequencer,
            deadline: Instant::now() + lease,
            lease,
            lost,
            hold: Box::new(Nothing),
        }))
    }

    fn note_token(&self, _: &str, token: FencingToken) {
        self.noted.fetch_max(token.get(), Ordering::SeqCst);
    }
}

/// There is nothing to give back.
struct Nothing;

#[async_trait]
impl Hold for Nothing {
    async fn extend(&mut self) -> Result<Instant, LockError> {
        Ok(Instant::now() + Duration::from_secs(3600))
    }

    async fn release(self: Box<Self>) -> Result<(), LockError> {
        Ok(())
    }
}
