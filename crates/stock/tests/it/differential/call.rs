//! One call of a script, with everything that it carries, and its form on the wire.

use super::segment::Decision;

/// The keys of a segment, as `lua/` has them: a letter each.
const KEYS: [(char, &str); 5] = [
    ('s', "stock"),
    ('a', "decisions"),
    ('b', "buyers"),
    ('o', "outbox"),
    ('w', "spillovers"),
];

macro_rules! scripts {
    ($($name:literal takes $keys:literal),+ $(,)?) => {
        /// Name, source, and letters of the keys.
        pub const SCRIPTS: &[(&str, &str, &str)] =
            &[$(($name, include_str!(concat!("../../../../../lua/", $name, ".lua")), $keys)),+];
    };
}

scripts! {
    "adjust" takes "so",
    "reserve_home" takes "sabow",
    "reserve_next" takes "sao",
    "reserve_again" takes "saow",
    "check_home" takes "sa",
    "due_spillovers" takes "aw",
    "finish_spillover" takes "sabw",
    "reopen_spillover" takes "sabw",
    "forget_declined" takes "a",
    "forget_spillover" takes "aw",
    "release_count" takes "sabw",
    "halt_segment" takes "sabow",
    "inspect" takes "sabow",
    "mark_checked" takes "s",
    "open_segment" takes "sabow",
    "release" takes "sabo",
    "restore_orders" takes "sabw",
    "set_state" takes "so",
    "settle_transfers" takes "s",
    "transfer_in" takes "sao",
    "transfer_out" takes "sao",
}

/// Which batch of what is released it is: the entry that was looked at, and how many there were
/// since the halt, with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    pub last: String,
    pub step: u64,
}

/// Sixteen bytes: an order's, or a transfer's.
pub type Id = [u8; 16];

/// What an order asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    pub order: u8,
    pub buyer: u8,
    pub units: u32,
}

impl Row {
    pub fn id(&self) -> Id {
        [self.order + 1; 16]
    }

    pub fn buyer(&self) -> String {
        buyer(self.buyer)
    }

    pub fn packed(&self) -> Vec<u8> {
        let buyer = self.buyer().into_bytes();
        [
            &self.id()[..],
            &self.units.to_be_bytes(),
            &[buyer.len().try_into().unwrap()],
            &buyer,
        ]
        .concat()
    }
}

pub fn buyer(number: u8) -> String {
    format!("buyer-{number}")
}

/// Whether a segment sells, when, and how much to each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    pub state: &'static str,
    pub epoch: u64,
    pub limit: u64,
    pub opens_ms: i64,
    pub closes_ms: i64,
    pub price: Option<u64>,
}

impl Config {
    /// As the scripts take and keep it.
    pub fn price(&self) -> String {
        self.price
            .map_or_else(String::new, |price| price.to_string())
    }
}

/// Units that move.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Move {
    pub transfer: u8,
    pub units: u64,
    pub token: u64,
}

impl Move {
    pub fn id(&self) -> Id {
        [0xE0 + self.transfer; 16]
    }

    /// What the entry calls it. The scripts take it as it is.
    pub fn name(&self) -> String {
        format!("transfer-{}", self.transfer)
    }
}

/// How a spillover ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// In this round.
    SoldOut(u32),
    GivenUp(u32),
    /// At this place.
    Elsewhere(String),
}

impl End {
    fn kind(&self) -> &'static str {
        match self {
            Self::SoldOut(_) => "S",
            Self::GivenUp(_) => "N",
            Self::Elsewhere(_) => "E",
        }
    }

    fn place(&self) -> String {
        match self {
            Self::SoldOut(round) | Self::GivenUp(round) => round.to_string(),
            Self::Elsewhere(place) => place.clone(),
        }
    }
}

