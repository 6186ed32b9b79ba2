//! `open_segment`, `set_state`, `inspect`: a segment as a whole.

use domain::{Entry, EntryId, Item, ItemState, SegmentConfig, SegmentKey};
use redis::Cmd;

use super::{INSPECT, OPEN_SEGMENT, SET_STATE, unknown_status};
use crate::{
    StockError,
    connection::{Carrier, Connection},
    keys::Keys,
    outbox,
    reply::ReplyReader,
};

/// The result of `open_segment`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opened {
    /// The segment is new.
    New,
    /// The segment existed already and is unchanged.
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
        &keys.decisions,
        &keys.buyers,
        &keys.outbox,
        &keys.spillovers,
    ];
    let reply = OPEN_SEGMENT
        .run(connection, keys, &names, |cmd| {
            cmd.arg(item.share(keys.segment.segment))
                .arg(limit(&item.into()))
                .arg(item.state.as_str())
                .arg(ms(item.window.opens_at))
                .arg(ms(item.window.closes_at))
                .arg(item.epoch)
                .arg(u64::from(item.hold_seconds) * 1000)
                .arg(item.segments)
                .arg(&keys.name)
                .arg(price(&item.into()));
        })
        .await?;
    match &*ReplyReader::new(reply)?.text()? {
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

/// Empty is the item's first price.
pub(super) fn price(config: &SegmentConfig) -> String {
    let price = config.price.map(|price| price.to_string());
    price.unwrap_or_default()
}

pub(super) fn limit_and_window(cmd: &mut Cmd, config: &SegmentConfig) {
    cmd.arg(limit(config))
        .arg(ms(config.window.opens_at))
        .arg(ms(config.window.closes_at));
}

/// The result of `set_state`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StateSet {
    /// The state is set.
    Set,
    /// The segment already had this epoch.
    Same,
    /// The segment has a later epoch.
    Stale,
}

/// Sets the segment's state, limit, window and price, if their epoch is newer than the segment's.
pub(crate) async fn set_state(
    connection: &Connection,
    keys: &Keys,
    config: &SegmentConfig,
) -> Result<StateSet, StockError> {
    let names = [&*keys.stock, &keys.outbox];
    let reply = SET_STATE
        .run(connection, keys, &names, |cmd| {
            cmd.arg(config.state.as_str()).arg(config.epoch);
            limit_and_window(cmd, config);
            cmd.arg(&keys.name).arg(price(config));
        })
        .await?;
    match &*ReplyReader::new(reply)?.text()? {
        "set" => Ok(StateSet::Set),
        "same" => Ok(StateSet::Same),
        "stale" => Ok(StateSet::Stale),
        "missing" => Err(StockError::Missing(keys.segment.clone())),
        status => Err(unknown_status("set_state", status)),
    }
}

/// A snapshot of a segment.
#[derive(Debug, Clone)]
pub struct Inspection {
    /// The segment.
    pub segment: SegmentKey,
    /// Free units.
    pub available: u64,
    /// Whether it sells.
    pub state: ItemState,
    /// The item's epoch in the segment.
    pub epoch: u64,
    /// The last outbox entry.
    pub last: EntryId,
    /// The last entry by which units came in.
    pub gained: EntryId,
    /// Units that have left for another segment, or for none, and are not known to have arrived.
    pub leaving: u64,
    /// The last entry by which units left.
    pub left: EntryId,
    /// Units that one buyer may hold; 0 is no limit.
    pub limit: u64,
    /// Number of stored decisions.
    pub decisions: u64,
    /// Number of buyers with a count, and of marks of those who released something.
    pub buyers: u64,
    /// Number of outbox entries, the anchor included.
    pub outbox: u64,
    /// Number of pending spillovers: those that are not forgotten yet.
    pub spillovers: u64,
    /// Start of the window, in milliseconds since 1970; 0 is no start.
    pub opens_ms: i64,
    /// End of the window; 0 is no end.
    pub closes_ms: i64,
    /// The price of a unit for orders to come. `None`: the item's first one.
    pub price: Option<u64>,
    /// The highest fencing token that the segment has seen.
    pub fence: u64,
    /// The fencing token of the repairer that has halted it.
    pub repairing: Option<u64>,
    /// Whether decisions, counts and spillovers are those that were written to, and not recreated
    /// after a loss.
    pub whole: bool,
    /// The server's history, its replication id: a failover and a restart begin another one. Empty
    /// with [`InspectionEntries::None`].
    pub history: String,
    /// The history in which home's decisions were last found complete. Empty without a mark, and
    /// with [`InspectionEntries::None`].
    pub checked: String,
    /// The entries that were requested, up to `last`.
    pub entries: Vec<Entry>,
}

