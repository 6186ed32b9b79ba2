//! One typed call per file in this crate's `lua/`.

use std::{sync::LazyLock, time::Duration};

use redis::{Cmd, ErrorKind, RedisResult, ServerErrorKind};

use super::connection::Connection;

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
            LazyLock::new(|| Script::new($name, include_str!(concat!("../../lua/", $name, ".lua"))));)+
    };
}

#[cfg(feature = "redlock")]
scripts! {
    ACQUIRE = "acquire",
    ACQUIRE_SHARED = "acquire_shared",
    ADMIT = "admit",
    EXTEND = "extend",
    EXTEND_SHARED = "extend_shared",
    LEAVE = "leave",
    QUEUE = "queue",
    RELEASE_SHARED = "release_shared",
    WATCH = "watch",
}
#[cfg(feature = "redis")]
scripts! {
    ACQUIRE_SINGLE = "acquire_single",
    ENTER = "enter",
    EXTEND_ENTERED = "extend_entered",
    EXTEND_SINGLE = "extend_single",
    EXIT = "exit",
}
scripts! {
    RELEASE = "release",
}

/// What a script answered: a status, the server's time in microseconds, and what the status says it
/// is followed by.
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

    /// Runs the script. If the server does not have it (it restarted, or the scripts were flushed),
    /// the same call carries the source and heals it.
    pub(super) async fn run(
        &self,
        mut connection: &Connection,
        keys: &[&str],
        arguments: &[&str],
    ) -> RedisResult<Reply> {
        let words = match self
            .command("EVALSHA", &self.sha, keys, arguments)
            .query_async(&mut connection)
            .await
        {
            Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                // The first use of a script on a server comes here, too.
                tracing::debug!(
                    script = self.name,
                    "the server does not have the script: sending it"
                );
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
