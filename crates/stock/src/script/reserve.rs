//! `reserve_home`, `reserve_next` and `reserve_again`: a batch of orders in, a reply for each out.

use domain::EntryId;
use redis::Cmd;

use super::{RESERVE_AGAIN, RESERVE_HOME, RESERVE_NEXT, Transport, column, refusals};
use crate::{
    StockError,
    decision::Decision,
    keys::Keys,
    reply::ReplyReader,
    request::{Gate, Reply, ReserveRequest},
};

/// The reply of a segment to a batch.
#[derive(Debug)]
pub(crate) struct ReserveReply {
    pub now_ms: i64,
    /// Units left after the batch.
    pub available: u64,
    /// The last outbox entry; the batch's own if any order took units.
    pub entry: EntryId,
    /// End of the holds of the orders that took units.
    pub expires_ms: i64,
    /// Replies other than "taken just now", by index of the request.
    pub exceptions: Vec<(usize, Reply)>,
}

/// Reserves at the buyers' home segment. No order id may be in the batch twice.
pub(crate) async fn reserve_home(
    transport: &Transport,
    keys: &Keys,
    batch: &[ReserveRequest],
    deadline_ms: i64,
    margin_ms: i64,
) -> Result<ReserveReply, StockError> {
    let names = [
        &*keys.stock,
        &keys.decisions,
        &keys.buyers,
        &keys.outbox,
        &keys.spillovers,
    ];
    let reply = RESERVE_HOME
        .run(transport, keys, &names, |cmd| {
            cmd.arg(batch.len())
                .arg(deadline_ms)
                .arg(margin_ms)
                .arg(&keys.name);
            ids(cmd, batch);
            column(
                cmd,
                batch.iter().map(|request| request.order.buyer.as_str()),
            );
            quantities_and_packed(cmd, batch);
        })
        .await?;
    let reply = ReplyReader::new(reply)?;
    read(reply, keys, "reserve_home", deadline_ms, |reply| {
        Ok(Gate {
            state: reply.text()?,
            opens_ms: reply.int()?,
            closes_ms: reply.int()?,
        })
    })
}

/// Reserves at a later segment of the ring. No order id may be in the batch twice.
pub(crate) async fn reserve_next(
    transport: &Transport,
    keys: &Keys,
    batch: &[ReserveRequest],
    deadline_ms: i64,
) -> Result<ReserveReply, StockError> {
    let names = [&*keys.stock, &keys.decisions, &keys.outbox];
    let reply = RESERVE_NEXT
        .run(transport, keys, &names, |cmd| {
            cmd.arg(batch.len()).arg(deadline_ms).arg(&keys.name);
            ids(cmd, batch);
            quantities_and_packed(cmd, batch);
        })
        .await?;
    let reply = ReplyReader::new(reply)?;
    let no_gate = |_: &mut ReplyReader| Ok(Gate::default());
    read(reply, keys, "reserve_next", deadline_ms, no_gate)
}

/// Reserves once more, in a later round. No order id may be in the batch twice.
pub(crate) async fn reserve_again(
    transport: &Transport,
    keys: &Keys,
    batch: &[ReserveRequest],
    deadline_ms: i64,
    margin_ms: i64,
) -> Result<ReserveReply, StockError> {
    let names = [
        &*keys.stock,
        &keys.decisions,
        &keys.outbox,
        &keys.spillovers,
    ];
    let reply = RESERVE_AGAIN
        .run(transport, keys, &names, |cmd| {
            cmd.arg(batch.len())
                .arg(deadline_ms)
                .arg(margin_ms)
                .arg(&keys.name);
            ids(cmd, batch);
            quantities_and_packed(cmd, batch);
            column(cmd, batch.iter().map(|request| request.round));
            column(cmd, batch.iter().map(|request| u8::from(request.is_home)));
        })
        .await?;
    let reply = ReplyReader::new(reply)?;
    let no_gate = |_: &mut ReplyReader| Ok(Gate::default());
    read(reply, keys, "reserve_again", deadline_ms, no_gate)
}

fn ids(cmd: &mut Cmd, batch: &[ReserveRequest]) {
    let ids = batch.iter().map(|request| &request.order.id);
    column(cmd, ids.map(|id| &id.as_bytes()[..]));
}

fn quantities_and_packed(cmd: &mut Cmd, batch: &[ReserveRequest]) {
    let orders = || batch.iter().map(|request| &*request.order);
    column(cmd, orders().map(|order| order.quantity.get()));
    column(cmd, orders().map(|order| &*order.packed));
}

fn read(
    mut reply: ReplyReader,
    keys: &Keys,
    script: &str,
    deadline_ms: i64,
    gate: impl Fn(&mut ReplyReader) -> Result<Gate, StockError>,
) -> Result<ReserveReply, StockError> {
    let now_ms = refusals(&mut reply, keys, script)?;
    let _epoch = reply.int()?;
    let (available, entry, expires_ms) = (reply.unsigned()?, reply.parse()?, reply.int()?);
    let gate = gate(&mut reply)?;
    Ok(ReserveReply {
        now_ms,
        available,
        entry,
        expires_ms,
        exceptions: exceptions(reply.list()?, deadline_ms, &gate)?,
    })
}

fn exceptions(
    mut list: ReplyReader,
    deadline_ms: i64,
    gate: &Gate,
) -> Result<Vec<(usize, Reply)>, StockError> {
    let mut exceptions = Vec::new();
    while !list.is_empty() {
        let index = usize::try_from(list.unsigned()?).unwrap_or(usize::MAX);
        let (code, detail) = (list.bytes()?, list.bytes()?);
        let reply = match &*code {
            b"a" => Reply::Decided(Decision::parse(&detail)?),
            b"n" => Reply::NotOpen(gate.clone()),
            b"l" => Reply::LimitReached,
            b"d" => Reply::Declined {
                permit: None,
                deadline_ms,
                // Of the request, which the caller has.
                round: 0,
            },
            b"x" => Reply::Unknown,
            b"s" => Reply::SoldOut,
            _ => {
                return Err(StockError::Unreadable(format!(
                    "expected the code of an exception, found {:?}",
                    String::from_utf8_lossy(&code)
                )));
            }
        };
        exceptions.push((index, reply));
    }
    Ok(exceptions)
}
