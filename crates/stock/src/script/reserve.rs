//! `reserve_home`, `reserve_next` and `reserve_again`: a batch of orders in, a reply for each out.

use domain::EntryId;
use redis::Cmd;

use super::{RESERVE_AGAIN, RESERVE_HOME, RESERVE_NEXT, Transport, column, refusals};
use crate::{
    StockError,
    connection::Carrier,
    decision::Decision,
    keys::Keys,
    reply::ReplyReader,
    request::{Gate, Reply, ReserveRequest},
};

/// In place of the quantity of a batch whose orders have several.
const QUANTITIES_DIFFER: u32 = 0;

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
    /// The price of a unit for the orders that took units. `None`: the item's first one.
    pub price: Option<u64>,
    /// Replies other than "taken just now", by index of the request.
    pub exceptions: Vec<(usize, Reply)>,
}

/// Reserves at the buyers' home segment. No order id may be in the batch twice.
pub(crate) async fn reserve_home(
    carrier: &impl Carrier,
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
        .run(carrier, keys, &names, |cmd| {
            cmd.arg(batch.len())
                .arg(deadline_ms)
                .arg(margin_ms)
                .arg(&keys.name);
            orders(cmd, batch);
            column(
                cmd,
                batch.iter().map(|request| request.order.buyer.as_str()),
            );
        })
        .await?;
    read(ReplyReader::new(reply)?, keys, "reserve_home", deadline_ms)
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
            orders(cmd, batch);
        })
        .await?;
    read(ReplyReader::new(reply)?, keys, "reserve_next", deadline_ms)
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
            orders(cmd, batch);
            column(cmd, batch.iter().map(|request| request.round));
            column(cmd, batch.iter().map(|request| u8::from(request.is_home)));
        })
        .await?;
    read(ReplyReader::new(reply)?, keys, "reserve_again", deadline_ms)
}

/// What every reservation carries: the quantity if it is the same for all, the packed orders as one
/// argument, and a column of their ids.
fn orders(cmd: &mut Cmd, batch: &[ReserveRequest]) {
    let orders = || batch.iter().map(|request| &*request.order);
    let mut quantities = orders().map(|order| order.quantity.get());
    let first = quantities.next().unwrap_or(QUANTITIES_DIFFER);
    let quantity = if quantities.all(|quantity| quantity == first) {
        first
    } else {
        QUANTITIES_DIFFER
    };
    let bytes = orders().map(|order| order.packed.len()).sum();
    let mut packed = Vec::with_capacity(bytes);
    for order in orders() {
        packed.extend_from_slice(&order.packed);
    }
    cmd.arg(quantity).arg(packed);
    column(cmd, orders().map(|order| &order.id.as_bytes()[..]));
}

fn read(
    mut reply: ReplyReader,
    keys: &Keys,
    script: &str,
    deadline_ms: i64,
) -> Result<ReserveReply, StockError> {
    Ok(ReserveReply {
        now_ms: refusals(&mut reply, keys, script)?,
        available: reply.unsigned()?,
        entry: reply.parse()?,
        expires_ms: reply.int()?,
        price: price(&reply.text()?)?,
        exceptions: exceptions(reply, deadline_ms)?,
    })
}

/// Empty is no price.
fn price(text: &str) -> Result<Option<u64>, StockError> {
    match text {
        "" => Ok(None),
        text => text
            .parse()
            .map(Some)
            .map_err(|_| unexpected("a price", text.as_bytes())),
    }
}

fn exceptions(mut reply: ReplyReader, deadline_ms: i64) -> Result<Vec<(usize, Reply)>, StockError> {
    let mut exceptions = Vec::new();
    while !reply.is_empty() {
        let index = usize::try_from(reply.unsigned()?).unwrap_or(usize::MAX);
        let (code, detail) = (reply.bytes()?, reply.bytes()?);
        let exception = match &*code {
            b"a" => Reply::Decided(Decision::parse(&detail)?),
            b"n" => Reply::NotOpen(gate(&detail)?),
            b"l" => Reply::LimitReached,
            b"d" => Reply::Declined {
                permit: None,
                deadline_ms,
                // Of the request, which the caller has.
                round: 0,
            },
            b"x" => Reply::Unknown,
            b"s" => Reply::SoldOut,
            _ => return Err(unexpected("the code of an exception", &code)),
        };
        exceptions.push((index, exception));
    }
    Ok(exceptions)
}

/// Reads `STATE:OPENS_MS:CLOSES_MS`.
fn gate(detail: &[u8]) -> Result<Gate, StockError> {
    let read = || {
        let mut parts = std::str::from_utf8(detail).ok()?.split(':');
        Some(Gate {
            state: parts.next()?.to_owned(),
            opens_ms: parts.next()?.parse().ok()?,
            closes_ms: parts.next()?.parse().ok()?,
        })
    };
    read().ok_or_else(|| unexpected("a state and a window", detail))
}

fn unexpected(expected: &str, found: &[u8]) -> StockError {
    let found = String::from_utf8_lossy(found);
    StockError::Unreadable(format!("expected {expected}, found {found:?}"))
}
