//! Locks that fail on purpose: with tokens that are too low, or lost during the work.

use std::{
    sync::atomic::{AtomicI64, AtomicU32, Ordering},
    time::{Duration, Instant},
};

use async_trait::async_trait;
use lock::{Capabilities, FencingToken, Grant, Guard, Hold, Lock, LockError, Request, Sequencer};
use tokio_util::sync::CancellationToken;

/// Grants after which requests wait for longer.
const CROWD: u32 = 4;

/// Grants every request, like lock servers with wrong clocks: only the tokens identify the latest
/// holder.
pub struct Anarchy {
    next: AtomicI64,
    /// The highest token that it gives, again and again.
    last: AtomicI64,
    /// Time after which each holder loses the lock.
    lose_after: Option<Duration>,
    /// Longest time that a request waits.
    wait_max: Duration,
    waiting: AtomicU32,
    /// Grants since the item was last at rest.
    crowded: AtomicU32,
    noted: AtomicI64,
}

impl Anarchy {
    /// Creates a lock whose next token is `token`.
    pub fn from(token: i64) -> Self {
        Self {
            next: AtomicI64::new(token),
            last: AtomicI64::new(i64::MAX),
            lose_after: None,
            wait_max: Duration::ZERO,
            waiting: AtomicU32::new(0),
            crowded: AtomicU32::new(0),
            noted: AtomicI64::new(0),
        }
    }

    /// Lets each holder lose the lock after `lose_after`.
    pub fn that_is_lost_after(self, lose_after: Duration) -> Self {
        Self {
            lose_after: Some(lose_after),
            ..self
        }
    }

    /// Gives no token above this one until [`Anarchy::gives_all`].
    pub fn that_gives_up_to(self, last: i64) -> Self {
        Self {
            last: AtomicI64::new(last),
            ..self
        }
    }

    /// Gives every token from now on.
    pub fn gives_all(&self) {
        self.last.store(i64::MAX, Ordering::SeqCst);
    }

    /// Lets each request wait for a different time, at first up to `wait_max`. Holders that follow
    /// one another closer than a repair takes fence each other for ever, and how long it takes
    /// depends on the machine: so the times double after every [`CROWD`] grants, until
    /// [`Anarchy::is_at_rest`].
    pub fn that_waits_up_to(self, wait_max: Duration) -> Self {
        Self { wait_max, ..self }
    }

    /// A holder came to its end, so times are short again.
    pub fn is_at_rest(&self) {
        self.crowded.store(0, Ordering::SeqCst);
    }

    /// The highest token that it has observed.
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
        unreachable!("the reconciler does not ask for capabilities")
    }

    async fn request(&self, request: Request<'_>) -> Result<Guard, LockError> {
        // Different for each request, and the same in each run.
        let steps = self.waiting.fetch_add(61, Ordering::SeqCst);
        let growth = 1 << (self.crowded.fetch_add(1, Ordering::SeqCst) / CROWD).min(5);
        tokio::time::sleep(self.wait_max * (steps % 100) / 100 * growth).await;
        let next = self.next.fetch_add(1, Ordering::SeqCst);
        let token = FencingToken::new(next.min(self.last.load(Ordering::SeqCst))).unwrap();
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

    fn observe(&self, _: &str, token: FencingToken) -> Result<(), LockError> {
        self.noted.fetch_max(token.get(), Ordering::SeqCst);
        Ok(())
    }
}

/// A lease without state.
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
