//! `finish_spillover`, `reopen_spillover`, `due_spillovers`, `forget_declined`, `forget_spillover`:
//! how spillovers end, go on, and are forgotten.

use domain::{OrderId, TakenOrder};

use super::{
    DUE_SPILLOVERS, FINISH_SPILLOVER, FORGET_DECLINED, FORGET_SPILLOVER, REOPEN_SPILLOVER,
    Transport, column, refusals,
};
use crate::{
    StockError,
    connection::Connection,
    decision::Decision,
    keys::Keys,
    outbox,
    reply::ReplyReader,
    request::{FinishRequest, PackedOrder, SpilloverEnd},
};

impl SpilloverEnd {
    fn outcome(self) -> &'static str {
        match self {
            Self::SoldOut { .. } => "S",
            Self::GivenUp { .. } => "N",
            Self::Elsewhere { .. } => "E",
        }
    }

    fn place(self) -> String {
        match self {
            Self::SoldOut { round } | Self::GivenUp { round } => round.to_string(),
            Self::Elsewhere {
                expires_ms,
                segment,
            } => format!("{expires_ms}:{segment}"),
        }
    }
}

/// Makes the spillovers final at home. Returns what home says of each afterwards.
pub(crate) async fn finish_spillover(
    connection: &Connection,
    keys: &Keys,
    deadline_ms: i64,
    margin_ms: i64,
    batch: &[FinishRequest],
) -> Result<Vec<Option<Decision>>, StockError> {
    let names = [
        &*keys.stock,
        &keys.decisions,
        &keys.buyers,
        &keys.spillovers,
    ];
    let reply = FINISH_SPILLOVER
        .run(connection, keys, &names, |cmd| {
            cmd.arg(batch.len()).arg(deadline_ms).arg(margin_ms);
            let orders = || batch.iter().map(|request| &*request.order);
            column(cmd, orders().map(|order| &order.id.as_bytes()[..]));
            column(cmd, orders().map(|order| order.buyer.as_str()));
            column(cmd, orders().map(|order| &*order.packed));
            column(cmd, batch.iter().map(|request| request.end.outcome()));
            column(cmd, batch.iter().map(|request| request.end.place()));
        })
        .await?;
    let mut reply = ReplyReader::new(reply)?;
    refusals(&mut reply, keys, "finish_spillover")?;
    let _changed = reply.unsigned()?;
    let (mut list, mut decisions) = (reply.list()?, Vec::with_capacity(batch.len()));
    while !list.is_empty() {
        decisions.push(stored(&list.bytes()?)?);
    }
    Ok(decisions)
}

/// Reopens an order that home has given up, in the next round. Returns what home says afterwards;
/// an order that is still given up would raise its buyer above the limit.
pub(crate) async fn reopen_spillover(
    transport: &Transport,
    keys: &Keys,
    order: &PackedOrder,
    deadline_ms: i64,
) -> Result<Option<Decision>, StockError> {
    let names = [
        &*keys.stock,
        &keys.decisions,
        &keys.buyers,
        &keys.spillovers,
    ];
    let reply = REOPEN_SPILLOVER
        .run(transport, keys, &names, |cmd| {
            cmd.arg(deadline_ms)
                .arg(&order.id.as_bytes()[..])
                .arg(order.buyer.as_str())
                .arg(order.quantity.get())
                .arg(&*order.packed);
        })
        .await?;
    let mut reply = ReplyReader::new(reply)?;
    refusals(&mut reply, keys, "reopen_spillover")?;
    stored(&reply.bytes()?)
}

/// A pending spillover that has fallen due.
#[derive(Debug)]
pub(crate) struct DueSpillover {
    pub order: TakenOrder,
    /// The order as it stands in the list.
    pub packed: Vec<u8>,
    /// When it fell due, in Redis milliseconds.
    pub due_ms: i64,
    /// Home's decision on it.
    pub decision: Option<Decision>,
}

/// The spillovers from this home that are due: `at_most` of them, without the first `skip`.
pub(crate) async fn due_spillovers(
    connection: &Connection,
    keys: &Keys,
    at_most: usize,
    skip: usize,
) -> Result<Vec<DueSpillover>, StockError> {
    let names = [&*keys.decisions, &keys.spillovers];
    let reply = DUE_SPILLOVERS
        .run(connection, keys, &names, |cmd| {
            cmd.arg(at_most).arg(skip);
        })
        .await?;
    let mut reply = ReplyReader::new(reply)?;
    let _now_ms = reply.int()?;
    let mut list = reply.list()?;
    let mut spillovers = Vec::new();
    while !list.is_empty() {
        let (packed, due_ms, decision) = (list.bytes()?, list.int()?, list.bytes()?);
        let (order, _) = outbox::unpack(&packed).ok_or_else(|| {
            StockError::Unreadable(format!("expected a packed order, found {packed:?}"))
        })?;
        let decision = stored(&decision)?;
        spillovers.push(DueSpillover {
            order,
            packed,
            due_ms,
            decision,
        });
    }
    Ok(spillovers)
}

/// `` is no decision.
fn stored(decision: &[u8]) -> Result<Option<Decision>, StockError> {
    let decision = (!decision.is_empty()).then(|| Decision::parse(decision));
    decision.transpose()
}

/// Drops the `declined` records of final spillovers at a segment other than home, up to the given
/// deadlines.
pub(crate) async fn forget_declined(
    connection: &Connection,
    keys: &Keys,
    spillovers: &[(OrderId, i64)],
) -> Result<(), StockError> {
    let names = [&*keys.decisions];
    FORGET_DECLINED
        .run(connection, keys, &names, |cmd| {
            cmd.arg(spillovers.len());
            column(cmd, spillovers.iter().map(|(id, _)| &id.as_bytes()[..]));
            column(cmd, spillovers.iter().map(|(_, until_ms)| *until_ms));
        })
        .await?;
    Ok(())
}

/// Forgets final spillovers at home, as they were listed. Returns how many.
pub(crate) async fn forget_spillover(
    connection: &Connection,
    keys: &Keys,
    spillovers: &[&DueSpillover],
) -> Result<u64, StockError> {
    let names = [&*keys.decisions, &keys.spillovers];
    let reply = FORGET_SPILLOVER
        .run(connection, keys, &names, |cmd| {
            cmd.arg(spillovers.len());
            let ids = spillovers.iter().map(|spillover| &spillover.order.id);
            column(cmd, ids.map(|id| &id.as_bytes()[..]));
            column(cmd, spillovers.iter().map(|spillover| &*spillover.packed));
            column(cmd, spillovers.iter().map(|spillover| spillover.due_ms));
        })
        .await?;
    let mut reply = ReplyReader::new(reply)?;
    let _now_ms = reply.int()?;
    reply.unsigned()
}