impl Inspection {
    /// Whether the segment has these settings, and none of a later change.
    pub fn is_set_as(&self, config: &SegmentConfig) -> bool {
        let has = (
            self.state,
            self.epoch,
            self.limit,
            self.opens_ms,
            self.closes_ms,
            self.price,
        );
        // Redis keeps the milliseconds of a time.
        has == (
            config.state,
            config.epoch,
            u64::from(limit(config)),
            ms(config.window.opens_at),
            ms(config.window.closes_at),
            config.price,
        )
    }

    /// A snapshot without values, to be filled from the script's fields.
    fn empty(segment: SegmentKey) -> Self {
        Self {
            segment,
            available: 0,
            state: ItemState::Paused,
            epoch: 0,
            last: EntryId { ms: 0, seq: 0 },
            gained: EntryId { ms: 0, seq: 0 },
            leaving: 0,
            left: EntryId { ms: 0, seq: 0 },
            limit: 0,
            decisions: 0,
            buyers: 0,
            outbox: 0,
            spillovers: 0,
            opens_ms: 0,
            closes_ms: 0,
            price: None,
            fence: 0,
            repairing: None,
            whole: false,
            history: String::new(),
            checked: String::new(),
            entries: Vec::new(),
        }
    }

    /// Takes in the next field: its name, then its value.
    fn read_field(&mut self, reply: &mut ReplyReader) -> Result<(), StockError> {
        match &*reply.text()? {
            "available" => self.available = reply.unsigned()?,
            "state" => self.state = reply.parse()?,
            "epoch" => self.epoch = reply.unsigned()?,
            "last" => self.last = reply.parse()?,
            "gained" => self.gained = reply.parse()?,
            "leaving" => self.leaving = reply.unsigned()?,
            "left" => self.left = reply.parse()?,
            "limit" => self.limit = reply.unsigned()?,
            "decisions" => self.decisions = reply.unsigned()?,
            "buyers" => self.buyers = reply.unsigned()?,
            "outbox" => self.outbox = reply.unsigned()?,
            "spillovers" => self.spillovers = reply.unsigned()?,
            "opens_ms" => self.opens_ms = reply.int()?,
            "closes_ms" => self.closes_ms = reply.int()?,
            "price" => self.price = reply.text()?.parse().ok(),
            "fence" => self.fence = reply.parse()?,
            "repairing" => self.repairing = reply.text()?.parse().ok(),
            "whole" => self.whole = reply.unsigned()? == 1,
            "history" => self.history = reply.text()?,
            "checked" => self.checked = reply.text()?,
            "entries" => self.entries = outbox::decode_entries(reply.list()?)?,
            name => {
                return Err(StockError::Unreadable(format!(
                    "expected a field of an inspection, found {name:?}"
                )));
            }
        }
        Ok(())
    }
}

/// Number of fields that `inspect` returns.
const INSPECTION_FIELDS: usize = 21;

/// Which outbox entries an inspection lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InspectionEntries {
    /// No entry, and not the server's history either.
    None,
    /// No entry.
    History,
    /// Every entry.
    All,
    /// This entry and every later one.
    From(EntryId),
}

/// Takes a snapshot of the segment, with up to `at_most` entries.
pub(crate) async fn inspect(
    carrier: &impl Carrier,
    keys: &Keys,
    entries: InspectionEntries,
    at_most: usize,
) -> Result<Inspection, StockError> {
    let names = [
        &*keys.stock,
        &keys.decisions,
        &keys.buyers,
        &keys.outbox,
        &keys.spillovers,
    ];
    let from = match entries {
        InspectionEntries::None => String::new(),
        InspectionEntries::History => "+".into(),
        InspectionEntries::All => "-".into(),
        InspectionEntries::From(id) => id.to_string(),
    };
    let reply = INSPECT
        .run(carrier, keys, &names, |cmd| {
            cmd.arg(&from).arg(at_most);
        })
        .await?;
    let mut reply = ReplyReader::new(reply)?;
    match &*reply.text()? {
        "ok" => {}
        "missing" => return Err(StockError::Missing(keys.segment.clone())),
        status => return Err(unknown_status("inspect", status)),
    }
    let mut inspection = Inspection::empty(keys.segment.clone());
    for _ in 0..INSPECTION_FIELDS {
        inspection.read_field(&mut reply)?;
    }
    Ok(inspection)
}
