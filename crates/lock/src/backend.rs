//! What every backend offers, and what it must do for a guard.
//!
//! A user reads [`Lock`] and [`Capabilities`]. Whoever writes a backend implements [`Lock::request`] and [`Hold`], hands a [`Grant`] to
//! [`Guard::new`](crate::Guard::new), and gets deadline, loss, renewal, release and drop from there.

use std::time::{Duration, Instant};

use async_trait::async_trait;
use tokio_util::sync::CancellationToken;

use crate::{FencingToken, Guard, GuardSet, LockError, Sequencer};

/// A distributed lock, whatever keeps it.
///
/// Cancelling any of these calls leaves nothing behind.
#[async_trait]
pub trait Lock: Send + Sync {
    /// What this backend does, and does not.
    fn capabilities(&self) -> Capabilities;

    /// Acquires as the request says.
    ///
    /// # Errors
    ///
    /// See [`LockError`]. What had been granted until then is given back in the background.
    async fn request(&self, request: Request<'_>) -> Result<Guard, LockError>;

    /// Makes later tokens of this name be above one that is known from elsewhere, usually the fence of a row that the lock protects. A
    /// backend that draws its tokens from its own history cannot, and does nothing.
    fn note_token(&self, _name: &str, _token: FencingToken) {}

    /// Asks once.
    ///
    /// # Errors
    ///
    /// See [`LockError`].
    async fn try_acquire(&self, name: &str) -> Result<Guard, LockError> {
        self.request(Request::new(name).patience(Patience::None))
            .await
    }

    /// Waits for as long as somebody else has the lock.
    ///
    /// # Errors
    ///
    /// If the lock cannot be given at all for now: see [`LockError`].
    async fn acquire(&self, name: &str) -> Result<Guard, LockError> {
        self.request(Request::new(name)).await
    }

    /// Waits for so long, also for servers that do not answer, and then says what stood in the way last.
    ///
    /// # Errors
    ///
    /// See [`LockError`].
    async fn acquire_within(&self, name: &str, patience: Duration) -> Result<Guard, LockError> {
        self.request(Request::new(name).patience(Patience::For(patience)))
            .await
    }

    /// Acquires several locks, all or none, and lets them be held as one. The order in which everybody acquires them is that of their names,
    /// so that no two wait for each other. The patience is for all of them together.
    ///
    /// # Errors
    ///
    /// See [`LockError`]; [`InvalidArgument::NoNames`](crate::InvalidArgument::NoNames) for none.
    async fn acquire_all(&self, names: &[&str], patience: Patience) -> Result<GuardSet, LockError> {
        GuardSet::acquire(self, names, patience).await
    }
}

/// What is asked of a lock.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Request<'a> {
    /// Of the lock.
    pub name: &'a str,
    /// Alone, or with others.
    pub mode: Mode,
    /// How long to wait.
    pub patience: Patience,
}

impl<'a> Request<'a> {
    /// For a lock of one's own, waiting for as long as somebody else has it.
    pub const fn new(name: &'a str) -> Self {
        Self {
            name,
            mode: Mode::Exclusive,
            patience: Patience::UntilFree,
        }
    }

    /// For a lock that others may share.
    pub const fn shared(mut self) -> Self {
        self.mode = Mode::Shared;
        self
    }

    /// How long to wait.
    pub const fn patience(mut self, patience: Patience) -> Self {
        self.patience = patience;
        self
    }
}

/// Whether others may hold the lock as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Nobody else.
    Exclusive,
    /// Others who share it.
    Shared,
}

/// How long to wait for a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Patience {
    /// One attempt.
    None,
    /// For so long, also for servers that do not answer.
    For(Duration),
    /// For as long as somebody else has it, but not for servers that do not answer.
    UntilFree,
}

/// What a backend does. The contract of [`Lock`] holds for each; these are the differences.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// Tokens rise from holder to holder.
    pub fenced: bool,
    /// Waiters are served in the order in which they came.
    pub fair: bool,
    /// Several may share a lock.
    pub shared: bool,
    /// Who has a lock may acquire it again through the same value of this type, and is let in.
    pub reentrant: bool,
    /// The holder is told of a loss by the server, and not only at its deadline or when it extends.
    pub push_loss: bool,
    /// A lock whose holder has vanished can be kept from others for longer than its lease.
    pub lock_delay: bool,
    /// No wall clock of any machine decides when a lock ends.
    pub clock_free: bool,
}

/// A lock that a backend has acquired.
pub struct Grant {
    /// Which lock, and under which token.
    pub sequencer: Sequencer,
    /// Until when it is certainly ours by our monotonic clock, counted from before it was asked for.
    pub deadline: Instant,
    /// How long an extension lasts.
    pub lease: Duration,
    /// The backend may cancel it as soon as it knows that the lock is lost.
    pub lost: CancellationToken,
    /// What the backend does with it.
    pub hold: Box<dyn Hold>,
}

/// What a backend does with a lock that it has acquired. Dropping it gives the lock back in the background.
#[async_trait]
pub trait Hold: Send + Sync {
    /// Sets the lease anew from now, and says until when the lock is certainly ours then.
    ///
    /// # Errors
    ///
    /// `Lost` is final; after anything else it may be tried again until the deadline.
    async fn extend(&mut self) -> Result<Instant, LockError>;

    /// The lease has ended before the lock was given back, and this will be dropped now: if there is a lock-delay, it shall run its time.
    fn lapse(&mut self) {}

    /// Gives the lock back. A caller that does not wait for the answer leaves nothing behind.
    ///
    /// # Errors
    ///
    /// `Lost` if it was somebody else's or nobody's; anything else if that is unknown.
    async fn release(self: Box<Self>) -> Result<(), LockError>;
}
