//! One typed call per file in `lua/`.

mod ask;
mod asks;
mod give_back;
mod mend;
mod open;
mod settle;
mod transfer;

use std::sync::LazyLock;

use devices::Device;
use redis::{Cmd, ErrorKind, ServerErrorKind, Value};

use crate::{StockError, connection::Connection, keys::Keys, reply::Reply};

pub(crate) use ask::{AskBatch, AskReply, Asked, Exception, Gate, ask_home, ask_next};
pub(crate) use asks::Asks;
pub(crate) use give_back::{give_back_count, release};
pub use mend::Adjusted;
pub(crate) use mend::{
    Adjustment, Batch, Restored, RestoredAnswer, adjust, halt_segment, restore_orders,
};
pub use open::{Inspection, InspectionEntries, Opened, StateSet};
pub(crate) use open::{inspect, open_segment, set_state};
pub(crate) use settle::{
    DueWalk, FinishedWalk, WalkEnd, due_walks, finish_walk, forget_passes, forget_walk,
};
pub(crate) use transfer::{transfer_in, transfer_out};

/// A file of `lua/`.
pub(crate) struct Script {
    pub name: &'static str,
    source: &'static str,
    sha: String,
}

macro_rules! scripts {
    ($($constant:ident = $name:literal),+ $(,)?) => {
        $(static $constant: LazyLock<Script> =
            LazyLock::new(|| Script::new($name, include_str!(concat!("../../../../lua/", $name, ".lua"))));)+

        /// Every script, to load them before the first order comes.
        pub(crate) static ALL: &[&LazyLock<Script>] = &[$(&$constant),+];
    };
}

scripts! {
    ADJUST = "adjust",
    ASK_HOME = "ask_home",
    ASK_NEXT = "ask_next",
    DUE_WALKS = "due_walks",
    FINISH_WALK = "finish_walk",
    FORGET_PASSES = "forget_passes",
    FORGET_WALK = "forget_walk",
    GIVE_BACK_COUNT = "give_back_count",
    HALT_SEGMENT = "halt_segment",
    INSPECT = "inspect",
    OPEN_SEGMENT = "open_segment",
    RELEASE = "release",
    RESTORE_ORDERS = "restore_orders",
    SET_STATE = "set_state",
    TRANSFER_IN = "transfer_in",
    TRANSFER_OUT = "transfer_out",
}

/// The source as it is, unless a test leaves a safety device out.
fn without_devices(source: &'static str) -> &'static str {
    let weakened = |line: &str, by: &str| -> &'static str {
        Box::leak(source.replace(line, by).into_boxed_str())
    };
    if !devices::is_on(Device::StickyAnswers) {
        // A segment that passed an order decides anew when it is asked again.
        weakened(
            "  local code, detail = nil, ''\n",
            "  if answer and string.byte(answer) == 80 then answer = nil end\n  local code, detail = nil, ''\n",
        )
    } else if !devices::is_on(Device::LimitAtHome) {
        weakened("if limit > 0 and count > limit then", "if false then")
    } else {
        source
    }
}

impl Script {
    fn new(name: &'static str, source: &'static str) -> Self {
        let source = without_devices(source);
        Self {
            name,
            source,
            sha: redis::Script::new(source).get_hash().to_owned(),
        }
    }

    /// Runs the script. If the server does not have it (it restarted, somebody flushed), the same call carries the source and heals it.
    async fn run(
        &self,
        connection: &Connection,
        keys: &[&str],
        arguments: impl Fn(&mut Cmd),
    ) -> Result<Value, StockError> {
        let mut connection = connection.clone();
        match self
            .command("EVALSHA", &self.sha, keys, &arguments)
            .query_async(&mut connection)
            .await
        {
            Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                tracing::info!(script = self.name, "the server had lost the script");
                Ok(self
                    .command("EVAL", self.source, keys, &arguments)
                    .query_async(&mut connection)
                    .await?)
            }
            result => Ok(result?),
        }
    }

    fn command(
        &self,
        verb: &str,
        script: &str,
        keys: &[&str],
        arguments: &impl Fn(&mut Cmd),
    ) -> Cmd {
        let mut cmd = redis::cmd(verb);
        cmd.arg(script).arg(keys.len()).arg(keys);
        arguments(&mut cmd);
        cmd
    }
}

/// Loads every script that some server lacks.
pub(crate) async fn load_all(connection: &Connection) -> Result<(), StockError> {
    let mut connection = connection.clone();
    let mut exists = redis::cmd("SCRIPT");
    exists.arg("EXISTS");
    for script in ALL {
        exists.arg(&script.sha);
    }
    let loaded: Vec<bool> = exists.query_async(&mut connection).await?;
    for (script, loaded) in ALL.iter().zip(loaded) {
        if !loaded {
            redis::cmd("SCRIPT")
                .arg("LOAD")
                .arg(script.source)
                .exec_async(&mut connection)
                .await?;
        }
    }
    Ok(())
}

/// Adds one value for each order of a batch.
fn column<T: redis::ToRedisArgs>(cmd: &mut Cmd, values: impl Iterator<Item = T>) {
    for value in values {
        cmd.arg(value);
    }
}

/// Turns the statuses by which a segment refuses to be changed into errors. Returns the clock of the server.
fn refusals(reply: &mut Reply, keys: &Keys, script: &str) -> Result<i64, StockError> {
    let status = reply.text()?;
    match &*status {
        "ok" => reply.int(),
        "late" => Err(StockError::Late {
            now_ms: reply.int()?,
        }),
        "missing" => Err(StockError::Missing(keys.segment.clone())),
        "mending" => Err(StockError::Mending(keys.segment.clone())),
        "fenced" => {
            let _now_ms = reply.int()?;
            Err(fenced(keys, reply)?)
        }
        status => Err(unknown_status(script, status)),
    }
}

fn fenced(keys: &Keys, reply: &mut Reply) -> Result<StockError, StockError> {
    Ok(StockError::Fenced {
        segment: keys.segment.clone(),
        fence: reply.parse()?,
    })
}

fn unknown_status(script: &str, status: &str) -> StockError {
    StockError::Unreadable(format!("{script} answered {status:?}"))
}
