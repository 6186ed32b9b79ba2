//! How the asks of an item travel: on the connection that all share, or until replicas have confirmed them.

use redis::{Cmd, ErrorKind, ServerErrorKind, Value};

use super::Script;
use crate::{
    StockError,
    connection::{Connection, Replicated},
};

/// How the asks of an item travel.
#[derive(Clone)]
pub(crate) enum Asks {
    /// Answered when the script has run.
    Shared(Connection),
    /// Answered when replicas have it.
    Replicated(Replicated),
}

impl Script {
    /// Runs it as the item's asks are run. `answers` is one of the keys.
    pub(super) async fn ask(
        &self,
        asks: &Asks,
        keys: &[&str],
        answers: &str,
        arguments: impl Fn(&mut Cmd),
    ) -> Result<Value, StockError> {
        match asks {
            Asks::Shared(connection) => self.run(connection, keys, arguments).await,
            Asks::Replicated(replicated) => {
                self.run_replicated(replicated, keys, answers, arguments)
                    .await
            }
        }
    }

    /// As [`Script::run`]. A server that lost the script has been asked for nothing.
    async fn run_replicated(
        &self,
        replicated: &Replicated,
        keys: &[&str],
        answers: &str,
        arguments: impl Fn(&mut Cmd),
    ) -> Result<Value, StockError> {
        match replicated
            .run(
                self.command("EVALSHA", &self.sha, keys, &arguments),
                answers,
            )
            .await
        {
            Err(StockError::Redis(error))
                if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) =>
            {
                tracing::info!(script = self.name, "the server had lost the script");
                replicated
                    .run(self.command("EVAL", self.source, keys, &arguments), answers)
                    .await
            }
            result => result,
        }
    }
}