/// What is done to a segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Deed {
    Open {
        units: u64,
        config: Config,
        hold_ms: i64,
        segments: u64,
    },
    ReserveHome {
        deadline_ms: i64,
        margin_ms: i64,
        rows: Vec<Row>,
    },
    ReserveNext {
        deadline_ms: i64,
        rows: Vec<Row>,
    },
    /// With the round, and whether the segment is the buyer's home.
    ReserveAgain {
        deadline_ms: i64,
        margin_ms: i64,
        rows: Vec<(Row, u32, bool)>,
    },
    FinishSpillover {
        deadline_ms: i64,
        margin_ms: i64,
        spillovers: Vec<(Row, End)>,
    },
    ReopenSpillover {
        deadline_ms: i64,
        row: Row,
    },
    DueSpillovers {
        at_most: usize,
        skip: usize,
    },
    ForgetDeclined {
        spillovers: Vec<(Row, i64)>,
    },
    ForgetSpillover {
        spillovers: Vec<(Row, i64)>,
    },
    ReleaseCount {
        margin_ms: i64,
        rows: Vec<Row>,
    },
    /// With whether the segment is the buyer's home.
    Release {
        rows: Vec<(Row, bool)>,
    },
    TransferOut(Move),
    TransferIn(Move),
    SettleTransfers {
        left: String,
    },
    /// With whether the order has its units.
    CheckHome {
        history: String,
        rows: Vec<(Row, bool)>,
    },
    MarkChecked {
        token: u64,
        history: String,
    },
    SetState(Config),
    Halt {
        token: u64,
        drop: bool,
    },
    /// With whether the segment is the buyer's home.
    RestoreDecisions {
        token: u64,
        batch: Batch,
        margin_ms: i64,
        decisions: Vec<(Row, Decision, bool)>,
    },
    /// Fields of `buyers`.
    RestoreBuyers {
        token: u64,
        batch: Batch,
        counts: Vec<(String, u64)>,
    },
    Adjust {
        token: u64,
        last: String,
        restored: u64,
        available: u64,
        leaving: u64,
        config: Config,
        hold_ms: i64,
        segments: u64,
    },
    Inspect {
        from: String,
        at_most: usize,
    },
}

/// A deed and its segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    pub segment: usize,
    pub deed: Deed,
}

