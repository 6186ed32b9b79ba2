//! `open_segment`, `set_state`, `inspect`: a segment as a whole.

use domain::{Entry, EntryId, Item, ItemState, SegmentConfig, SegmentKey};
use redis::Cmd;

use super::{INSPECT, OPEN_SEGMENT, SET_STATE, unknown_status};
use crate::{StockError, connection::Connection, keys::Keys, outbox, reply::Reply};

/// What `open_segment` did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opened {
    /// The segment is new.
    New,
    /// It was there already and is as it was.
    Existing,
}

/// Creates the segment with its share of the item's stock.
pub(crate) async fn open_segment(
    connection: &Connection,
    keys: &Keys,
    item: &Item,
) -> Result<Opened, StockError> {
    let names = [
        &*keys.stock,
        &keys.answers,
        &keys.buyers,
        &keys.outbox,
        &keys.walks,
    ];
    let reply = OPEN_SEGMENT
        .run(connection, &names, |cmd| {
            cmd.arg(item.share(keys.segment.segment))
                .arg(limit(&item.into()))
                .arg(item.state.as_str())
                .arg(ms(item.window.opens_at))
                .arg(ms(item.window.closes_at))
                .arg(item.epoch)
                .arg(u64::from(item.hold_seconds) * 1000)
                .arg(item.segments)
                .arg(&keys.name);
        })
        .await?;
    match &*Reply::new(reply)?.text()? {
        "opened" => Ok(Opened::New),
        "exists" => Ok(Opened::Existing),
        status => Err(unknown_status("open_segment", status)),
    }
}

/// 0 is an open end.
fn ms(time: Option<jiff::Timestamp>) -> i64 {
    time.map_or(0, jiff::Timestamp::as_millisecond)
}

/// 0 is no limit.
fn limit(config: &SegmentConfig) -> u32 {
    config.limit_per_buyer.map_or(0, domain::Quantity::get)
}

pub(super) fn limit_and_window(cmd: &mut Cmd, config: &SegmentConfig) {
    cmd.arg(limit(config))
        .arg(ms(config.window.opens_at))
        .arg(ms(config.window.closes_at));
}

/// What `set_state` did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StateSet {
    /// The state is set.
    Set,
    /// It had been set already.
    Same,
    /// The segment has seen a later change.
    Stale,
}

/// Sets the segment's state, limit and window, if their epoch is newer than what it has seen.
pub(crate) async fn set_state(
    connection: &Connection,
    keys: &Keys,
    config: &SegmentConfig,
) -> Result<StateSet, StockError> {
    let reply = SET_STATE
        .run(connection, &[&keys.stock, &keys.outbox], |cmd| {
            cmd.arg(config.state.as_str()).arg(config.epoch);
            limit_and_window(cmd, config);
            cmd.arg(&keys.name);
        })
        .await?;
    match &*Reply::new(reply)?.text()? {
        "set" => Ok(StateSet::Set),
        "same" => Ok(StateSet::Same),
        "stale" => Ok(StateSet::Stale),
        "missing" => Err(StockError::Missing(keys.segment.clone())),
        status => Err(unknown_status("set_state", status)),
    }
}

/// A segment as it was at one moment.
#[derive(Debug, Clone)]
pub struct Inspection {
    /// Which segment.
    pub segment: SegmentKey,
    /// Units that nobody has.
    pub available: u64,
    /// Whether it sells.
    pub state: ItemState,
    /// The item's epoch as the segment has it.
    pub epoch: u64,
    /// The last outbox entry.
    pub last: EntryId,
    /// Units that one buyer may hold; 0 is no limit.
    pub limit: u64,
    /// Number of remembered answers.
    pub answers: u64,
    /// Number of buyers with a count, and of those who gave something back.
    pub buyers: u64,
    /// Number of outbox entries, the anchor included.
    pub outbox: u64,
    /// Number of walks that are not forgotten yet.
    pub walks: u64,
    /// From when on it sells, in milliseconds since 1970; 0 is no start.
    pub opens_ms: i64,
    /// Until when it sells; 0 is no end.
    pub closes_ms: i64,
    /// The highest fencing token that it has seen.
    pub fence: u64,
    /// The fencing token of whoever mends it.
    pub mending: Option<u64>,
    /// Whether answers, counts and walks are those that were written to, and not what somebody began anew after they were lost.
    pub whole: bool,
    /// The entries that were asked for.
    pub entries: Vec<Entry>,
}

impl Inspection {
    /// Whether a change with these settings has come through, and none after it.
    pub fn is_set_as(&self, config: &SegmentConfig) -> bool {
        let has = (
            self.state,
            self.epoch,
            self.limit,
            self.opens_ms,
            self.closes_ms,
        );
        // What Redis has of a time is its milliseconds.
        has == (
            config.state,
            config.epoch,
            u64::from(limit(config)),
            ms(config.window.opens_at),
            ms(config.window.closes_at),
        )
    }
}

/// Which outbox entries to list along.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InspectionEntries {
    /// None.
    None,
    /// Every one.
    All,
    /// This one and every later one.
    From(EntryId),
}

/// Shows the segment.
pub(crate) async fn inspect(
    connection: &Connection,
    keys: &Keys,
    entries: InspectionEntries,
) -> Result<Inspection, StockError> {
    let names = [
        &*keys.stock,
        &keys.answers,
        &keys.buyers,
        &keys.outbox,
        &keys.walks,
    ];
    let from = match entries {
        InspectionEntries::None => String::new(),
        InspectionEntries::All => "-".into(),
        InspectionEntries::From(id) => id.to_string(),
    };
    let mut reply = Reply::new(
        INSPECT
            .run(connection, &names, |cmd| {
                cmd.arg(&from);
            })
            .await?,
    )?;
    match &*reply.text()? {
        "ok" => {}
        "missing" => return Err(StockError::Missing(keys.segment.clone())),
        status => return Err(unknown_status("inspect", status)),
    }
    Ok(Inspection {
        segment: keys.segment.clone(),
        available: reply.unsigned()?,
        state: reply.parse()?,
        epoch: reply.unsigned()?,
        last: reply.parse()?,
        limit: reply.unsigned()?,
        answers: reply.unsigned()?,
        buyers: reply.unsigned()?,
        outbox: reply.unsigned()?,
        walks: reply.unsigned()?,
        opens_ms: reply.int()?,
        closes_ms: reply.int()?,
        fence: reply.parse()?,
        mending: reply.text()?.parse().ok(),
        whole: reply.unsigned()? == 1,
        entries: outbox::decode_entries(reply.list()?)?,
    })
}
