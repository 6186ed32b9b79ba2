//! Manual changes of an item, and transfers of its units.

pub(crate) mod item;
pub(crate) mod stock;
pub(crate) mod wave;

use domain::{Item, ItemId, ItemState, Quantity, TransferId, Wave, Window};
use jiff::Timestamp;

use crate::words::words;

/// Fields of an item to change. `None` leaves the field as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ItemChange {
    /// The state: whether it sells.
    pub state: Option<ItemState>,
    /// Units that one buyer may hold; `Some(None)` removes the limit.
    pub limit_per_buyer: Option<Option<Quantity>>,
    /// The window in which it can be bought.
    pub window: Option<Window>,
    /// The price of one unit, for orders to come.
    pub price: Option<u64>,
    /// The waves that have not been added.
    pub waves: Option<Vec<Wave>>,
}

impl ItemChange {
    /// The item after the change, with its next epoch and version. `None` if no field would change.
    pub fn apply(&self, item: &Item) -> Option<Item> {
        let changed = Item {
            state: self.state.unwrap_or(item.state),
            limit_per_buyer: self.limit_per_buyer.unwrap_or(item.limit_per_buyer),
            window: self.window.unwrap_or(item.window),
            new_price: match self.price {
                Some(price) if price != item.current_price() => Some(price),
                _ => item.new_price,
            },
            waves: match &self.waves {
                Some(wanted) => item.waves_replaced(wanted),
                None => item.waves.clone(),
            },
            ..item.clone()
        };
        (changed != *item).then(|| Item {
            epoch: item.epoch + 1,
            version: item.version + 1,
            ..changed
        })
    }
}

/// Result of a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Changed {
    /// The item as it is now. The change was made by this call or by an earlier repeat of it.
    Item(Item),
    /// The item has another version than the one that the change was decided on. Nothing was
    /// changed.
    OtherVersion(Item),
    /// The transfers of this change exist already, as parts of a different change. Nothing was
    /// changed.
    OtherChange(Item),
    /// The item would have more units than an item may, those of its coming waves included. Nothing
    /// was changed.
    AboveMaximum(Item),
    /// The item is archived, and its end is for good. Nothing was changed.
    Archived(Item),
    /// The item does not exist.
    NoItem,
}

/// Units to add to an item's stock or to withdraw from it, by segment. Each part is a transfer from
/// or to the outside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StockChange {
    /// Adds units.
    TopUp(Vec<StockPart>),
    /// Withdraws units: of each part, as many as are available when the segment executes it.
    Withdraw(Vec<StockPart>),
}

impl StockChange {
    /// Number of units in all parts together.
    pub fn units(&self) -> u64 {
        self.parts()
            .iter()
            .fold(0, |sum, part| part.units.saturating_add(sum))
    }

    /// The parts, one for each segment.
    pub fn parts(&self) -> &[StockPart] {
        let (Self::TopUp(parts) | Self::Withdraw(parts)) = self;
        parts
    }
}

/// The part of a change of stock that one segment carries out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StockPart {
    /// The transfer that moves the units.
    pub transfer: TransferId,
    /// The segment that receives or gives the units.
    pub segment: u16,
    /// Number of units.
    pub units: u64,
}

/// A planned transfer of units from one segment to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TransferPlan {
    /// Id of the transfer.
    pub id: TransferId,
    /// The segment that gives units.
    pub from: u16,
    /// The segment that receives them.
    pub to: u16,
    /// Number of units; the segment gives fewer if fewer are available when it is asked.
    pub units: u64,
}

/// A transfer of units and how far it has got.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transfer {
    /// Id of the transfer.
    pub id: TransferId,
    /// The item whose units move.
    pub item: ItemId,
    /// The segment that gives; `None` if the units are new.
    pub from: Option<u16>,
    /// The segment that receives; `None` if the units leave the stock.
    pub to: Option<u16>,
    /// Number of units that were requested.
    pub quantity: u64,
    /// Number of units that have left; 0 until then.
    pub moved: u64,
    /// Progress of the transfer.
    pub state: TransferState,
    /// When the transfer was planned.
    pub since: Timestamp,
}

words! {
    /// Progress of a transfer.
    pub enum TransferState {
        /// Its units have not left, or the ledger has not recorded yet that they did.
        Planned => "planned",
        /// Its units have left, or are new, and the ledger has not recorded their arrival.
        Out => "out",
        /// Its units have arrived, or have left the stock.
        Done => "done",
    }
}

/// A journal entry: who changed what, manually or by a repair.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JournalEntry {
    /// Number of the entry; later entries have higher numbers.
    pub id: u64,
    /// When the change was made.
    pub at: Timestamp,
    /// The content of the entry.
    pub entry: NewJournalEntry,
}

/// An entry to add to the journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewJournalEntry {
    /// The item that was changed.
    pub item: ItemId,
    /// Who made the change: `admin`, `reconciler`, `payment`, ...
    pub actor: String,
    /// What was done: `state`, `limit`, `window`, `waves`, `top_up`, `wave`, `withdraw`, `repair`,
    /// `refund_due`, `unmatched_payment`, `payment_refunded`, `refund_failed`, ...
    pub action: String,
    /// The fencing token, if the change was made under the item's lock.
    pub token: Option<u64>,
    /// The values before, as JSON.
    pub before: serde_json::Value,
    /// The values after, as JSON.
    pub after: serde_json::Value,
}