impl Deed {
    pub fn script(&self) -> &'static str {
        match self {
            Self::Open { .. } => "open_segment",
            Self::ReserveHome { .. } => "reserve_home",
            Self::ReserveNext { .. } => "reserve_next",
            Self::ReserveAgain { .. } => "reserve_again",
            Self::FinishSpillover { .. } => "finish_spillover",
            Self::ReopenSpillover { .. } => "reopen_spillover",
            Self::DueSpillovers { .. } => "due_spillovers",
            Self::ForgetDeclined { .. } => "forget_declined",
            Self::ForgetSpillover { .. } => "forget_spillover",
            Self::ReleaseCount { .. } => "release_count",
            Self::Release { .. } => "release",
            Self::TransferOut(_) => "transfer_out",
            Self::TransferIn(_) => "transfer_in",
            Self::SettleTransfers { .. } => "settle_transfers",
            Self::CheckHome { .. } => "check_home",
            Self::MarkChecked { .. } => "mark_checked",
            Self::SetState(_) => "set_state",
            Self::Halt { .. } => "halt_segment",
            Self::RestoreDecisions { .. } | Self::RestoreBuyers { .. } => "restore_orders",
            Self::Adjust { .. } => "adjust",
            Self::Inspect { .. } => "inspect",
        }
    }

    /// What the script is called with, after its keys. `segment` is its name in messages.
    pub fn arguments(&self, segment: &str) -> Arguments {
        let new = Arguments::default();
        match self {
            Self::Open {
                units,
                config,
                hold_ms,
                segments,
            } => new
                .arg(units)
                .arg(config.limit)
                .arg(config.state)
                .arg(config.opens_ms)
                .arg(config.closes_ms)
                .arg(config.epoch)
                .arg(hold_ms)
                .arg(segments)
                .arg(segment)
                .arg(config.price()),
            Self::ReserveHome {
                deadline_ms,
                margin_ms,
                rows,
            } => {
                let new = new
                    .arg(rows.len())
                    .arg(deadline_ms)
                    .arg(margin_ms)
                    .arg(segment);
                new.orders(rows).buyers(rows)
            }
            Self::ReserveNext { deadline_ms, rows } => new
                .arg(rows.len())
                .arg(deadline_ms)
                .arg(segment)
                .orders(rows),
            Self::FinishSpillover {
                deadline_ms,
                margin_ms,
                spillovers,
            } => {
                let new = new.arg(spillovers.len()).arg(deadline_ms).arg(margin_ms);
                let rows: Vec<_> = spillovers.iter().map(|(row, _)| row.clone()).collect();
                let new = new.ids(&rows).buyers(&rows).packed(&rows);
                new.column(spillovers, |(_, end)| end.kind())
                    .column(spillovers, |(_, end)| end.place())
            }
            Self::ReserveAgain {
                deadline_ms,
                margin_ms,
                rows,
            } => {
                let orders: Vec<_> = rows.iter().map(|(row, ..)| row.clone()).collect();
                new.arg(rows.len())
                    .arg(deadline_ms)
                    .arg(margin_ms)
                    .arg(segment)
                    .orders(&orders)
                    .column(rows, |(_, round, _)| *round)
                    .column(rows, |(.., home)| u8::from(*home))
            }
            Self::SettleTransfers { left } => new.arg(left),
            Self::CheckHome { history, rows } => new
                .arg(rows.len())
                .arg(history)
                .bytes(rows, |(row, _)| row.id().to_vec())
                .column(rows, |(_, has_units)| u8::from(*has_units)),
            Self::MarkChecked { token, history } => new.arg(token).arg(history),
            Self::ReopenSpillover { deadline_ms, row } => new
                .arg(deadline_ms)
                .raw(row.id().to_vec())
                .arg(row.buyer())
                .arg(row.units)
                .raw(row.packed()),
            Self::DueSpillovers { at_most, skip } => new.arg(at_most).arg(skip),
            Self::ForgetDeclined { spillovers } => new
                .arg(spillovers.len())
                .bytes(spillovers, |(row, _)| row.id().to_vec())
                .column(spillovers, |(_, until_ms)| *until_ms),
            Self::ForgetSpillover { spillovers } => {
                let new = new
                    .arg(spillovers.len())
                    .bytes(spillovers, |(row, _)| row.id().to_vec())
                    .bytes(spillovers, |(row, _)| row.packed());
                new.column(spillovers, |(_, due_ms)| *due_ms)
            }
            Self::ReleaseCount { margin_ms, rows } => new
                .arg(rows.len())
                .arg(margin_ms)
                .ids(rows)
                .buyers(rows)
                .packed(rows),
            Self::Release { rows } => {
                let orders: Vec<_> = rows.iter().map(|(row, _)| row.clone()).collect();
                let new = new
                    .arg(rows.len())
                    .arg(segment)
                    .ids(&orders)
                    .buyers(&orders)
                    .packed(&orders);
                new.column(rows, |(_, home)| u8::from(*home))
            }
            Self::TransferOut(moved) | Self::TransferIn(moved) => new
                .raw(moved.id().to_vec())
                .arg(moved.name())
                .arg(moved.units)
                .arg(moved.token)
                .arg(segment),
            Self::SetState(config) => new
                .arg(config.state)
                .arg(config.epoch)
                .arg(config.limit)
                .arg(config.opens_ms)
                .arg(config.closes_ms)
                .arg(segment)
                .arg(config.price()),
            Self::Halt { token, drop } => new.arg(token).arg(if *drop { "drop" } else { "keep" }),
            Self::RestoreDecisions {
                token,
                batch,
                margin_ms,
                decisions,
            } => {
                let new = new
                    .arg(decisions.len())
                    .arg(token)
                    .arg("decisions")
                    .arg(margin_ms)
                    .arg(&batch.last)
                    .arg(batch.step);
                let new = new
                    .bytes(decisions, |(row, ..)| row.id().to_vec())
                    .column(decisions, |(_, decision, _)| decision.text());
                new.bytes(
                    decisions,
                    |(row, _, home)| if *home { row.packed() } else { vec![] },
                )
            }
            Self::RestoreBuyers {
                token,
                batch,
                counts,
            } => {
                let new = new
                    .arg(counts.len())
                    .arg(token)
                    .arg("buyers")
                    .arg(0)
                    .arg(&batch.last)
                    .arg(batch.step);
                new.column(counts, |(field, _)| field.clone())
                    .column(counts, |(_, count)| *count)
            }
            Self::Adjust {
                token,
                last,
                restored,
                available,
                leaving,
                config,
                hold_ms,
                segments,
            } => {
                let new = new
                    .arg(token)
                    .arg(last)
                    .arg(available)
                    .arg(config.epoch)
                    .arg(config.state)
                    .arg(config.limit)
                    .arg(config.opens_ms)
                    .arg(config.closes_ms);
                new.arg(hold_ms)
                    .arg(segments)
                    .arg(segment)
                    .arg(restored)
                    .arg(leaving)
                    .arg(config.price())
            }
            Self::Inspect { from, at_most } => new.arg(from).arg(at_most),
        }
    }

    /// The orders that it is about.
    pub fn ids(&self) -> Vec<Id> {
        let of = |rows: &[Row]| rows.iter().map(Row::id).collect();
        match self {
            Self::ReserveHome { rows, .. }
            | Self::ReserveNext { rows, .. }
            | Self::ReleaseCount { rows, .. } => of(rows),
            Self::FinishSpillover { spillovers, .. } => {
                spillovers.iter().map(|(row, _)| row.id()).collect()
            }
            Self::ReopenSpillover { row, .. } => vec![row.id()],
            Self::ForgetDeclined { spillovers } | Self::ForgetSpillover { spillovers } => {
                spillovers.iter().map(|(row, _)| row.id()).collect()
            }
            Self::ReserveAgain { rows, .. } => rows.iter().map(|(row, ..)| row.id()).collect(),
            Self::Release { rows } => rows.iter().map(|(row, _)| row.id()).collect(),
            _ => vec![],
        }
    }
}

