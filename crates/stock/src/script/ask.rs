//! `ask_home` and `ask_next`: a batch of orders in, an answer for each out.

use domain::{BuyerId, EntryId, OrderId, Quantity};
use redis::Cmd;

use super::{ASK_HOME, ASK_NEXT, Asks, column, refusals};
use crate::{Answer, StockError, keys::Keys, outbox, reply::Reply};

/// What an order asks for, in the forms in which the scripts want it.
#[derive(Debug)]
pub(crate) struct Asked {
    pub id: OrderId,
    pub buyer: BuyerId,
    pub quantity: Quantity,
    pub packed: Box<[u8]>,
}

impl Asked {
    pub(crate) fn new(id: OrderId, buyer: BuyerId, quantity: Quantity) -> Self {
        let packed = outbox::pack(&id, &buyer, quantity);
        Self {
            id,
            buyer,
            quantity,
            packed,
        }
    }
}

/// A batch for one segment. No order id may be in it twice.
pub(crate) struct AskBatch<'a> {
    pub asked: Vec<&'a Asked>,
    /// Redis milliseconds after which the batch is refused.
    pub deadline_ms: i64,
}

/// What the segment answered.
#[derive(Debug)]
pub(crate) struct AskReply {
    pub now_ms: i64,
    /// Units left after the batch.
    pub available: u64,
    /// The last outbox entry; the batch's own if anything was taken.
    pub entry: EntryId,
    /// When the holds of what was taken are over.
    pub expires_ms: i64,
    /// Why the segment might not be selling. Only home says it.
    pub gate: Gate,
    /// By index: everything but "taken".
    pub exceptions: Vec<(usize, Exception)>,
}

/// Whether and when an item sells, as a segment has it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Gate {
    pub state: String,
    pub opens_ms: i64,
    pub closes_ms: i64,
}

/// An answer other than "taken just now".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exception {
    Answered(Answer),
    NotOpen,
    LimitReached,
    Passed,
    SoldOut,
}

/// Asks at home.
pub(crate) async fn ask_home(
    asks: &Asks,
    keys: &Keys,
    batch: &AskBatch<'_>,
    margin_ms: i64,
) -> Result<AskReply, StockError> {
    let names = [
        &*keys.stock,
        &keys.answers,
        &keys.buyers,
        &keys.outbox,
        &keys.walks,
    ];
    let reply = ASK_HOME
        .ask(asks, &names, &keys.answers, |cmd| {
            cmd.arg(batch.asked.len())
                .arg(batch.deadline_ms)
                .arg(margin_ms)
                .arg(&keys.name);
            ids(cmd, batch);
            column(cmd, batch.asked.iter().map(|asked| asked.buyer.as_str()));
            quantities_and_packed(cmd, batch);
        })
        .await?;
    read(Reply::new(reply)?, keys, "ask_home", |reply| {
        Ok(Gate {
            state: reply.text()?,
            opens_ms: reply.int()?,
            closes_ms: reply.int()?,
        })
    })
}

/// Asks at a later segment of the ring.
pub(crate) async fn ask_next(
    asks: &Asks,
    keys: &Keys,
    batch: &AskBatch<'_>,
) -> Result<AskReply, StockError> {
    let names = [&*keys.stock, &keys.answers, &keys.outbox];
    let reply = ASK_NEXT
        .ask(asks, &names, &keys.answers, |cmd| {
            cmd.arg(batch.asked.len())
                .arg(batch.deadline_ms)
                .arg(&keys.name);
            ids(cmd, batch);
            quantities_and_packed(cmd, batch);
        })
        .await?;
    read(
        Reply::new(reply)?,
        keys,
        "ask_next",
        |_| Ok(Gate::default()),
    )
}

fn ids(cmd: &mut Cmd, batch: &AskBatch<'_>) {
    column(
        cmd,
        batch.asked.iter().map(|asked| &asked.id.as_bytes()[..]),
    );
}

fn quantities_and_packed(cmd: &mut Cmd, batch: &AskBatch<'_>) {
    column(cmd, batch.asked.iter().map(|asked| asked.quantity.get()));
    column(cmd, batch.asked.iter().map(|asked| &*asked.packed));
}

fn read(
    mut reply: Reply,
    keys: &Keys,
    script: &str,
    gate: impl Fn(&mut Reply) -> Result<Gate, StockError>,
) -> Result<AskReply, StockError> {
    let now_ms = refusals(&mut reply, keys, script)?;
    let _epoch = reply.int()?;
    Ok(AskReply {
        now_ms,
        available: reply.unsigned()?,
        entry: reply.parse()?,
        expires_ms: reply.int()?,
        gate: gate(&mut reply)?,
        exceptions: exceptions(reply.list()?)?,
    })
}

fn exceptions(mut list: Reply) -> Result<Vec<(usize, Exception)>, StockError> {
    let mut exceptions = Vec::new();
    while !list.is_empty() {
        let index = usize::try_from(list.unsigned()?).unwrap_or(usize::MAX);
        let (code, detail) = (list.bytes()?, list.bytes()?);
        let exception = match &*code {
            b"a" => Exception::Answered(Answer::parse(&detail)?),
            b"n" => Exception::NotOpen,
            b"l" => Exception::LimitReached,
            b"p" => Exception::Passed,
            b"s" => Exception::SoldOut,
            _ => {
                return Err(StockError::Unreadable(format!(
                    "the exception {:?}",
                    String::from_utf8_lossy(&code)
                )));
            }
        };
        exceptions.push((index, exception));
    }
    Ok(exceptions)
}
