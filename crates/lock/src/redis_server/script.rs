//! One typed call per file in `lua/`.

use std::{sync::LazyLock, time::Duration};

use redis::{Cmd, ErrorKind, RedisResult, ServerErrorKind, aio::ConnectionManager};

use crate::{FencingToken, error::Answer};

/// A file of `lua/`.
pub(crate) struct Script {
    name: &'static str,
    source: &'static str,
    sha: String,
}

macro_rules! scripts {
    ($($constant:ident = $name:literal),+ $(,)?) => {
        $(pub(crate) static $constant: LazyLock<Script> =
            LazyLock::new(|| Script::new($name, include_str!(concat!("../../../../lua/", $name, ".lua"))));)+
    };
}

#[cfg(feature = "redlock")]
scripts! {
    ACQUIRE = "lock_acquire",
    ACQUIRE_SHARED = "lock_acquire_shared",
    ADMIT = "lock_admit",
    EXTEND = "lock_extend",
    EXTEND_SHARED = "lock_extend_shared",
    LEAVE = "lock_leave",
    QUEUE = "lock_queue",
    RELEASE_SHARED = "lock_release_shared",
    WATCH = "lock_watch",
}
#[cfg(feature = "redis")]
scripts! {
    ACQUIRE_SINGLE = "lock_acquire_single",
    ENTER = "lock_enter",
    EXTEND_ENTERED = "lock_extend_entered",
    EXTEND_SINGLE = "lock_extend_single",
    EXIT = "lock_exit",
}
scripts! {
    RELEASE = "lock_release",
}

/// What a script answered: a status, the server's time in microseconds, and what the status says it is followed by.
pub(crate) struct Reply {
    pub status: String,
    pub now_us: i64,
    rest: Vec<String>,
}

impl Reply {
    fn new(words: Vec<String>) -> Option<Self> {
        let mut words = words.into_iter();
        Some(Self {
            status: words.next()?,
            now_us: words.next()?.parse().ok()?,
            rest: words.collect(),
        })
    }

    pub(crate) fn word(&self, index: usize) -> &str {
        self.rest.get(index).map_or("", String::as_str)
    }

    pub(crate) fn number(&self, index: usize) -> Option<i64> {
        self.word(index).parse().ok()
    }

    /// What the statuses mean that need nothing but the reply.
    pub(crate) fn answer(&self) -> Answer {
        match self.status.as_str() {
            "accepted" => Answer::Accepted,
            "gone" => Answer::Gone,
            "queued" => Answer::Queued {
                ahead: self.word(1).parse().unwrap_or(1),
            },
            "held" => Answer::Held {
                remaining: self
                    .number(1)
                    .and_then(|remaining_ms| u64::try_from(remaining_ms).ok())
                    .map(Duration::from_millis),
                fence: self.number(0).and_then(FencingToken::new),
            },
            "low" => match self.number(0).and_then(FencingToken::new) {
                Some(fence) => Answer::TooLow { fence },
                None => Answer::Unreadable(format!("token {:?}", self.word(0))),
            },
            status => Answer::Unreadable(status.to_owned()),
        }
    }
}

impl Script {
    fn new(name: &'static str, source: &'static str) -> Self {
        Self {
            name,
            source,
            sha: redis::Script::new(source).get_hash().to_owned(),
        }
    }

    /// Runs the script. If the server does not have it (it restarted, somebody flushed), the same call carries the source and heals it.
    pub(crate) async fn run(
        &self,
        connection: &ConnectionManager,
        keys: &[&str],
        arguments: &[&str],
    ) -> RedisResult<Reply> {
        let mut connection = connection.clone();
        let words = match self
            .command("EVALSHA", &self.sha, keys, arguments)
            .query_async(&mut connection)
            .await
        {
            Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                tracing::info!(script = self.name, "the server had lost the script");
                self.command("EVAL", self.source, keys, arguments)
                    .query_async(&mut connection)
                    .await?
            }
            result => result?,
        };
        Reply::new(words).ok_or_else(|| {
            (
                ErrorKind::UnexpectedReturnType,
                "the script answered too few words",
                self.name.to_owned(),
            )
                .into()
        })
    }

    fn command(&self, verb: &str, script: &str, keys: &[&str], arguments: &[&str]) -> Cmd {
        let mut cmd = redis::cmd(verb);
        cmd.arg(script).arg(keys.len()).arg(keys).arg(arguments);
        cmd
    }
}