/// The arguments of a call, one after the other.
#[derive(Default)]
pub struct Arguments(pub Vec<Vec<u8>>);

impl Arguments {
    fn raw(mut self, bytes: Vec<u8>) -> Self {
        self.0.push(bytes);
        self
    }

    fn arg(self, value: impl ToString) -> Self {
        self.raw(value.to_string().into_bytes())
    }

    fn column<T, V: ToString>(self, items: &[T], value: impl Fn(&T) -> V) -> Self {
        items.iter().fold(self, |new, item| new.arg(value(item)))
    }

    fn bytes<T>(self, items: &[T], value: impl Fn(&T) -> Vec<u8>) -> Self {
        items.iter().fold(self, |new, item| new.raw(value(item)))
    }

    fn ids(self, rows: &[Row]) -> Self {
        self.bytes(rows, |row| row.id().to_vec())
    }

    fn buyers(self, rows: &[Row]) -> Self {
        self.column(rows, Row::buyer)
    }

    /// The quantity if all have the same, the packed orders together, and the ids.
    fn orders(self, rows: &[Row]) -> Self {
        let first = rows.first().map_or(0, |row| row.units);
        let is_same = rows.iter().all(|row| row.units == first);
        self.arg(if is_same { first } else { 0 })
            .raw(rows.iter().flat_map(Row::packed).collect())
            .ids(rows)
    }

    fn packed(self, rows: &[Row]) -> Self {
        self.bytes(rows, Row::packed)
    }
}

/// The names of the keys with these letters.
pub fn keys(segment: &str, letters: &str) -> Vec<String> {
    let kind = |letter| KEYS.iter().find(|(known, _)| *known == letter).unwrap().1;
    letters
        .chars()
        .map(|letter| format!("{}:{{{segment}}}", kind(letter)))
        .collect()
}
