//! `finish_walk`, `due_walks`, `forget_passes`, `forget_walk`: how walks end and are forgotten.

use domain::{OrderId, TakenOrder};

use super::{DUE_WALKS, FINISH_WALK, FORGET_PASSES, FORGET_WALK, column, refusals};
use crate::{
    Answer, StockError, connection::Connection, keys::Keys, outbox, reply::Reply, script::Asked,
};

/// How a walk ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WalkEnd {
    SoldOut,
    Elsewhere { expires_ms: i64, segment: u16 },
}

impl WalkEnd {
    fn outcome(self) -> &'static str {
        match self {
            Self::SoldOut => "S",
            Self::Elsewhere { .. } => "E",
        }
    }

    fn place(self) -> String {
        match self {
            Self::SoldOut => String::new(),
            Self::Elsewhere {
                expires_ms,
                segment,
            } => format!("{expires_ms}:{segment}"),
        }
    }
}

/// A walk and how it ended.
pub(crate) struct FinishedWalk<'a> {
    pub asked: &'a Asked,
    pub end: WalkEnd,
}

/// Makes the walks final at home. Returns how many were not final yet.
pub(crate) async fn finish_walk(
    connection: &Connection,
    keys: &Keys,
    deadline_ms: i64,
    margin_ms: i64,
    walks: &[FinishedWalk<'_>],
) -> Result<u64, StockError> {
    let reply = FINISH_WALK
        .run(
            connection,
            &[&keys.stock, &keys.answers, &keys.buyers, &keys.walks],
            |cmd| {
                cmd.arg(walks.len()).arg(deadline_ms).arg(margin_ms);
                column(cmd, walks.iter().map(|walk| &walk.asked.id.as_bytes()[..]));
                column(cmd, walks.iter().map(|walk| walk.asked.buyer.as_str()));
                column(cmd, walks.iter().map(|walk| &*walk.asked.packed));
                column(cmd, walks.iter().map(|walk| walk.end.outcome()));
                column(cmd, walks.iter().map(|walk| walk.end.place()));
            },
        )
        .await?;
    let mut reply = Reply::new(reply)?;
    refusals(&mut reply, keys, "finish_walk")?;
    reply.unsigned()
}

/// A walk that somebody has to see to.
#[derive(Debug)]
pub(crate) struct DueWalk {
    pub order: TakenOrder,
    /// The list's own form of it.
    pub packed: Vec<u8>,
    /// When it fell due, in Redis milliseconds.
    pub due_ms: i64,
    /// What home says of it.
    pub answer: Option<Answer>,
}

/// The walks from this home that are due, `at_most` of them, without the first `skip`.
pub(crate) async fn due_walks(
    connection: &Connection,
    keys: &Keys,
    at_most: usize,
    skip: usize,
) -> Result<Vec<DueWalk>, StockError> {
    let reply = DUE_WALKS
        .run(connection, &[&keys.answers, &keys.walks], |cmd| {
            cmd.arg(at_most).arg(skip);
        })
        .await?;
    let mut reply = Reply::new(reply)?;
    let _now_ms = reply.int()?;
    let mut list = reply.list()?;
    let mut walks = Vec::new();
    while !list.is_empty() {
        let (packed, due_ms, answer) = (list.bytes()?, list.int()?, list.bytes()?);
        let (order, _) = outbox::unpack(&packed)
            .ok_or_else(|| StockError::Unreadable(format!("the walk {packed:?}")))?;
        let answer = if answer.is_empty() {
            None
        } else {
            Some(Answer::parse(&answer)?)
        };
        walks.push(DueWalk {
            order,
            packed,
            due_ms,
            answer,
        });
    }
    Ok(walks)
}

/// Drops what segments other than home remember of final walks: `passed` records up to the given deadlines.
pub(crate) async fn forget_passes(
    connection: &Connection,
    keys: &Keys,
    walks: &[(OrderId, i64)],
) -> Result<(), StockError> {
    FORGET_PASSES
        .run(connection, &[&keys.answers], |cmd| {
            cmd.arg(walks.len());
            column(cmd, walks.iter().map(|(id, _)| &id.as_bytes()[..]));
            column(cmd, walks.iter().map(|(_, until_ms)| *until_ms));
        })
        .await?;
    Ok(())
}

/// Forgets final walks at home, as they were listed. Returns how many.
pub(crate) async fn forget_walk(
    connection: &Connection,
    keys: &Keys,
    walks: &[&DueWalk],
) -> Result<u64, StockError> {
    let reply = FORGET_WALK
        .run(connection, &[&keys.answers, &keys.walks], |cmd| {
            cmd.arg(walks.len());
            column(cmd, walks.iter().map(|walk| &walk.order.id.as_bytes()[..]));
            column(cmd, walks.iter().map(|walk| &*walk.packed));
            column(cmd, walks.iter().map(|walk| walk.due_ms));
        })
        .await?;
    let mut reply = Reply::new(reply)?;
    let _now_ms = reply.int()?;
    reply.unsigned()
}
