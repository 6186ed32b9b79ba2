//! One typed call per file in `lua/`.

mod archive;
mod check;
mod open;
mod release;
mod repair;
mod reserve;
mod spillover;
mod transfer;
mod transport;

use std::sync::LazyLock;

use redis::{Cmd, ErrorKind, ServerErrorKind, Value};

use crate::{
    StockError,
    connection::{Carrier, Connection},
    keys::Keys,
    reply::ReplyReader,
};

pub(crate) use archive::archive_segment;
pub use check::OffHomeOrder;
pub(crate) use check::{check_home, mark_checked};
pub use open::{Inspection, InspectionEntries, Opened, StateSet};
pub(crate) use open::{inspect, open_segment, set_state};
pub(crate) use release::{release, release_count};
pub use repair::{Adjusted, OldMemory};
pub(crate) use repair::{
    Adjustment, Batch, Restored, RestoredDecision, adjust, halt_segment, restore_orders,
};
pub(crate) use reserve::{ReserveReply, reserve_again, reserve_home, reserve_next};
pub(crate) use spillover::{
    DueSpillover, due_spillovers, finish_spillover, forget_declined, forget_spillover,
    reopen_spillover,
};
pub(crate) use transfer::{settle_transfers, transfer_in, transfer_out};
pub(crate) use transport::Transport;

/// A file of `lua/`.
pub(crate) struct Script {
    pub name: &'static str,
    source: &'static str,
    sha: String,
}

macro_rules! scripts {
    ($($constant:ident = $name:literal),+ $(,)?) => {
        $(static $constant: LazyLock<Script> = LazyLock::new(|| {
            Script::new($name, include_str!(concat!("../../../lua/", $name, ".lua")))
        });)+

        /// Every script, to load them before the first order comes.
        static ALL: &[&LazyLock<Script>] = &[$(&$constant),+];
    };
}

scripts! {
    ADJUST = "adjust",
    ARCHIVE_SEGMENT = "archive_segment",
    CHECK_HOME = "check_home",
    DUE_SPILLOVERS = "due_spillovers",
    FINISH_SPILLOVER = "finish_spillover",
    FORGET_DECLINED = "forget_declined",
    FORGET_SPILLOVER = "forget_spillover",
    HALT_SEGMENT = "halt_segment",
    INSPECT = "inspect",
    MARK_CHECKED = "mark_checked",
    OPEN_SEGMENT = "open_segment",
    RELEASE = "release",
    RELEASE_COUNT = "release_count",
    REOPEN_SPILLOVER = "reopen_spillover",
    RESERVE_AGAIN = "reserve_again",
    RESERVE_HOME = "reserve_home",
    RESERVE_NEXT = "reserve_next",
    RESTORE_ORDERS = "restore_orders",
    SETTLE_TRANSFERS = "settle_transfers",
    SET_STATE = "set_state",
    TRANSFER_IN = "transfer_in",
    TRANSFER_OUT = "transfer_out",
}

impl Script {
    fn new(name: &'static str, source: &'static str) -> Self {
        let source = domain::script_source(name, source);
        Self {
            name,
            source,
            sha: redis::Script::new(source).get_hash().to_owned(),
        }
    }

    /// Runs the script on the `names` among `keys`. A server that does not have it has run nothing;
    /// the same call carries the source then, and the server keeps it.
    async fn run(
        &self,
        carrier: &impl Carrier,
        keys: &Keys,
        names: &[&str],
        arguments: impl Fn(&mut Cmd),
    ) -> Result<Value, StockError> {
        let by_hash = self.command("EVALSHA", &self.sha, names, &arguments);
        match carrier.carry(by_hash, keys).await {
            Err(StockError::Redis(error))
                if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) =>
            {
                // A server that restarted, or that a failover has promoted.
                tracing::debug!(
                    script = self.name,
                    "script not cached by the server, sending it"
                );
                let by_source = self.command("EVAL", self.source, names, &arguments);
                carrier.carry(by_source, keys).await
            }
            result => result,
        }
    }

    fn command(
        &self,
        verb: &str,
        script: &str,
        names: &[&str],
        arguments: &impl Fn(&mut Cmd),
    ) -> Cmd {
        let mut cmd = redis::cmd(verb);
        cmd.arg(script).arg(names.len()).arg(names);
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

/// Turns the statuses by which a segment refuses a change into errors. Returns the server's clock.
fn refusals(reply: &mut ReplyReader, keys: &Keys, script: &str) -> Result<i64, StockError> {
    let status = reply.text()?;
    match &*status {
        "ok" => reply.int(),
        "late" => Err(StockError::Late {
            now_ms: reply.int()?,
        }),
        "missing" => Err(StockError::Missing(keys.segment.clone())),
        "repairing" => Err(StockError::Repairing(keys.segment.clone())),
        "fenced" => {
            let _now_ms = reply.int()?;
            Err(fenced(keys, reply)?)
        }
        status => Err(unknown_status(script, status)),
    }
}

fn fenced(keys: &Keys, reply: &mut ReplyReader) -> Result<StockError, StockError> {
    Ok(StockError::Fenced {
        segment: keys.segment.clone(),
        fence: reply.parse()?,
    })
}

fn unknown_status(script: &str, status: &str) -> StockError {
    StockError::Unreadable(format!(
        "script {script} replied with the status {status:?}"
    ))
}
