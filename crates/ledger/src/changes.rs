//! Changes of an item by hand, and moves of its units.

pub(crate) mod item;
pub(crate) mod stock;

use domain::{Item, ItemId, ItemState, Quantity, TransferId, Window};
use jiff::Timestamp;

/// What of an item shall be different. `None`: as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ItemChange {
    /// Whether it sells.
    pub state: Option<ItemState>,
    /// Units that one buyer may hold; `Some(None)` is no limit.
    pub limit_per_buyer: Option<Option<Quantity>>,
    /// From when until when it can be bought.
    pub window: Option<Window>,
}

impl ItemChange {
    /// The item as it would be, with its next epoch and version; `None` if nothing would be different.
    pub fn apply(&self, item: &Item) -> Option<Item> {
        let changed = Item {
            state: self.state.unwrap_or(item.state),
            limit_per_buyer: self.limit_per_buyer.unwrap_or(item.limit_per_buyer),
            window: self.window.unwrap_or(item.window),
            ..item.clone()
        };
        (changed != *item).then(|| Item {
            epoch: item.epoch + 1,
            version: item.version + 1,
            ..changed
        })
    }
}

/// What a change came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Changed {
    /// The item as it is now, whether this or an earlier repeat of it made it so.
    Item(Item),
    /// The item has another version than the one that the change was decided on. Nothing was changed.
    OtherVersion(Item),
    /// The transfers of this change of stock are those of an earlier one, which was another. Nothing was changed.
    OtherChange(Item),
    /// There is no such item.
    NoItem,
}

/// Units to be added to an item's stock, or to be taken from it, by segment. Each part is a transfer from or to the outside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StockChange {
    /// More units.
    TopUp(Vec<StockPart>),
    /// Fewer units: as many of those as nobody has when the segment is asked.
    TakeBack(Vec<StockPart>),
}

impl StockChange {
    /// Units of all its parts.
    pub fn units(&self) -> u64 {
        self.parts()
            .iter()
            .fold(0, |sum, part| part.units.saturating_add(sum))
    }

    /// Its parts.
    pub fn parts(&self) -> &[StockPart] {
        let (Self::TopUp(parts) | Self::TakeBack(parts)) = self;
        parts
    }
}

/// A segment's part of a change of stock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StockPart {
    /// The transfer that moves it.
    pub transfer: TransferId,
    /// To or from which segment.
    pub segment: u16,
    /// How many units.
    pub units: u64,
}

/// Units to be moved from one segment to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TransferPlan {
    /// The transfer.
    pub id: TransferId,
    /// Who has units to spare.
    pub from: u16,
    /// Who needs them.
    pub to: u16,
    /// How many; as many of them as nobody has when the segment is asked.
    pub units: u64,
}

/// A move of units that is under way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transfer {
    /// Which.
    pub id: TransferId,
    /// Of which item.
    pub item: ItemId,
    /// From which segment; `None`: they are new.
    pub from: Option<u16>,
    /// To which segment; `None`: they leave the stock.
    pub to: Option<u16>,
    /// How many were asked for.
    pub asked: u64,
    /// How many left; 0 until they have.
    pub moved: u64,
    /// How far it is.
    pub state: TransferState,
    /// Since when.
    pub since: Timestamp,
}

/// How far a transfer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TransferState {
    /// `planned`: its units are where they were, or the ledger does not know yet that they left.
    Planned,
    /// `out`: they have left, or are new, and the ledger does not know yet that they arrived.
    Out,
    /// `done`.
    Done,
}

impl TransferState {
    const ALL: [Self; 3] = [Self::Planned, Self::Out, Self::Done];

    /// The word that stands for it in SQL and JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Planned => "planned",
            Self::Out => "out",
            Self::Done => "done",
        }
    }

    pub(crate) fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == word)
    }
}

/// Who changed what by hand or by repair.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JournalEntry {
    /// Its number; they only rise.
    pub id: u64,
    /// When.
    pub at: Timestamp,
    /// The rest.
    pub entry: NewJournalEntry,
}

/// An entry to be added to the journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewJournalEntry {
    /// Of which item.
    pub item: ItemId,
    /// Who: `admin`, `reconciler`, `payment`, ...
    pub actor: String,
    /// What: `state`, `limit`, `window`, `top_up`, `take_back`, `mend`, `refund_due`, `stray_payment`, ...
    pub action: String,
    /// The fencing token, if there was one.
    pub token: Option<u64>,
    /// As it was, as JSON.
    pub before: serde_json::Value,
    /// As it is, as JSON.
    pub after: serde_json::Value,
}
